"""Is it over?  One answer for all services: status records the end, the scheduler cleans up after it.  Pure.

Only pods of this attempt whose slot nobody released are judged.
"""

import msgspec

from shared.job.spec import LAUNCHER, WORKER
from shared.job.state import Job, ended
from shared.job.timing import passed
from shared.job.views import PodView


class Verdict(msgspec.Struct, frozen=True):
    """The job is over, in success or not, and why."""

    success: bool
    reason: str
    message: str = ""


SUCCEEDED = Verdict(True, "TrainingJobSucceeded")

_NEEDED_TO_START = ("CreatePod", "CreateService", "WriteHosts")
"""Effects without which no launcher comes; a status that cannot be written ends no job."""


def verdict(job: Job) -> Verdict | None:
    """The end that the job reached, or None while it goes on."""
    if job.spec is None:
        return None
    launcher = job.seen_launcher
    if launcher is not None and launcher.slot in job.slots | job.spent:
        end = _of_launcher(job, launcher)
        if end is not None:
            return end
    if job.launcher_lost:
        return Verdict(False, "LauncherLost", "the launcher vanished before its end was seen")
    if job.launched:
        return _of_size(job)
    return _of_start(job)


def _of_launcher(job: Job, launcher: PodView) -> Verdict | None:
    container = job.spec.role(LAUNCHER).container if job.spec else ""
    end = next((end for end in launcher.exits if end.container == container), None)
    if end is None and not ended(launcher):
        return None
    if launcher.deleting:
        return Verdict(False, "LauncherLost", "the launcher was deleted before it ended")
    if end is None:
        # The pod ended and says nothing of its containers: evicted, or lost with its node.
        if launcher.phase == "Succeeded":
            return SUCCEEDED
        return Verdict(False, _failure_reason(launcher.reason), f"the launcher failed: {launcher.reason or 'Failed'}")
    if end.code == 0:
        return SUCCEEDED
    return Verdict(
        False, _failure_reason(launcher.reason), f"the launcher exited with {end.code} ({end.reason or 'Error'})"
    )


def _failure_reason(pod_reason: str) -> str:
    if pod_reason == "Evicted":
        return "TrainingJobEvicted"
    return pod_reason or "TrainingJobFailed"


def _of_size(job: Job) -> Verdict | None:
    if job.below_minimum and passed(job, job.below_minimum, "BelowMinimum"):
        minimum = job.spec.role(WORKER).min_replicas if job.spec else 0
        return Verdict(False, "BelowMinimum", f"{len(job.workers)} workers are left, {minimum} are needed")
    return None


def _of_start(job: Job) -> Verdict | None:
    """Before there is a launcher: a pod that can never be made, or too few workers to begin with."""
    assert job.spec is not None
    for effect in _NEEDED_TO_START:
        refusal = job.refusals.get(effect)
        if refusal is not None and refusal.permanent:
            where = f" ({refusal.field})" if refusal.field else ""
            return Verdict(False, refusal.reason, f"{effect} was refused for good{where}")
    minimum = job.spec.role(WORKER).min_replicas
    lost = [slot for slot in job.spent if slot.role == WORKER]
    if lost and len(job.workers) < minimum:
        newest = job.failures[-1] if job.failures else None
        if newest is None:
            return Verdict(False, "WorkerExited", "a worker ended before the launcher was made")
        how = f" with {newest.code}" if newest.code is not None else ""
        return Verdict(False, _failure_reason(newest.reason), f"{newest.pod} ended{how} before the launcher was made")
    return None
