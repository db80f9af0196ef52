"""The parts of a status that several kinds have.  Pure."""

import msgspec

from shared.frameworks.schemas import Document
from shared.job import text
from shared.job.attempt import Tally
from shared.job.conditions import Condition
from shared.job.policies import replacement
from shared.job.spec import PASSING
from shared.job.state import Job
from shared.job.views import occupies


def condition(known: Condition) -> Document:
    """One condition in Kubernetes' shape."""
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
    tally, slots = job.attempt.tallies.get(role, Tally()), job.attempt.slots
    pods = [pod for pod in job.pods.views.values() if pod.role == role]
    if job.status.phase == "Suspending":
        active = sum(map(occupies, pods))
    else:
        active = sum(pod.phase == "Running" and not pod.deleting and pod.slot in slots for pod in pods)
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
