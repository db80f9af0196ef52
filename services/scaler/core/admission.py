"""Accepts or rejects a scale request, or an edit of the job's own number of workers, when its turn comes.  Pure.

`decide.py` says whose turn it is; `scale.py` carries an accepted request out.
The status of a rejected request has the phase ScaleFailed and the reason.
"""

from collections.abc import Iterable

from services.scaler.core import Policy, scale
from shared.job import reasons
from shared.job.events.scaler import ScaleAccepted, ScaleRejected, ScaleSucceeded
from shared.job.naming import Slot
from shared.job.policies import replacement
from shared.job.scaling import Request
from shared.job.spec import RoleSpec, ScaleSpec
from shared.job.state import Job, least_workers
from shared.job.text import counted, of_range_words, range_words
from shared.job.views import ranges


def answer(job: Job, request: Request, policy: Policy) -> ScaleAccepted | ScaleRejected | ScaleSucceeded:
    """The decision about a request that the job owns; an edit that asks for the present size succeeds at once."""
    if job.spec is not None and not job.spec.handling.elastic:
        return _rejected(request, "NotElastic")
    if request.resize is not None:
        return _of_edit(job, request, request.resize, policy)
    if request.problems or request.spec is None:
        return _rejected(request, request.problems[0].reason if request.problems else "Invalid")
    if request.spec.script and not policy.commands:
        return _rejected(request, reasons.EXEC_OFF)
    return _of_request(job, request, request.spec, policy)


def _rejected(request: Request, reason: str, **values: object) -> ScaleRejected:
    """The rejection, with the reason's sentence if there are values for it."""
    message = reasons.told(reasons.REQUESTS, reason, **values) if values else ""
    return ScaleRejected(request=request.uid, reason=reason, message=message)


def _above_maximum(request: Request, role: RoleSpec, workers: int) -> ScaleRejected | None:
    if role.max_replicas is None or workers <= role.max_replicas:
        return None
    return _rejected(request, "AboveMaximum", workers=counted(workers, "worker"), maximum=role.max_replicas)


def _below_minimum(request: Request, job: Job, workers: int) -> ScaleRejected | None:
    minimum = least_workers(job)
    if workers >= minimum:
        return None
    left = counted(max(workers, 0), "worker")
    return _rejected(request, reasons.BELOW_MINIMUM, workers=left, minimum=minimum)


def _of_request(job: Job, request: Request, spec: ScaleSpec, policy: Policy) -> ScaleAccepted | ScaleRejected:
    assert job.spec is not None
    # A lost worker that will be replaced is part of the size.
    size = len(replacement.filled(job))
    if spec.kind == "ScaleOut":
        count = spec.count or 0
        if count < 1:
            return _rejected(request, "NothingToAdd")
        if rejected := _above_maximum(request, job.spec.worker, size + count):
            return rejected
        new = scale.new_slots(job, count)
        return ScaleAccepted(request=request.uid, kind="ScaleOut", added=new, deadline=spec.timeout_seconds, drain=0)
    named = of_range_words(spec.workers)
    slots = [job.attempt.worker_slot(index) for index in named]
    if rejected := _wrong_name(job, request, slots, spec.stranger):
        return rejected
    leaving = scale.victims(job, spec.count or 0) if not named else scale.members(job, named)
    if not leaving:
        return _rejected(request, "NothingToDelete")
    staying = size - max(len(leaving), spec.count or 0)
    if job.elasticity is not None:
        staying = min(staying, len(job.listed_workers - [member.index for member in leaving]))
    if rejected := _below_minimum(request, job, staying):
        return rejected
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
    role = job.spec.worker
    if rejected := _above_maximum(request, role, size) or _below_minimum(request, job, size):
        return rejected
    # An edit has no timeout of its own, and new workers may have to wait for new nodes.
    deadline = job.spec.seconds_below_minimum
    # The scheduler replaces lost workers itself.
    missing = size - len(replacement.filled(job))
    if missing > 0:
        new = scale.new_slots(job, missing)
        return ScaleAccepted(request=request.uid, kind="ScaleOut", added=new, deadline=deadline, drain=0)
    here = len(scale.removable(job))
    if here > size:
        leaving, drain = scale.victims(job, here - size), min(policy.drain_seconds, deadline // 2)
        return ScaleAccepted(request=request.uid, kind="ScaleIn", leaving=leaving, deadline=deadline, drain=drain)
    return ScaleSucceeded(request=request.uid, reason="AlreadyThatSize")


def _wrong_name(job: Job, request: Request, named: Iterable[Slot], stranger: str) -> ScaleRejected | None:
    """The rejection for the first name that no worker of this job has, or whose worker is being replaced.

    A worker that is being replaced ahead leaves anyway: without it the job has as many workers as with it.
    """
    workers, ahead = job.attempt.workers, job.attempt.replaced_ahead
    wrong = next((slot for slot in named if slot not in workers or slot in ahead), None)
    if wrong is None and not stranger:
        return None
    reason = "BeingReplaced" if wrong is not None and wrong in workers else "NoSuchWorker"
    name = job.pod_name(wrong) if wrong is not None else stranger
    present = range_words(ranges([slot.index for slot in workers - ahead]))
    return _rejected(request, reason, pod=name, workers=present)
