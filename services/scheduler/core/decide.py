"""Decides the scheduler's next steps for a job.  Pure."""

from services.scheduler.core import cleanup, keys, queueing, replacing, restart, slots, stuck
from shared.job.state import Job
from shared.job.steps import Step


def decide(job: Job) -> list[Step]:
    """Slots to assign or release; pods, Services, Secrets and Workloads to create or delete."""
    if job.halted or job.orphan:
        return []
    return [*_of_phase(job), *stuck.next_steps(job)]


def _of_phase(job: Job) -> list[Step]:
    if job.gone:
        return cleanup.everything(job)
    if job.deleting or job.phase == "":
        return []
    if job.over:
        decisions = [*cleanup.after_the_end(job), *cleanup.expiry(job)]
        return [*decisions, *slots.surplus(job), *slots.unclaimed(job), *keys.spent(job), *queueing.after_the_end(job)]
    if job.between_attempts:
        return [*restart.next_steps(job), *slots.surplus(job), *keys.spent(job), *queueing.next_steps(job)]
    decisions = [*replacing.next_steps(job), *slots.assigned(job), *keys.missing(job)]
    pods = [*slots.missing(job), *slots.surplus(job), *slots.outliving(job), *slots.unclaimed(job)]
    return [*decisions, *pods, *keys.spent(job), *queueing.next_steps(job)]
