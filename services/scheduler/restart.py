"""Between attempts: the slots of the old one released, the next one begun after the back-off, or after a pause.  Pure.

Whether there is another attempt is the verdict's, and status records it (`JobRestarting`, `JobSuspended`).
"""

from shared.job.events.scheduler import JobRestarted, SlotsReleased
from shared.job.naming import RESTART_REQUESTED
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timing import RESTART, passed
from shared.job.views import spans


def owed(job: Job) -> list[Step]:
    """First every slot is released, so that the pods go; then the next attempt, once it may begin."""
    held = job.attempt.places
    if held:
        return [Record(SlotsReleased(slots=spans(held), reason=f"Job{job.phase}"))]
    if job.phase == "Suspended":
        return []
    if job.restarting is None:
        return [_next(job, "Resumed", counted=False)]
    # Why it is between attempts stands in the condition that says so.
    reason = next((known.reason for known in job.conditions if known.type == "Restarting"), "")
    if reason == RESTART_REQUESTED:
        return [_next(job, reason, counted=False)]
    waited = job.restart_wanted or passed(job, job.restarting.at.sequence, RESTART)
    return [_next(job, reason, counted=True)] if waited else []


def _next(job: Job, reason: str, *, counted: bool) -> Step:
    return Record(JobRestarted(attempt=job.attempt.number + 1, counted=counted, reason=reason))
