"""Between attempts: the slots of the old one released, the next one begun after the back-off, or after a pause.  Pure.

Whether there is another attempt is the verdict's, and status records it (`JobRestarting`, `JobSuspended`).
"""

from shared.job.events.scheduler import JobRestarted, SlotsReleased
from shared.job.policies.restart import delay
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timing import RESTART, passed
from shared.job.views import spans


def owed(job: Job) -> list[Step]:
    """First every slot is released, so that the pods go; then the next attempt, once its back-off is over."""
    held = job.attempt.places
    if held:
        return [Record(SlotsReleased(slots=spans(held), reason=f"Job{job.phase}"))]
    if job.phase == "Suspended":
        return []
    if job.restarting is None:
        return [_next(job, "Resumed", counted=False)]
    why = job.restarting
    at_once = job.restart_wanted or not delay(job, why)
    if not at_once and not passed(job, why.at.sequence, RESTART):
        return []
    return [_next(job, why.reason, counted=why.counted)]


def _next(job: Job, reason: str, *, counted: bool) -> Step:
    return Record(JobRestarted(attempt=job.attempt.number + 1, counted=counted, reason=reason))
