"""Decides the scaler's next steps for a job: its members, and the queue of its scale requests.  Pure.

First seen, first served, one at a time; an edit of the job's own number of workers waits in the same queue.
`scale.py` carries an accepted request out; the status of a rejected one has the phase ScaleFailed and the reason.
"""

from collections.abc import Iterable

from services.scaler.core import Policy, membership, scale
from services.scaler.core.effects import OwnRequest
from shared.job import causes, reasons
from shared.job.attempt import Members
from shared.job.events.event import Cause
from shared.job.events.scaler import ScaleAccepted, ScaleCancelled, ScaleRejected, ScaleSucceeded, WorkersReleased
from shared.job.naming import NO_UID, Slot
from shared.job.policies import quota, replacement
from shared.job.scaling import Request
from shared.job.spec import OWNED_BY_ANOTHER, RoleSpec, ScaleSpec, waits_for_turn
from shared.job.state import Job, least_workers
from shared.job.steps import Record, Step
from shared.job.text import counted, of_range_words, range_words
from shared.job.views import each, ranges, spans


def answer_to(job: Job, request: Request, policy: Policy) -> ScaleAccepted | ScaleRejected | ScaleSucceeded:
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


def _of_queue(job: Job, policy: Policy) -> list[Step]:
    """Carry the open request out, or accept or reject the next one."""
    request = job.scaling.open_request
    if request is not None:
        if job.between_attempts or job.starting or not scale.of_this_attempt(job, request):
            reason = reasons.JOB_SUSPENDED if job.suspended else reasons.JOB_RESTARTED
            return _cancelled(request, reason, causes.of_interruption(job))
        if _overtaken(job, request, policy):
            newer = (Cause(known.order) for known in job.scaling.requests.values() if known.phase == "Pending")
            return _cancelled(request, reasons.OVERTAKEN, causes.newest(newer))
        return scale.scale_out(job, request) if request.kind == "ScaleOut" else scale.scale_in(job, request)
    if job.leaving:
        # A scale-in failed before its hosts files were seen: its workers are released before the next request's turn.
        return scale.late_release(job)
    waiting = job.scaling.next_request
    if waiting is not None and job.starting:
        return _before_the_start(job, waiting, policy)
    if waiting is None or job.status.phase != "Running" or waits_for_turn(waiting.problems) or scale.size_awaited(job):
        return []
    return _taken_up(job, waiting, policy)


def after_the_end(job: Job) -> list[Step]:
    """After the job's end: cancel the open request, and reject the waiting ones in their order.

    Those of a job that is deleted wait: a job that comes under its name may take them.
    """
    request, deletion = job.scaling.open_request, job.resource.deletion
    if job.resource.gone:
        reason, because = reasons.JOB_GONE, Cause(job.resource.gone)
    elif deletion is not None:
        reason, because = reasons.JOB_DELETING, Cause(deletion.sequence)
    else:
        reason, because = reasons.JOB_FINISHED, causes.of_interruption(job)
    if request is not None:
        return _cancelled(request, reason, because)
    waiting = job.scaling.next_request
    if waiting is None or job.resource.gone or deletion is not None:
        return []
    if _ownable(job, waiting):
        return _own(job, waiting)
    return [Record(ScaleRejected(request=waiting.uid, reason=reason), because)]


def _cancelled(request: Request, reason: str, because: Cause) -> list[Step]:
    released = () if request.published else spans(request.added)
    return [Record(ScaleCancelled(request=request.uid, reason=reason, released=released), because)]


def _before_the_start(job: Job, request: Request, policy: Policy) -> list[Step]:
    """Make a job smaller before its first hosts files: it may wait for room for workers that nothing asks for now.

    The size that a queue admitted is changed once the job runs.
    """
    if request.resize is None or isinstance(job.membership, Members) or job.attempt.launched or job.attempt.queued:
        return []
    answer, because = answer_to(job, request, policy), causes.of_request(job, request)
    if isinstance(answer, ScaleAccepted) and answer.leaving:
        leaving = spans(job.attempt.worker_slot(member.index) for member in answer.leaving)
        return [Record(WorkersReleased(request=request.uid, slots=leaving, reason="BeforeTheStart"), because)]
    return [Record(answer, because)] if isinstance(answer, ScaleSucceeded) else []


def _overtaken(job: Job, request: Request, policy: Policy) -> bool:
    """True for an edit that adds workers while a newer one may have fewer: its workers may wait for room for long."""
    if request.resize is None or request.published or request.kind != "ScaleOut":
        return False
    newer = [known for known in job.scaling.requests.values() if known.phase == "Pending"]
    fewer = [known for known in newer if known.resize is not None and known.resize < request.resize]
    return any(not isinstance(answer_to(job, known, policy), ScaleRejected) for known in fewer)


def _taken_up(job: Job, request: Request, policy: Policy) -> list[Step]:
    if _ownable(job, request):
        return _own(job, request)
    answer = answer_to(job, request, policy)
    if isinstance(answer, ScaleAccepted) and not _has_quota(job, answer):
        # The scheduler asks Kueue for it.
        return []
    admitted = Cause(job.objects.queued if isinstance(answer, ScaleAccepted) and answer.added else 0)
    return [Record(answer, causes.newest(causes.of_request(job, request), admitted))]


def _has_quota(job: Job, answer: ScaleAccepted) -> bool:
    """True if a job in a queue of Kueue has quota for the workers that the request adds, or by capacity for one."""
    added, has = each(answer.added), len(replacement.filled(job))
    more = len(added) if job.elasticity is None else min(len(added), 1)
    return not added or quota.allows(job, has + more)


def _ownable(job: Job, request: Request) -> bool:
    """True if the job does not own the request yet, and no other object does."""
    return request.owner != job.key.uid and all(problem.reason != OWNED_BY_ANOTHER for problem in request.problems)


def _own(job: Job, request: Request) -> list[Step]:
    refusal = job.efforts.refusals.get("OwnRequest")
    if refusal is not None and refusal.permanent:
        # A permanent refusal rejects the request, so that the next one gets its turn.
        rejected = ScaleRejected(request=request.uid, reason=refusal.reason)
        return [Record(rejected, Cause(refusal.at.sequence))]
    if not job.may_try("OwnRequest"):
        return []
    return [OwnRequest(request.kind, request.name, request.uid)]


def decide(job: Job, policy: Policy) -> list[Step]:
    """Hosts files to publish and write; requests to own, accept, carry out and end."""
    if job.halted or job.key.uid == NO_UID:
        return []
    if job.resource.gone:
        return [*after_the_end(job), *membership.leftover(job)]
    if job.over or job.deleting:
        return after_the_end(job)
    steps = [*membership.next_steps(job, policy), *membership.disrupted_released(job), *_of_queue(job, policy)]
    return [*steps, *scale.size_written(job)]
