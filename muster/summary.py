"""A job in short, as its own status says it: phase, pods, restarts.  Pure."""

from enum import StrEnum

import msgspec

from shared.errors import Refused
from shared.frameworks.definition import Document
from shared.frameworks.kinds import Kinds
from shared.job.naming import Slot
from shared.job.policies import replacement
from shared.job.spec import WORKER
from shared.job.state import Job
from shared.job.views import alive


class Output(StrEnum):
    """How jobs are shown."""

    table = "table"
    wide = "wide"
    json = "json"
    yaml = "yaml"


class Summary(msgspec.Struct, frozen=True):
    """What `muster get` and the first line of `muster why` say of a job."""

    phase: str
    """As the status shows it: a job whose pods are replaced is Restarting in some kinds.  Empty before the first."""
    running: int
    """Pods."""
    ready: int
    """Pods."""
    wanted: int
    """Pods: those that are there or on their way, those that are made again once their back-off is over, and the
    workers of an elastic job that were lost for good."""
    restarts: int
    """As the status counts them; where it does not, new attempts and pods that were made again in this one."""
    status: Document
    """Without the head; empty for a kind that is not known here."""


def summary(job: Job, kinds: Kinds) -> Summary:
    """A job as of the last event that was folded."""
    status = _status(job, kinds)
    framework = kinds.find(job.api_version, job.kind)
    phase = framework.phase(status) if framework is not None else ""
    there = [pod for pod in job.pods.values() if alive(pod) and pod.slot in job.attempt.slots]
    return Summary(
        phase=phase or job.phase,
        running=sum(pod.phase == "Running" for pod in there),
        ready=sum(pod.ready and pod.phase == "Running" for pod in there),
        wanted=_wanted(job),
        restarts=status.get("restartCount", job.restarts + job.attempt.replaced),
        status=status,
    )


def _status(job: Job, kinds: Kinds) -> Document:
    if not kinds.knows(job):
        return {}
    try:
        return {name: value for name, value in kinds.of(job).status(job).items() if value is not None}
    except Refused:
        # The framework of another package failed; what the log says is shown all the same.
        return {}


def _wanted(job: Job) -> int:
    if job.over or job.gone or job.suspended:
        return 0
    slots: set[Slot] = {*job.attempt.slots, *replacement.replaceable(job)}
    if job.spec is None or not job.phase:
        return len(slots)
    if not slots:
        workers = job.scaling.size or job.spec.worker.replicas
        return workers + sum(role.replicas for role in job.spec.roles if role.name != WORKER)
    # An elastic job goes on without a worker that nothing replaces, and that worker still counts in its size.
    lost = job.scaling.size - sum(slot.role == WORKER for slot in slots) if job.spec.handling.elastic else 0
    return len(slots) + max(lost, 0)
