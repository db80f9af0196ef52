"""The parts of a status that several kinds have, and the whole one of the training operator's kinds.  Pure.

That has six conditions; the newest true one is the last, which the column State shows.  A reason is the kind's own
(`TFJobFailed`); the message has the reason in the log.
"""

import msgspec

from shared.frameworks.replicated import Replicated
from shared.frameworks.schemas import Document
from shared.job import reasons, text, waiting
from shared.job.attempt import Tally
from shared.job.conditions import Condition
from shared.job.events.event import At
from shared.job.policies import replacement
from shared.job.spec import PASSING, waits_for_turn
from shared.job.state import Job, running_pods
from shared.job.views import occupies


def condition(known: Condition) -> Document:
    return {
        "type": known.type,
        "status": "True" if known.status else "False",
        "reason": known.reason,
        "message": known.message,
        "lastUpdateTime": whole_seconds(known.updated.time),
        "lastTransitionTime": whole_seconds(known.since.time),
    }


def before_admission(job: Job) -> str:
    """The word for a job that is not admitted: Pending if it begins by itself, Refused if its spec has to be corrected.

    It is no phase of the job, and empty once the job has one.
    """
    if job.status.phase or not job.resource.problems:
        return ""
    return "Pending" if any(problem.reason in PASSING for problem in job.resource.problems) else "Refused"


def newest_last(found: list[Condition]) -> list[Condition]:
    """The conditions with the newest true one last, which a column of `kubectl get` shows."""
    # A job that was taken over has several conditions of one event: the last one.
    true = [known for known in reversed(found) if known.status]
    newest = max(true, key=lambda known: known.since.sequence, default=None)
    return [known for known in found if known is not newest] + ([newest] if newest else [])


def counts(job: Job, role: str) -> Document:
    """The numbers of a role's running and ended pods in this attempt.

    While a job is being suspended, every pod that has not ended counts as active: a queue gives its quota back by that.
    """
    tally = job.attempt.tallies.get(role, Tally())
    if job.status.phase == "Suspending":
        active = sum(occupies(pod) for pod in job.pods.views.values() if pod.role == role)
    else:
        active = running_pods(job, role)
    return {"active": active, "succeeded": tally.succeeded, "failed": tally.failed}


def whole_seconds(time: str) -> str | None:
    """Kubernetes' `metav1.Time` counts whole seconds; events count milliseconds."""
    return f"{time[:19]}Z" if time else None


def trainer_status(job: Job) -> Document | None:
    """What the training reported last, in the shape of Kubeflow Trainer's; None without a report."""
    known, at = job.training.reported, job.training.at
    if known is None or at is None:
        return None
    steps = {"current_step": known.step, "total_steps": known.total}
    said = [(name, str(value)) for name, value in steps.items() if value is not None]
    return {
        "progressPercentage": known.percentage,
        "estimatedRemainingSeconds": known.remaining,
        "metrics": [{"name": name, "value": value} for name, value in (*said, *known.metrics)],
        "lastUpdatedTime": whole_seconds(at.time),
    }


def with_losses(job: Job, known: Condition) -> Condition:
    """The condition Running with the workers that were lost and are not replaced."""
    if known.type != "Running" or not known.status or not (unreplaced := replacement.unreplaced(job)):
        return known
    lost = [
        f"{job.pod_name(slot)} {job.attempt.vacancies[slot].how} and is not replaced ({why})"
        for slot, why in unreplaced.items()
    ]
    more = f", and {len(lost) - 1} more" if lost[1:] else ""
    newest = job.attempt.vacancies[next(iter(unreplaced))]
    message = text.with_last_words(lost[0] + more, newest.message)
    message = text.ends("; ".join(filter(None, (message, known.message))))
    return msgspec.structs.replace(known, message=message, updated=newest.at)


JOB_NAME = "training.kubeflow.org/job-name"
OPERATOR_NAME = "training.kubeflow.org/operator-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"

TYPES = ("Created", "Running", "Restarting", "Suspended", "Succeeded", "Failed")
"""Upstream's; `Suspending` and `Scaling` are Muster's, and shown while they are true."""

_SENTENCES = {
    "Created": "is created",
    "Running": "runs",
    "Restarting": "begins again",
    "Suspending": "is being suspended: its pods are deleted",
    "Suspended": "is suspended",
    "Succeeded": "ended well",
    "Failed": "failed",
}

replace = msgspec.structs.replace


def job_status(framework: Replicated, job: Job) -> Document:
    return {
        "conditions": [condition(known) for known in conditions(job)],
        "replicaStatuses": replica_statuses(framework, job),
        "startTime": whole_seconds(job.status.active.time if job.status.active else ""),
        "completionTime": whole_seconds(job.status.completion_time),
        "observedGeneration": job.resource.generation,
        "trainerStatus": trainer_status(job),
    }


def replica_statuses(framework: Replicated, job: Job) -> Document:
    """The numbers of running and ended pods, by type as upstream spells it."""
    roles = {role.name for role in job.spec.roles} if job.spec else set()
    return {
        kind.name: _as_pipelines_read(job, kind.role) | {"selector": _selector(framework, job, kind.role)}
        for kind in framework.replica_types
        if kind.role in roles
    }


def _as_pipelines_read(job: Job, role: str) -> Document:
    """The numbers with which Argo and others judge a job: a pod that ended and begins again is none that ended, and a
    pod that runs when the job succeeds has succeeded."""
    if (final := job.status.final.get(role)) is not None:
        return {"active": 0, "succeeded": final.succeeded, "failed": final.failed}
    end = replacement.outcome(job, role)
    return counts(job, role) | {"succeeded": end.succeeded, "failed": end.failed}


def conditions(job: Job) -> list[Condition]:
    """Upstream's conditions in the order in which they came, the newest true one last."""
    if not job.status.phase:
        created = [known for known in job.status.conditions if known.type == "Created"]
        if not waits_for_turn(job.resource.problems):
            return [_invalid(job, known) for known in created]
        return [*created, *(replace(known, type="Pending", status=True) for known in created)]
    again = _replacing(job)
    attempts = [known for known in job.status.conditions if known.type == "Restarting"]
    if again is not None and any(
        known.updated.sequence > again.updated.sequence or (known.status and not again.status) for known in attempts
    ):
        # The attempt began to run after the loss, or starts.
        again = None
    shown = job.status.conditions if again is not None and again.status else waiting.conditions(job)
    found = [_in_their_words(job, with_losses(job, known)) for known in shown if _shown(known)]
    if again is not None:
        found = [known for known in found if known.type != again.type]
        found.append(again)
    # A job that is scaled runs: its State stays Running.
    scaling = [known for known in job.status.conditions if known.type == "Scaling" and known.status]
    return [*scaling, *newest_last(found)]


def _shown(known: Condition) -> bool:
    return known.type in TYPES or (known.type == "Suspending" and known.status)


def _invalid(job: Job, known: Condition) -> Condition:
    """An invalid job, which upstream shows as failed until its spec is corrected."""
    message = f"{known.reason}: {known.message}"
    return replace(known, type="Failed", status=True, reason=f"{job.resource.kind}FailedValidation", message=message)


def _in_their_words(job: Job, known: Condition) -> Condition:
    if not known.status:
        return known
    reason = f"{job.resource.kind}{known.type}"
    message = known.message or f"{job.resource.kind} {job.key} {_SENTENCES[known.type]}"
    if known.reason not in (reason, f"{job.resource.kind}Resumed"):
        message = f"{known.reason}: {known.message}" if known.message else known.reason
    if known.type == "Created" and job.spec is not None and job.spec.ignored:
        # The Event about them is gone after an hour.
        message = text.first(f"{message}; {reasons.without_effect(job.spec.ignored)}")
    return replace(known, reason=reason, message=message)


def _replacing(job: Job) -> Condition | None:
    """The condition of replacements in a running job: true from a loss until the replacement runs."""
    goes_on, wait = job.status.phase in ("Running", "Scaling"), waiting.told(job)
    if goes_on and (lost := replacement.replaceable(job)):
        last = max(lost, key=lambda slot: lost[slot].at.sequence)
        return _restarting(job, lost[last].at, status=True, message=wait.sentence if wait is not None else "")
    filled = {slot: refill.at for slot, refill in job.attempt.refilled.items()}
    if not filled or job.status.phase == "Created":
        # Pods that never ran make no job run again.
        return None
    running = {pod.slot for pod in job.pods.views.values() if pod.phase != "Pending"}
    starting = {slot: at for slot, at in filled.items() if goes_on and slot in job.attempt.slots - running}
    places = starting or filled
    last = max(places, key=lambda slot: places[slot].sequence)
    message = (wait.sentence if wait is not None else f"{job.pod_name(last)} starts") if starting else ""
    return _restarting(job, places[last], status=bool(starting), message=message)


def _restarting(job: Job, at: At, *, status: bool, message: str) -> Condition:
    word = "Restarting" if status else "Running"
    return Condition("Restarting", status, f"{job.resource.kind}{word}", message, at, at)


def _selector(framework: Replicated, job: Job, role: str) -> str:
    labels = {name: value for name, value in framework.labels(job.key).items() if name in (JOB_NAME, OPERATOR_NAME)}
    return ",".join(f"{name}={value}" for name, value in (labels | {REPLICA_TYPE: role}).items())
