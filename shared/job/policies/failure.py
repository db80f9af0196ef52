"""When an attempt failed: by the end of its launcher or leader, or by the loss of a pod that is not replaced.  Pure.

A disruption (an eviction, a drain, a node that went, a preemption) is no failure of the pod: the attempt is over, and
`restart.py` begins the next one whatever the policies say.
"""

from shared.job import reasons, text
from shared.job.losses import Vacancy
from shared.job.naming import Slot
from shared.job.outcome import Verdict
from shared.job.policies import exit_codes, replacement
from shared.job.spec import LAUNCHER, WORKER, JobSpec
from shared.job.state import Job, exit_of, needed_workers
from shared.job.views import PodView, ended

_NEEDED_TO_START = ("CreatePod", "CreateService", "CreateSecret", "WriteHosts", "WriteWorkload")
"""Effects without which no job gets under way; a status that cannot be written ends no job."""


def of_launcher(job: Job) -> Verdict | None:
    """The launcher ended, and not with success, for which `success.of_launcher` is asked first."""
    launcher = job.seen_launcher
    if launcher is None or launcher.slot not in job.attempt.unreleased:
        return None
    end = exit_of(job, launcher)
    if end is None and not ended(launcher):
        return None
    if disruption := _disruption(job, launcher):
        return _disrupted("the launcher", disruption)
    if launcher.deleting:
        return Verdict(False, "LauncherLost", "the launcher was deleted before it ended")
    if end is None:
        # The kubelet reported no exit of a container: the pod was evicted, or lost with its node.
        why = text.with_words(f"the launcher failed: {launcher.reason or 'Failed'}", launcher.message)
        return Verdict(False, _reason(job, launcher.reason), why)
    assert job.spec is not None
    policy = job.spec.role(LAUNCHER).restart_policy
    permanent = policy == "ExitCode" and exit_codes.final(job.spec, end.code, end.reason)
    reason = end.reason if end.reason == exit_codes.OUT_OF_MEMORY else _reason(job, launcher.reason)
    message = f"the launcher exited with {end.code} ({end.reason or 'Error'})"
    return Verdict(False, reason, text.with_last_words(message, end.message), permanent)


def of_lost_launcher(job: Job) -> Verdict | None:
    """The launcher vanished before its end was seen."""
    if not job.attempt.launcher_lost:
        return None
    launcher = job.seen_launcher
    if launcher is not None and (disruption := _disruption(job, launcher)):
        return _disrupted("the launcher", disruption)
    return Verdict(False, "LauncherLost", "the launcher vanished before its end was seen")


def of_leader(job: Job, spec: JobSpec) -> Verdict | None:
    """In a job without a launcher: a pod of the leader role failed, and the kind restarts the whole job for it."""
    handling = spec.handling
    lost = {slot: lost for slot, lost in job.attempt.vacancies.items() if slot.role == handling.leader}
    lost = {slot: vacancy for slot, vacancy in lost.items() if not vacancy.succeeded}
    if handling.restarts == "Pod" or not lost:
        return None
    first = min(lost)
    vacancy = lost[first]
    if vacancy.disrupted:
        return _disrupted(job.pod_name(first), vacancy.reason, first)
    final = not vacancy.blameless and exit_codes.final(spec, vacancy.code, vacancy.reason)
    return _of_loss(job, first, vacancy, permanent=spec.policy(handling.leader) == "ExitCode" and final)


def of_needed_pod(job: Job, spec: JobSpec) -> Verdict | None:
    """A pod that the others need ended or vanished, and is not replaced."""
    replaced = replacement.replaceable(job)
    # The open request decides about the workers that it adds or removes.
    others = job.scaling.arriving | job.outgoing
    for slot, vacancy in sorted(job.attempt.vacancies.items()):
        if vacancy.succeeded or slot in replaced or slot in others:
            continue
        if slot.role in spec.handling.spares or not spec.has(slot.role):
            continue
        if replacement.allowed(spec, slot, vacancy):
            due = sum(not known.blameless for known in replaced.values())
            if job.attempt.replaced + due < spec.backoff_limit:
                # The job has its full size without this pod.
                continue
            loss, limit = f"{job.pod_name(slot)} {vacancy.how}", spec.backoff_limit
            message = reasons.told(reasons.ENDS, "BackoffLimitExceeded", loss=loss, limit=limit)
            message = text.with_last_words(message, vacancy.message)
            return Verdict(False, "BackoffLimitExceeded", message, permanent=True, slot=slot)
        return _of_loss(job, slot, vacancy, permanent=True)
    return None


def of_refusal(job: Job) -> Verdict | None:
    """Before the job is under way: the API server refused an object that it needs for good."""
    if job.under_way:
        return None
    for effect in _NEEDED_TO_START:
        refusal = job.refusals.get(effect)
        if refusal is not None and refusal.permanent:
            where = f" ({refusal.field})" if refusal.field and not refusal.message else ""
            message = text.with_words(f"{effect} was refused for good{where}", refusal.message)
            if refusal.reason == reasons.UNKNOWN_FIELD:
                message = refusal.sentence
            return Verdict(False, refusal.reason, message, permanent=True)
    return None


def of_start(job: Job, spec: JobSpec) -> Verdict | None:
    """Before the launcher is created, or before any worker ran: too few workers are left."""
    minimum = job.scaling.size if spec.handling.whole else needed_workers(job)
    lost = [slot for slot in job.attempt.spent if slot.role == WORKER]
    if not lost or len(job.attempt.workers) >= minimum or replacement.replaceable(job):
        return None
    vacancies = job.attempt.vacancies
    failed = [slot for slot in lost if slot in vacancies and not vacancies[slot].succeeded]
    begin = "the launcher was made" if spec.has_launcher else "the job ran"
    if not failed:
        return Verdict(False, "WorkerExited", reasons.told(reasons.ENDS, "WorkerExited", begin=begin))
    newest = max(failed, key=lambda slot: (vacancies[slot].at.sequence, slot))
    end = vacancies[newest]
    how = f" with {end.code}" if end.code is not None else ""
    message = text.with_last_words(f"{job.pod_name(newest)} ended{how} before {begin}", end.message)
    return Verdict(False, _reason(job, end.reason), message)


def _of_loss(job: Job, slot: Slot, vacancy: Vacancy, *, permanent: bool) -> Verdict:
    reason = vacancy.reason if vacancy.reason == exit_codes.OUT_OF_MEMORY else _reason(job, "")
    message = text.with_last_words(f"{job.pod_name(slot)} {vacancy.how}", vacancy.message)
    return Verdict(False, reason, message, permanent, slot=slot)


def _disruption(job: Job, pod: PodView) -> str:
    """Why the pod was disrupted, by its `DisruptionTarget` condition or the notice of its node; empty when not."""
    return pod.disruption or job.disrupted.get(pod.uid, "")


def _disrupted(pod: str, why: str, slot: Slot | None = None) -> Verdict:
    told = reasons.told(reasons.ENDS, reasons.DISRUPTED, pod=pod, why=why)
    return Verdict(False, reasons.DISRUPTED, told, disrupted=True, slot=slot)


def _reason(job: Job, pod_reason: str) -> str:
    if pod_reason == "Evicted":
        return f"{job.kind}Evicted"
    return pod_reason or f"{job.kind}Failed"
