"""Carries a scale-out out: new pods Ready, hosts files published and seen, then its script.  Pure.

`HostsPublished` is the point of no return: a failure before it releases all new workers, a failure after it none.
"""

from itertools import count as numbers
from itertools import filterfalse, islice

from services.scaler.core import disruption, membership, script, size
from shared.job import reasons
from shared.job.events.scaler import ScaleCancelled, ScaleFailed, ScaleSucceeded
from shared.job.membership import Unknown
from shared.job.policies import numbering, replacement
from shared.job.request import Request
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timers import SCALING_DEADLINE, passed
from shared.job.views import Slots, spans


def new_slots(job: Job, count: int) -> tuple[Slots, ...]:
    """Slots for `count` new workers.

    A kind that replaces pods under their own names uses the lowest free indices.
    """
    if job.spec is None or not job.spec.handling.in_place:
        return (numbering.new_workers(job, count),)
    free = islice(filterfalse(numbering.taken(job).__contains__, numbers()), count)
    return spans(job.attempt.worker_slot(index) for index in free)


def next_steps(job: Job, request: Request) -> list[Step]:
    """The next step of an accepted scale-out; none while it waits for pods or hosts files."""
    late = passed(job, request.waits_since, SCALING_DEADLINE)
    if request.published:
        if request.seen:
            return _seen(job, request, late=late)
        return [Record(ScaleFailed(request=request.uid, reason=reasons.HOSTS_NOT_WRITTEN))] if late else []
    if request.gone:
        return [
            Record(ScaleCancelled(request=request.uid, reason=reasons.REQUEST_DELETED, released=spans(request.added)))
        ]
    lost = request.added & job.attempt.spent - replacement.replaceable(job).keys()
    if lost or request.added & disruption.disrupted(job):
        return [Record(ScaleFailed(request=request.uid, reason=reasons.WORKER_FAILED, released=spans(request.added)))]
    pods = job.by_slot()
    if all(membership.ready(pods.get(slot)) for slot in request.added):
        members = membership.next_members(job)
        if not isinstance(members, Unknown):
            wanted = members | [slot.index for slot in request.added]
            return [Record(membership.publish(job, wanted, request.uid))]
    refusal = job.refusals.get("CreatePod")
    if refusal is not None and refusal.at.sequence < request.accepted:
        # The refused pod was not one of this request.
        refusal = None
    if late or (refusal is not None and refusal.permanent):
        # A permanent refusal does not end by waiting.
        reason = refusal.reason if refusal is not None else reasons.DEADLINE_EXCEEDED
        return [Record(ScaleFailed(request=request.uid, reason=reason, released=spans(request.added)))]
    return []


def _seen(job: Job, request: Request, *, late: bool) -> list[Step]:
    """The step after the launcher has seen the new hosts files: the job keeps its new size even if the script fails."""
    if request.gone and script.wanted(request):
        # The deleted request had the script.
        return [Record(ScaleCancelled(request=request.uid, reason=reasons.REQUEST_DELETED))]
    steps = script.next_steps(job, request)
    if steps is not None:
        return steps
    # The request succeeds only after the status service recorded its start.
    done = Record(ScaleSucceeded(request=request.uid, reason="ScalingOutSucceeded"))
    return [done] if job.phase == "Scaling" and (late or not size.is_awaited(job)) else []
