"""Works off the queue of scale requests: first seen, first served, one at a time; accepts or rejects each.  Pure.

An edit of the job's own number of workers waits in the same queue.
`scale_out.py` and `scale_in.py` carry an accepted request out.
"""

from services.scaler.core import scale_in, scale_out
from services.scaler.core.effects import OwnRequest
from services.scaler.core.policy import Policy
from shared.job import reasons
from shared.job.events.scaler import ScaleAccepted, ScaleCancelled, ScaleRejected, ScaleSucceeded
from shared.job.naming import Slot
from shared.job.request import Request
from shared.job.spec import OWNED_BY_ANOTHER, ScaleSpec
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timing import SCHEDULING_TIMEOUT_SECONDS
from shared.job.views import Member, spans


def next_steps(job: Job, policy: Policy) -> list[Step]:
    """Carry the open request out, or accept or reject the next one."""
    request = job.scaling.open_request
    if request is not None:
        if job.between_attempts or job.starting or not scale_in.of_this_attempt(job, request):
            return _cancelled(request, reasons.JOB_SUSPENDED if job.suspended else reasons.JOB_RESTARTED)
        return scale_out.next_steps(job, request) if request.kind == "ScaleOut" else scale_in.next_steps(job, request)
    if job.leaving:
        # A scale-in failed before its hosts files were seen: its workers are released before the next request's turn.
        return scale_in.late(job)
    waiting = first(job)
    if waiting is None or job.phase != "Running":
        return []
    return _taken_up(job, waiting, policy)


def after_the_end(job: Job) -> list[Step]:
    """After the job's end: cancel the open request, and reject the waiting ones in their order."""
    request = job.scaling.open_request
    reason = reasons.JOB_GONE if job.gone else reasons.JOB_FINISHED
    if request is not None:
        return _cancelled(request, reason)
    waiting = first(job)
    if waiting is None or job.gone:
        return []
    if _ownable(job, waiting):
        return _own(job, waiting)
    return [Record(ScaleRejected(request=waiting.uid, reason=reason))]


def _cancelled(request: Request, reason: str) -> list[Step]:
    released = () if request.published else spans(request.added)
    return [Record(ScaleCancelled(request=request.uid, reason=reason, released=released))]


def first(job: Job) -> Request | None:
    """The first waiting request in the order of the log."""
    return next((request for request in job.scaling.requests.values() if request.phase == "Pending"), None)


def _taken_up(job: Job, request: Request, policy: Policy) -> list[Step]:
    if _ownable(job, request):
        return _own(job, request)
    if job.spec is not None and not job.spec.handling.elastic:
        return [Record(ScaleRejected(request=request.uid, reason="NotElastic"))]
    if request.resize is not None:
        return [Record(_of_edit(job, request, request.resize, policy))]
    if request.problems or request.spec is None:
        reason = request.problems[0].reason if request.problems else "Invalid"
        return [Record(ScaleRejected(request=request.uid, reason=reason))]
    answer = _accepted(job, request, request.spec, policy)
    if isinstance(answer, str):
        return [Record(ScaleRejected(request=request.uid, reason=answer))]
    return [Record(answer)]


def _ownable(job: Job, request: Request) -> bool:
    """True if the job does not own the request yet, and no other object does."""
    return request.owner != job.key.uid and all(problem.reason != OWNED_BY_ANOTHER for problem in request.problems)


def _own(job: Job, request: Request) -> list[Step]:
    refusal = job.refusals.get("OwnRequest")
    if refusal is not None and refusal.permanent:
        # A permanent refusal rejects the request, so that the next one gets its turn.
        return [Record(ScaleRejected(request=request.uid, reason=refusal.reason))]
    if not job.may_try("OwnRequest"):
        return []
    return [OwnRequest(request.kind, request.name, request.uid)]


def _accepted(job: Job, request: Request, spec: ScaleSpec, policy: Policy) -> ScaleAccepted | str:
    """The acceptance, or the reason against it."""
    assert job.spec is not None
    workers = job.spec.worker
    # Slots of workers that will be replaced count.
    size = len(scale_out.filled(job))
    if spec.kind == "ScaleOut":
        count = spec.count or 0
        if count < 1:
            return "NothingToAdd"
        if workers.max_replicas is not None and size + count > workers.max_replicas:
            return "AboveMaximum"
        new = scale_out.new_slots(job, count)
        return ScaleAccepted(request=request.uid, kind="ScaleOut", added=new, deadline=spec.timeout_seconds, drain=0)
    leaving = _named(job, spec.pod_names) if spec.pod_names else scale_in.victims(job, spec.count or 0)
    if leaving is None:
        return "NoSuchWorker"
    if not leaving:
        return "NothingToDelete"
    if size - max(len(leaving), spec.count or 0) < workers.min_replicas:
        return reasons.BELOW_MINIMUM
    return ScaleAccepted(
        request=request.uid,
        kind="ScaleIn",
        leaving=leaving,
        deadline=spec.timeout_seconds,
        drain=min(policy.drain_seconds, spec.timeout_seconds // 2),
    )


def _of_edit(job: Job, request: Request, size: int, policy: Policy) -> ScaleAccepted | ScaleRejected | ScaleSucceeded:
    """Accept or reject an edit of the job's own number of workers, by its size when the edit's turn comes."""
    assert job.spec is not None
    role, here = job.spec.worker, len(scale_in.removable(job))
    if role.max_replicas is not None and size > role.max_replicas:
        return ScaleRejected(request=request.uid, reason="AboveMaximum")
    if size < role.min_replicas:
        return ScaleRejected(request=request.uid, reason=reasons.BELOW_MINIMUM)
    # An edit has no timeout of its own, and new workers may have to wait for new nodes.
    deadline = job.spec.scheduling_timeout_seconds or SCHEDULING_TIMEOUT_SECONDS
    # The scheduler replaces lost workers itself.
    missing = size - len(scale_out.filled(job))
    if missing > 0:
        new = scale_out.new_slots(job, missing)
        return ScaleAccepted(request=request.uid, kind="ScaleOut", added=new, deadline=deadline, drain=0)
    if here > size:
        leaving, drain = scale_in.victims(job, here - size), min(policy.drain_seconds, deadline // 2)
        return ScaleAccepted(request=request.uid, kind="ScaleIn", leaving=leaving, deadline=deadline, drain=drain)
    return ScaleSucceeded(request=request.uid, reason="AlreadyThatSize")


def _named(job: Job, names: tuple[str, ...]) -> tuple[Member, ...] | None:
    """The workers of these names, compared whole; None if one of them is no worker of this job."""
    pods = job.by_slot()
    workers: dict[str, Slot] = {job.worker_name(slot.index): slot for slot in job.attempt.workers}
    if any(name not in workers for name in names):
        return None
    return tuple(scale_in.member(workers[name], pods) for name in dict.fromkeys(names))
