"""The summary of a job, as in its own status: phase, pods, restarts.  Pure."""

import msgspec

from shared.errors import Refused
from shared.frameworks.kinds import Kinds
from shared.frameworks.schemas import Document
from shared.frameworks.statuses import before_admission
from shared.job.naming import Slot
from shared.job.policies import replacement
from shared.job.spec import WORKER
from shared.job.state import Job
from shared.job.views import alive


class Summary(msgspec.Struct, frozen=True):
    """The fields of a job in `muster get` and in the first line of `muster why`."""

    phase: str
    """The phase in the status, which some kinds show as Restarting while pods are replaced; Pending or Refused before
    the first, and empty for a job without problems."""
    running: int
    """Pods."""
    ready: int
    """Pods."""
    wanted: int
    """The wanted pods: those that exist or start, those to be replaced after a back-off, and the workers of an elastic
    job that were lost for good."""
    restarts: int
    """The restarts in the status; without such a field, the new attempts and the pods replaced in this one."""
    status: Document
    """The status without the head; empty for an unknown kind."""

    @property
    def message(self) -> str:
        """The message of the condition in the status that has the phase's name; empty without one."""
        found = (known for known in self.status.get("conditions") or () if known.get("type") == self.phase)
        return next((str(known.get("message") or "") for known in found), "")


def summary(job: Job, kinds: Kinds) -> Summary:
    """The summary of a job after the last folded event."""
    status = _status(job, kinds)
    framework = kinds.find(job.api_version, job.kind)
    phase = framework.phase(status) if framework is not None else ""
    there = [pod for pod in job.pods.values() if alive(pod) and pod.slot in job.attempt.slots]
    return Summary(
        phase=phase or job.phase or before_admission(job),
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
        # A plug-in's framework failed; the fields from the log are shown all the same.
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
    # An elastic job goes on without a worker that is not replaced; its size still includes the worker.
    lost = job.scaling.size - sum(slot.role == WORKER for slot in slots) if job.spec.handling.elastic else 0
    return len(slots) + max(lost, 0)
