"""Is it over?  May it begin again?  One answer for all services: status records the end or the restart, the scheduler
carries it out.  Pure.

Only pods of this attempt whose slot nobody released are judged.
"""

import msgspec

from shared.job import replacement
from shared.job.losses import Vacancy
from shared.job.milestones import trouble
from shared.job.naming import Slot
from shared.job.spec import LAUNCHER, WORKER, JobSpec
from shared.job.state import Job, exit_of, running_workers
from shared.job.timing import ACTIVE_DEADLINE, BELOW_MINIMUM, SCHEDULING, passed
from shared.job.views import PodView, ended


class Verdict(msgspec.Struct, frozen=True):
    """The attempt is over, in success or not, and why."""

    success: bool
    reason: str
    message: str = ""
    permanent: bool = False
    """A new attempt would end the same way, or is not wanted any more."""


def succeeded(job: Job) -> Verdict:
    return Verdict(True, f"{job.kind}Succeeded")


_NEEDED_TO_START = ("CreatePod", "CreateService", "CreateSecret", "WriteHosts")
"""Effects without which no job gets under way; a status that cannot be written ends no job."""


def verdict(job: Job) -> Verdict | None:
    """The end that the attempt reached, or None while it goes on."""
    if job.spec is None or job.phase == "Suspended":
        return None
    return _of_attempt(job) or _of_deadline(job)


def may_restart(job: Job, end: Verdict) -> bool:
    """Whether a failed attempt is followed by another one."""
    if job.spec is None or end.success or end.permanent:
        return False
    handling = job.spec.handling
    of_judge = handling.restarts == "Job" and job.spec.policy(handling.judge) != "Never"
    wanted = job.spec.restart_policy != "Never" or of_judge
    return wanted and job.restarts < job.spec.backoff_limit


def _of_attempt(job: Job) -> Verdict | None:
    if job.between_attempts or job.spec is None:
        return None
    end = _of_seen_launcher(job) if job.spec.has_launcher else _of_judge(job, job.spec)
    if end is not None:
        return end
    if job.attempt.launcher_lost:
        return Verdict(False, "LauncherLost", "the launcher vanished before its end was seen")
    if job.starting and job.attempt.assigned is not None and passed(job, job.attempt.assigned.sequence, SCHEDULING):
        slow = _too_slow(job)
        if slow is not None:
            return slow
    if job.spec.handling.strict and (lost := _of_losses(job, job.spec)) is not None:
        return lost
    running = job.attempt.launched if job.spec.has_launcher else job.under_way
    return _of_refusal(job) or (_of_size(job) if running else _of_start(job))


def _of_seen_launcher(job: Job) -> Verdict | None:
    launcher = job.seen_launcher
    return _of_launcher(job, launcher) if launcher is not None and launcher.slot in job.attempt.places else None


def _of_judge(job: Job, spec: JobSpec) -> Verdict | None:
    """Of a job without a launcher: enough pods of the role that judges it ended well, or the one that counts badly."""
    handling = spec.handling
    places = {slot: vacancy for slot, vacancy in job.attempt.vacancies.items() if slot.role == handling.judge}
    done = {slot for slot, vacancy in places.items() if vacancy.succeeded}
    if job.attempt.begun and not any(slot.role == handling.judge for slot in job.attempt.places):
        # An edit named another judge, whose pods come with the next attempt: this one ends with all that it has.
        vacancies = job.attempt.vacancies.values()
        ended_well = bool(vacancies) and all(vacancy.succeeded for vacancy in vacancies)
        return succeeded(job) if ended_well and not job.attempt.slots else None
    match handling.succeeds:
        case "First":
            over = any(slot.index == 0 for slot in done)
        case "Any":
            over = bool(done)
        case "All":
            going_on = any(slot.role == handling.judge for slot in job.attempt.slots)
            over = bool(done) and len(done) == len(places) and not going_on
    if over:
        return succeeded(job)
    if handling.restarts == "Pod" or not (lost := places.keys() - done):
        return None
    first = min(lost)
    vacancy = places[first]
    final = not vacancy.blameless and replacement.final(spec, vacancy.code, vacancy.reason)
    policy = spec.policy(handling.judge)
    return _loss(job, first, vacancy, permanent=policy == "ExitCode" and final)


def _of_losses(job: Job, spec: JobSpec) -> Verdict | None:
    """A pod that every other one needs, and that is not replaced."""
    owed = replacement.owed(job)
    # Whom an open request brings or takes is its own business.
    others = job.scaling.arriving | job.outgoing
    for slot, vacancy in sorted(job.attempt.vacancies.items()):
        if vacancy.succeeded or slot in owed or slot in others:
            continue
        if slot.role in spec.handling.spares or not spec.has(slot.role):
            continue
        if replacement.allowed(spec, slot, vacancy):
            if job.attempt.replaced + sum(not known.blameless for known in owed.values()) < spec.backoff_limit:
                # There are as many pods as there shall be without it.
                continue
            message = f"{job.pod_name(slot)} ended again after {job.attempt.replaced} replacements (backoffLimit)"
            return Verdict(False, "BackoffLimitExceeded", message, permanent=True)
        return _loss(job, slot, vacancy, permanent=True)
    return None


def _loss(job: Job, slot: Slot, vacancy: Vacancy, *, permanent: bool) -> Verdict:
    how = f"exited with {vacancy.code} ({vacancy.reason})" if vacancy.code is not None else f"is lost: {vacancy.reason}"
    reason = vacancy.reason if vacancy.reason == replacement.OUT_OF_MEMORY else _failure_reason(job, "")
    return Verdict(False, reason, f"{job.pod_name(slot)} {how}", permanent)


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
            return succeeded(job)
        return Verdict(
            False, _failure_reason(job, launcher.reason), f"the launcher failed: {launcher.reason or 'Failed'}"
        )
    if end.code == 0:
        return succeeded(job)
    assert job.spec is not None
    policy = job.spec.role(LAUNCHER).restart_policy
    permanent = policy == "ExitCode" and not replacement.retryable(end.code)
    reason = end.reason if end.reason == replacement.OUT_OF_MEMORY else _failure_reason(job, launcher.reason)
    return Verdict(False, reason, f"the launcher exited with {end.code} ({end.reason or 'Error'})", permanent)


def _failure_reason(job: Job, pod_reason: str) -> str:
    if pod_reason == "Evicted":
        return f"{job.kind}Evicted"
    return pod_reason or f"{job.kind}Failed"


def _of_size(job: Job) -> Verdict | None:
    minimum = job.spec.worker.min_replicas if job.spec else 0
    short = job.attempt.below_minimum and passed(job, job.attempt.below_minimum, BELOW_MINIMUM)
    if short and running_workers(job) < minimum:
        return Verdict(False, "BelowMinimum", f"{running_workers(job)} workers run, {minimum} are needed")
    return None


def _of_refusal(job: Job) -> Verdict | None:
    """Before the job is under way: something that can never be made."""
    if job.under_way:
        return None
    for effect in _NEEDED_TO_START:
        refusal = job.refusals.get(effect)
        if refusal is not None and refusal.permanent:
            where = f" ({refusal.field})" if refusal.field else ""
            return Verdict(False, refusal.reason, f"{effect} was refused for good{where}", permanent=True)
    return None


def _of_start(job: Job) -> Verdict | None:
    """Before the launcher's turn, or before any worker runs: too few workers to begin with."""
    assert job.spec is not None
    minimum = job.scaling.size if job.spec.handling.whole else job.spec.worker.min_replicas
    lost = [slot for slot in job.attempt.spent if slot.role == WORKER]
    if lost and len(job.attempt.workers) < minimum and not replacement.owed(job):
        newest = job.failures[-1] if job.failures else None
        begin = "the launcher was made" if job.spec.has_launcher else "the job ran"
        if newest is None:
            return Verdict(False, "WorkerExited", f"a worker ended before {begin}")
        how = f" with {newest.code}" if newest.code is not None else ""
        return Verdict(False, _failure_reason(job, newest.reason), f"{newest.pod} ended{how} before {begin}")
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
