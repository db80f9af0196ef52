"""Decides the scaler's next steps for a job.  Pure."""

from services.scaler.core import disruption, membership, queue, size
from services.scaler.core.policy import Policy
from shared.job.naming import NO_UID
from shared.job.state import Job
from shared.job.steps import Step


def decide(job: Job, policy: Policy) -> list[Step]:
    """Hosts files to publish and write; requests to own, accept, carry out and end."""
    if job.halted or job.key.uid == NO_UID:
        return []
    if job.gone:
        return [*queue.after_the_end(job), *membership.leftover(job)]
    if job.deleting:
        return []
    if job.over:
        return queue.after_the_end(job)
    steps = [*membership.next_steps(job, policy), *disruption.next_steps(job), *queue.next_steps(job, policy)]
    return [*steps, *size.next_steps(job)]
