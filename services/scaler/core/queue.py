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
from shared.job.text import counted, range_words
from shared.job.timing import SCHEDULING_TIMEOUT_SECONDS
from shared.job.views import Member, ranges, spans


def next_steps(job: Job, policy: Policy) -> list[Step]:
    """Carry the open request out, or accept or reject the next one."""
    request = job.scaling.open_request
    if request is not None:
        if job.between_attempts or job.starting or not scale_in.of_this_attempt(job, request):
            return _cancelled(request, "JobSuspended" if job.suspended else "JobRestarted")
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
    reason = "JobGone" if job.gone else "JobFinished"
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
    return [Record(_of_request(job, request, request.spec, policy))]


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


def _of_request(job: Job, request: Request, spec: ScaleSpec, policy: Policy) -> ScaleAccepted | ScaleRejected:
    """Accept or reject a ScaleOut or ScaleIn."""
    assert job.spec is not None
    workers = job.spec.worker
    # Slots of workers that will be replaced count.
    size = len(scale_out.filled(job))
    if spec.kind == "ScaleOut":
        count = spec.count or 0
        if count < 1:
            return ScaleRejected(request=request.uid, reason="NothingToAdd")
        if workers.max_replicas is not None and size + count > workers.max_replicas:
            return _above(request, size + count, workers.max_replicas)
        new = scale_out.new_slots(job, count)
        return ScaleAccepted(request=request.uid, kind="ScaleOut", added=new, deadline=spec.timeout_seconds, drain=0)
    if strangers := _strangers(job, spec.pod_names):
        present = range_words(ranges([slot.index for slot in job.attempt.workers]))
        message = reasons.told(reasons.REQUESTS, "NoSuchWorker", pod=strangers[0], workers=present)
        return ScaleRejected(request=request.uid, reason="NoSuchWorker", message=message)
    leaving = _named(job, spec.pod_names) if spec.pod_names else scale_in.victims(job, spec.count or 0)
    if not leaving:
        return ScaleRejected(request=request.uid, reason="NothingToDelete")
    left = size - max(len(leaving), spec.count or 0)
    if left < workers.min_replicas:
        return _below(request, left, workers.min_replicas)
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
        return _above(request, size, role.max_replicas)
    if size < role.min_replicas:
        return _below(request, size, role.min_replicas)
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


def _above(request: Request, size: int, maximum: int) -> ScaleRejected:
    message = reasons.told(reasons.REQUESTS, "AboveMaximum", workers=counted(size, "worker"), maximum=maximum)
    return ScaleRejected(request=request.uid, reason="AboveMaximum", message=message)


def _below(request: Request, size: int, minimum: int) -> ScaleRejected:
    message = reasons.told(reasons.REQUESTS, "BelowMinimum", workers=counted(max(size, 0), "worker"), minimum=minimum)
    return ScaleRejected(request=request.uid, reason="BelowMinimum", message=message)


def _strangers(job: Job, names: tuple[str, ...]) -> list[str]:
    """Those of these names, compared whole, that no worker of this job has."""
    workers = {job.worker_name(slot.index) for slot in job.attempt.workers}
    return [name for name in names if name not in workers]


def _named(job: Job, names: tuple[str, ...]) -> tuple[Member, ...]:
    """The workers of these names."""
    pods = job.by_slot()
    workers: dict[str, Slot] = {job.worker_name(slot.index): slot for slot in job.attempt.workers}
    return tuple(scale_in.member(workers[name], pods) for name in dict.fromkeys(names))
