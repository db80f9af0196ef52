"""The verdict: whether the attempt is over, and how.  All services ask it.  Pure.

It applies the rules in their order, to the pods of this attempt whose slots were not released: the launcher or enough
pods of the leader role ended; a pod was lost that is not replaced; a limit (activeDeadlineSeconds,
schedulingTimeoutSeconds, minReplicas) passed.  backoffLimit of restarts is in `retries.py`, that of replacements in
`replacement.py`.

A disruption (an eviction, a drain, a node that went, a preemption) is no failure of the pod: the attempt is over, and
another one begins whatever the policies say.
"""

from shared.job import causes, reasons, text
from shared.job.attempt import Vacancy, Verdict
from shared.job.events.event import UNKNOWN, Cause
from shared.job.naming import Slot
from shared.job.policies import nodes, replacement, retries, stalls
from shared.job.reasons import BY_KUBELET
from shared.job.spec import LAUNCHER, WORKER, JobSpec
from shared.job.state import Job, exit_of, needed_workers, running_workers
from shared.job.timers import ACTIVE_DEADLINE, BELOW_MINIMUM, SCHEDULING, STALL, WINDING_DOWN, passed
from shared.job.views import Exit, PodView, ended
from shared.job.waiting import waiting


def succeeded(job: Job, pod: PodView) -> bool:
    """True if the pod's training container exited with 0 before its deletion; without a known exit its phase counts.

    A failed sidecar is not a failure of the pod.  A pod that Kubernetes ended did not succeed, although its container
    may exit with 0 when it is told to stop; a kubelet does not always write the phase Failed and a reason then.
    """
    return succeeded_with(exit_of(job, pod), pod)


def succeeded_with(end: Exit | None, pod: PodView) -> bool:
    """As `succeeded`, by the exit of the pod's training container."""
    if pod.deleting or pod.disruption == BY_KUBELET or (pod.phase == "Failed" and pod.reason):
        return False
    return end.code == 0 if end is not None else pod.phase == "Succeeded"


def _success_of_launcher(job: Job) -> Verdict | None:
    """The launcher succeeded, and was not released."""
    launcher = job.seen_launcher
    if launcher is None or launcher.slot not in job.attempt.unreleased:
        return None
    return _success(job, causes.of_launcher(job)) if succeeded(job, launcher) else None


def _success_of_leader(job: Job, spec: JobSpec) -> Verdict | None:
    """In a job without a launcher: the pods of the leader role that have to succeed did."""
    if not _leaders_succeeded(job, spec):
        return None
    first = spec.handling.succeeds == "First"
    done = [slot for slot, vacancy in job.attempt.vacancies.items() if vacancy.succeeded]
    leaders = [slot for slot in done if slot.role == spec.handling.leader and not (first and slot.index)]
    return _success(job, causes.newest(causes.of_pods(job, leaders or done)))


def _success(job: Job, because: Cause) -> Verdict:
    return Verdict(True, f"{job.resource.kind}Succeeded", because=because)


def _leaders_succeeded(job: Job, spec: JobSpec) -> bool:
    leader, attempt = spec.handling.leader, job.attempt
    vacancies = {slot: vacancy for slot, vacancy in attempt.vacancies.items() if slot.role == leader}
    done = [slot for slot, vacancy in vacancies.items() if vacancy.succeeded]
    if not any(slot.role == leader for slot in attempt.unreleased):
        # An edit named another leader role, whose pods come with the next attempt: this attempt ends with its last pod.
        every = attempt.vacancies.values()
        return bool(every) and all(vacancy.succeeded for vacancy in every) and not attempt.slots
    match spec.handling.succeeds:
        case "First":
            return any(slot.index == 0 for slot in done)
        case "Any":
            return bool(done)
        case "All":
            others = any(slot.role == leader for slot in attempt.slots)
            return bool(done) and len(done) == len(vacancies) and not others


_NEEDED_TO_START = ("CreatePod", "CreateService", "CreateSecret", "WriteHosts", "WriteWorkload")
"""Effects without which no job gets under way; a status that cannot be written ends no job."""


def _failure_of_launcher(job: Job) -> Verdict | None:
    """The launcher ended, and not with success, for which `_success_of_launcher` is asked first."""
    launcher = job.seen_launcher
    if launcher is None or launcher.slot not in job.attempt.unreleased:
        return None
    end = exit_of(job, launcher)
    if end is None and not ended(launcher):
        return None
    because = causes.of_launcher(job)
    if disruption := _disruption(job, launcher):
        return _disrupted("the launcher", disruption, because)
    if launcher.deleting:
        return Verdict(False, "LauncherLost", "the launcher was deleted before it ended", because=because)
    if end is None:
        # The kubelet reported no exit of a container: the pod was evicted, or lost with its node.
        why = text.with_words(f"the launcher failed: {launcher.reason or 'Failed'}", launcher.message)
        return Verdict(False, _reason(job, launcher.reason), why, because=because)
    assert job.spec is not None
    policy = job.spec.role(LAUNCHER).restart_policy
    permanent = policy == "ExitCode" and retries.is_final(job.spec, end.code, end.reason)
    reason = end.reason if end.reason == retries.OUT_OF_MEMORY else _reason(job, launcher.reason)
    message = f"the launcher exited with {end.code} ({end.reason or 'Error'})"
    return Verdict(False, reason, text.with_last_words(message, end.message), permanent, because=because)


def _of_lost_launcher(job: Job) -> Verdict | None:
    """The launcher vanished before its end was seen."""
    if not job.attempt.launcher_lost:
        return None
    launcher, because = job.seen_launcher, causes.of_launcher(job)
    if launcher is not None and (disruption := _disruption(job, launcher)):
        return _disrupted("the launcher", disruption, because)
    return Verdict(False, "LauncherLost", "the launcher vanished before its end was seen", because=because)


def _failure_of_leader(job: Job, spec: JobSpec) -> Verdict | None:
    """In a job without a launcher: a pod of the leader role failed, and the kind restarts the whole job for it."""
    handling = spec.handling
    lost = {slot: lost for slot, lost in job.attempt.vacancies.items() if slot.role == handling.leader}
    lost = {slot: vacancy for slot, vacancy in lost.items() if not vacancy.succeeded}
    if handling.restarts == "Pod" or not lost:
        return None
    first = min(lost)
    vacancy = lost[first]
    if vacancy.disrupted:
        return _disrupted(job.pod_name(first), vacancy.reason, Cause(vacancy.at.sequence, first))
    final = not vacancy.blameless and retries.is_final(spec, vacancy.code, vacancy.reason)
    return _of_loss(job, first, vacancy, permanent=spec.policy(handling.leader) == "ExitCode" and final)


def _of_needed_pod(job: Job, spec: JobSpec) -> Verdict | None:
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
            because = Cause(vacancy.at.sequence, slot)
            return Verdict(False, "BackoffLimitExceeded", message, permanent=True, because=because)
        return _of_loss(job, slot, vacancy, permanent=True)
    return None


def _of_refusal(job: Job) -> Verdict | None:
    """Before the job is under way: the API server refused an object that it needs for good."""
    if job.under_way:
        return None
    for effect in _NEEDED_TO_START:
        refusal = job.efforts.refusals.get(effect)
        if refusal is not None and refusal.permanent:
            where = f" ({refusal.field})" if refusal.field and not refusal.message else ""
            message = text.with_words(f"{effect} was refused for good{where}", refusal.message)
            if refusal.reason == reasons.UNKNOWN_FIELD:
                message = refusal.sentence
            return Verdict(False, refusal.reason, message, permanent=True, because=Cause(refusal.at.sequence))
    return None


def _of_start(job: Job, spec: JobSpec) -> Verdict | None:
    """Before the launcher is created, or before any worker ran: too few workers are left."""
    minimum = job.scaling.size if spec.handling.whole else needed_workers(job)
    lost = [slot for slot in job.attempt.spent if slot.role == WORKER]
    if not lost or len(job.attempt.workers) >= minimum or replacement.replaceable(job):
        return None
    vacancies = job.attempt.vacancies
    failed = [slot for slot in lost if slot in vacancies and not vacancies[slot].succeeded]
    begin = "the launcher was made" if spec.has_launcher else "the job ran"
    if not failed:
        because = causes.newest(causes.of_pods(job, lost))
        return Verdict(False, "WorkerExited", reasons.told(reasons.ENDS, "WorkerExited", begin=begin), because=because)
    newest = max(failed, key=lambda slot: (vacancies[slot].at.sequence, slot))
    end = vacancies[newest]
    how = f" with {end.code}" if end.code is not None else ""
    message = text.with_last_words(f"{job.pod_name(newest)} ended{how} before {begin}", end.message)
    return Verdict(False, _reason(job, end.reason), message, because=Cause(end.at.sequence, newest))


def _of_loss(job: Job, slot: Slot, vacancy: Vacancy, *, permanent: bool) -> Verdict:
    reason = vacancy.reason if vacancy.reason == retries.OUT_OF_MEMORY else _reason(job, "")
    message = text.with_last_words(f"{job.pod_name(slot)} {vacancy.how}", vacancy.message)
    return Verdict(False, reason, message, permanent, because=Cause(vacancy.at.sequence, slot))


def _disruption(job: Job, pod: PodView) -> str:
    """Why the pod was disrupted, by its `DisruptionTarget` condition or the notice of its node; empty when not."""
    return pod.disruption or job.pods.disrupted.get(pod.uid, "")


def _disrupted(pod: str, why: str, because: Cause) -> Verdict:
    told = reasons.told(reasons.ENDS, reasons.DISRUPTED, pod=pod, why=why)
    return Verdict(False, reasons.DISRUPTED, told, disrupted=True, because=because)


def _reason(job: Job, pod_reason: str) -> str:
    if pod_reason == "Evicted":
        return f"{job.resource.kind}Evicted"
    return pod_reason or f"{job.resource.kind}Failed"


def _of_active_deadline(job: Job) -> Verdict | None:
    """The job was active for activeDeadlineSeconds; attempts and the waits between them count, suspension does not."""
    because = (
        causes.timer(job, job.status.active.sequence, ACTIVE_DEADLINE) if job.status.active is not None else UNKNOWN
    )
    if job.spec is None or not because.sequence:
        return None
    seconds = job.spec.active_deadline_seconds
    if seconds is None:
        return None
    message = reasons.told(reasons.ENDS, reasons.DEADLINE_EXCEEDED, seconds=seconds)
    return Verdict(False, reasons.DEADLINE_EXCEEDED, message, permanent=True, because=because)


def _of_scheduling(job: Job) -> Verdict | None:
    """The attempt did not run within schedulingTimeoutSeconds of its first slots."""
    assigned = job.attempt.assigned
    seconds = job.spec.scheduling_timeout_seconds if job.spec else None
    if seconds is None or assigned is None or not job.starting or not passed(job, assigned.sequence, SCHEDULING):
        return None
    waits = waiting(job)
    why = waits.sentence if waits is not None and not waits.usual else ""
    message = reasons.told(reasons.ENDS, reasons.SCHEDULING_TIMEOUT, seconds=seconds) + (f"; {why}" if why else "")
    because = causes.timer(job, assigned.sequence, SCHEDULING)
    return Verdict(False, reasons.SCHEDULING_TIMEOUT, text.ends(message), permanent=True, because=because)


def _of_minimum(job: Job) -> Verdict | None:
    """Fewer than minReplicas workers ran for longer than schedulingTimeoutSeconds (600 when absent)."""
    if not passed(job, job.attempt.below_minimum, BELOW_MINIMUM):
        return None
    number = running_workers(job)
    running = f"{text.counted(number, 'worker')} {'runs' if number == 1 else 'run'}"
    told = reasons.told(reasons.ENDS, reasons.BELOW_MINIMUM, running=running, minimum=needed_workers(job))
    because = causes.timer(job, job.attempt.below_minimum, BELOW_MINIMUM)
    return Verdict(False, reasons.BELOW_MINIMUM, told, because=because)


def _of_stall(job: Job, spec: JobSpec) -> Verdict | None:
    """The training stands still, and the job asks for another attempt then."""
    if not spec.stall_restarts or not stalls.stalled(job) or job.training.stands is None:
        return None
    because = causes.timer(job, job.training.stands.sequence, STALL)
    return Verdict(False, reasons.STALLED, stalls.sentence(job), because=because)


WINDING_DOWN_SECONDS = 30
"""A server that serves for ever is deleted after that."""


def winds_down(job: Job) -> bool:
    """True while the clean-up waits for pods that run after their job succeeded: they have time to end by themselves.

    The scheduler of a parameter server ends when the workers say good-bye to it, some of them with work left: their
    logs and exits are results, too.
    """
    if (
        job.status.phase != "Succeeded"
        or job.status.ended is None
        or job.spec is None
        or not job.spec.handling.winds_down
    ):
        return False
    if job.spec.clean_pod_policy == "None" or not job.attempt.slots:
        return False
    return not passed(job, job.status.ended.sequence, WINDING_DOWN)


def verdict(job: Job) -> Verdict | None:
    """The end of the attempt, or None while it goes on."""
    if job.spec is None:
        return None
    over = None if job.between_attempts else _of_attempt(job, job.spec)
    return over or _of_active_deadline(job)


def _of_attempt(job: Job, spec: JobSpec) -> Verdict | None:
    return (
        _of_leader(job, spec)
        or _of_lost_launcher(job)
        or _of_scheduling(job)
        or nodes.never_placed(job)
        or (_of_needed_pod(job, spec) if spec.handling.strict else None)
        or _of_refusal(job)
        or (_of_minimum(job) if _runs(job, spec) else _of_start(job, spec))
        or _of_stall(job, spec)
    )


def _of_leader(job: Job, spec: JobSpec) -> Verdict | None:
    """The end of the launcher, or of the pods of the leader role."""
    if spec.has_launcher:
        return _success_of_launcher(job) or _failure_of_launcher(job)
    return _success_of_leader(job, spec) or _failure_of_leader(job, spec)


def _runs(job: Job, spec: JobSpec) -> bool:
    """True once minReplicas holds: the launcher's slot is assigned, or a job without a launcher runs."""
    return job.attempt.launched if spec.has_launcher else job.under_way
