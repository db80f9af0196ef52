"""When an attempt succeeded: the launcher exited with 0, or enough pods of the leader role did.  Pure."""

from shared.job.outcome import Verdict
from shared.job.reasons import BY_KUBELET
from shared.job.spec import JobSpec
from shared.job.state import Job, exit_of
from shared.job.views import Exit, PodView


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


def of_launcher(job: Job) -> Verdict | None:
    """The launcher succeeded, and was not released."""
    launcher = job.seen_launcher
    if launcher is None or launcher.slot not in job.attempt.unreleased:
        return None
    return _verdict(job) if succeeded(job, launcher) else None


def of_leader(job: Job, spec: JobSpec) -> Verdict | None:
    """In a job without a launcher: the pods of the leader role that have to succeed did."""
    return _verdict(job) if _leaders_succeeded(job, spec) else None


def _verdict(job: Job) -> Verdict:
    return Verdict(True, f"{job.kind}Succeeded")


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
            waiting = any(slot.role == leader for slot in attempt.slots)
            return bool(done) and len(done) == len(vacancies) and not waiting
