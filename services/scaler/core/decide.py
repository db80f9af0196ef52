"""Decides the scaler's next steps for a job: its members, and the queue of its scale requests.  Pure.

First seen, first served, one at a time; an edit of the job's own number of workers waits in the same queue.
`admission.py` accepts or rejects a request; `scale.py` carries an accepted one out.
"""

from services.scaler.core import Policy, admission, membership, scale
from services.scaler.core.effects import OwnRequest
from shared.job import causes, reasons
from shared.job.attempt import Members
from shared.job.events.event import Cause
from shared.job.events.scaler import ScaleAccepted, ScaleCancelled, ScaleRejected, ScaleSucceeded, WorkersReleased
from shared.job.naming import NO_UID
from shared.job.policies import quota, replacement
from shared.job.scaling import Request
from shared.job.spec import OWNED_BY_ANOTHER, waits_for_turn
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.views import each, spans


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
    """After the job's end: cancel the open request, and reject the waiting ones in their order."""
    request = job.scaling.open_request
    reason = reasons.JOB_GONE if job.resource.gone else reasons.JOB_FINISHED
    because = Cause(job.resource.gone) if job.resource.gone else causes.of_interruption(job)
    if request is not None:
        return _cancelled(request, reason, because)
    waiting = job.scaling.next_request
    if waiting is None or job.resource.gone:
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
    answer, because = admission.answer(job, request, policy), causes.of_request(job, request)
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
    return any(not isinstance(admission.answer(job, known, policy), ScaleRejected) for known in fewer)


def _taken_up(job: Job, request: Request, policy: Policy) -> list[Step]:
    if _ownable(job, request):
        return _own(job, request)
    answer = admission.answer(job, request, policy)
    if isinstance(answer, ScaleAccepted) and not _has_quota(job, answer):
        # The scheduler asks Kueue for it.
        return []
    admitted = Cause(job.objects.queued if isinstance(answer, ScaleAccepted) and answer.added else 0)
    return [Record(answer, causes.newest(causes.of_request(job, request), admitted))]


def _has_quota(job: Job, answer: ScaleAccepted) -> bool:
    """True if a job in a queue of Kueue has quota for the workers that the request adds."""
    added = each(answer.added)
    return not added or quota.allows(job, len(replacement.filled(job)) + len(added))


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
    if job.deleting:
        return []
    if job.over:
        return after_the_end(job)
    steps = [*membership.next_steps(job, policy), *membership.disrupted_released(job), *_of_queue(job, policy)]
    return [*steps, *scale.size_written(job)]
