"""Is it over?  May it begin again?  One answer for all services: status records the end or the restart, the scheduler
carries it out.  Pure.

Only pods of this attempt whose slot nobody released are judged.
"""

import msgspec

from shared.job import replacement
from shared.job.conditions import trouble
from shared.job.spec import LAUNCHER, WORKER
from shared.job.state import Job, ended, exit_of, running_workers
from shared.job.timing import ACTIVE_DEADLINE, SCHEDULING, passed
from shared.job.views import PodView


class Verdict(msgspec.Struct, frozen=True):
    """The attempt is over, in success or not, and why."""

    success: bool
    reason: str
    message: str = ""
    permanent: bool = False
    """A new attempt would end the same way, or is not wanted any more."""


SUCCEEDED = Verdict(True, "TrainingJobSucceeded")

_NEEDED_TO_START = ("CreatePod", "CreateService", "CreateSecret", "WriteHosts")
"""Effects without which no launcher comes; a status that cannot be written ends no job."""


def verdict(job: Job) -> Verdict | None:
    """The end that the attempt reached, or None while it goes on."""
    if job.spec is None or job.phase == "Suspended":
        return None
    return _of_attempt(job) or _of_deadline(job)


def may_restart(job: Job, end: Verdict) -> bool:
    """Whether a failed attempt is followed by another one."""
    if job.spec is None or end.success or end.permanent:
        return False
    wanted = job.spec.restart_policy != "Never" or job.spec.role(LAUNCHER).restart_policy != "Never"
    return wanted and job.restarts < job.spec.backoff_limit


def _of_attempt(job: Job) -> Verdict | None:
    if job.between_attempts:
        return None
    launcher = job.seen_launcher
    if launcher is not None and launcher.slot in job.slots | job.spent:
        end = _of_launcher(job, launcher)
        if end is not None:
            return end
    if job.launcher_lost:
        return Verdict(False, "LauncherLost", "the launcher vanished before its end was seen")
    if job.starting and job.assigned is not None and passed(job, job.assigned.sequence, SCHEDULING):
        slow = _too_slow(job)
        if slow is not None:
            return slow
    return _of_refusal(job) or (_of_size(job) if job.launched else _of_start(job))


def _of_deadline(job: Job) -> Verdict | None:
    if job.spec is None or job.active is None or not passed(job, job.active.sequence, ACTIVE_DEADLINE):
        return None
    seconds = job.spec.active_deadline_seconds
    if seconds is None:
        return None
    return Verdict(False, "DeadlineExceeded", f"it was active for {seconds} s (activeDeadlineSeconds)", permanent=True)


def _of_launcher(job: Job, launcher: PodView) -> Verdict | None:
    end = exit_of(job, launcher)
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
    assert job.spec is not None
    policy = job.spec.role(LAUNCHER).restart_policy
    permanent = policy == "ExitCode" and not replacement.retryable(end.code)
    reason = end.reason if end.reason == OUT_OF_MEMORY else _failure_reason(launcher.reason)
    return Verdict(False, reason, f"the launcher exited with {end.code} ({end.reason or 'Error'})", permanent)


OUT_OF_MEMORY = "OOMKilled"


def _failure_reason(pod_reason: str) -> str:
    if pod_reason == "Evicted":
        return "TrainingJobEvicted"
    return pod_reason or "TrainingJobFailed"


def _of_size(job: Job) -> Verdict | None:
    minimum = job.spec.role(WORKER).min_replicas if job.spec else 0
    short = job.below_minimum and passed(job, job.below_minimum, "BelowMinimum")
    if short and running_workers(job) < minimum:
        return Verdict(False, "BelowMinimum", f"{running_workers(job)} workers run, {minimum} are needed")
    return None


def _of_refusal(job: Job) -> Verdict | None:
    """Before the launcher's pod is there: something that can never be made."""
    if job.seen_launcher is not None:
        return None
    for effect in _NEEDED_TO_START:
        refusal = job.refusals.get(effect)
        if refusal is not None and refusal.permanent:
            where = f" ({refusal.field})" if refusal.field else ""
            return Verdict(False, refusal.reason, f"{effect} was refused for good{where}", permanent=True)
    return None


def _of_start(job: Job) -> Verdict | None:
    """Before the launcher's turn: too few workers to begin with."""
    assert job.spec is not None
    minimum = job.spec.role(WORKER).min_replicas
    lost = [slot for slot in job.spent if slot.role == WORKER]
    if lost and len(job.workers) < minimum and not replacement.owed(job):
        newest = job.failures[-1] if job.failures else None
        if newest is None:
            return Verdict(False, "WorkerExited", "a worker ended before the launcher was made")
        how = f" with {newest.code}" if newest.code is not None else ""
        return Verdict(False, _failure_reason(newest.reason), f"{newest.pod} ended{how} before the launcher was made")
    return None


def _too_slow(job: Job) -> Verdict | None:
    seconds = job.spec.scheduling_timeout_seconds if job.spec else None
    if seconds is None:
        return None
    waits = trouble(job)
    refusal = job.refusals.get("CreatePod")
    why = f"{waits.pod}: {waits.reason}" if waits else f"CreatePod: {refusal.reason}" if refusal else ""
    message = f"it did not run after {seconds} s (schedulingTimeoutSeconds)" + (f"; {why}" if why else "")
    return Verdict(False, "SchedulingTimeout", message, permanent=True)
