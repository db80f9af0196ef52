"""The parts of a status that several kinds have.  Pure."""

from shared.frameworks.definition import Document
from shared.job.conditions import Condition
from shared.job.losses import Tally
from shared.job.state import Job
from shared.job.views import alive


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


def counts(job: Job, role: str) -> Document:
    """The numbers of a role's running and ended pods in this attempt."""
    tally = job.attempt.tallies.get(role, Tally())
    running = sum(
        1
        for pod in job.pods.values()
        if pod.role == role and pod.phase == "Running" and alive(pod) and pod.slot in job.attempt.slots
    )
    return {"active": running, "succeeded": tally.succeeded, "failed": tally.failed}


def whole_seconds(time: str) -> str | None:
    """Kubernetes' `metav1.Time` counts whole seconds; events count milliseconds."""
    return f"{time[:19]}Z" if time else None
