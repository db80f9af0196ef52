"""What the scheduler owes a job.  Pure."""

from services.scheduler.core import cleanup, keys, replacing, restart, slots
from shared.job.state import Job
from shared.job.steps import Step


def decide(job: Job) -> list[Step]:
    """Slots to assign or release, pods and Service to make, pods to remove."""
    if job.halted or job.orphan:
        return []
    if job.gone:
        return cleanup.everything(job)
    if job.deleting or job.phase == "":
        return []
    if job.over:
        return [*cleanup.after_the_end(job), *cleanup.expiry(job), *slots.surplus(job), *slots.unclaimed(job)]
    if job.between_attempts:
        return [*restart.owed(job), *slots.surplus(job)]
    decisions = [*replacing.owed(job), *slots.assigned(job), *keys.owed(job)]
    return [*decisions, *slots.missing(job), *slots.surplus(job), *slots.unclaimed(job)]
