"""Begins the next attempt: releases the slots of the last one, then waits for the back-off or the resumption.  Pure.

`shared/job/verdict.py` decides whether there is another attempt; the status service records that (`JobRestarting`).
"""

from shared.job.events.scheduler import JobRestarted, SlotsReleased
from shared.job.policies.restart import delay
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timers import RESTART, passed
from shared.job.views import spans

MOST_LOST = 1_000
"""No log loses more attempts; who may make pods may write a higher number into a label."""


def next_steps(job: Job) -> list[Step]:
    """Release every slot, so that the pods are deleted; then begin the next attempt when its back-off is over."""
    held = job.attempt.unreleased
    if held:
        resumed = job.paused and not job.suspended
        return [Record(SlotsReleased(slots=spans(held), reason="Resumed" if resumed else f"Job{job.phase}"))]
    if job.suspended:
        return []
    if job.restarting is None:
        return [_next(job, "Resumed", counted=False)]
    why = job.restarting
    at_once = job.restart_wanted or not delay(job, why)
    if not at_once and not passed(job, why.at.sequence, RESTART):
        return []
    return [_next(job, why.reason, counted=why.counted)]


def _next(job: Job, reason: str, *, counted: bool) -> Step:
    # A restored log may have lost attempts whose pods are still there.
    number = job.attempt.number
    lost = [pod.attempt for pod in job.pods.values() if pod.attempt <= number + MOST_LOST]
    return Record(JobRestarted(attempt=max([number, *lost]) + 1, counted=counted, reason=reason))
