"""Carries a scale-in out: its script, then the leaving workers unlisted, drained, released and deleted.  Pure.

No worker is released before the launcher has seen hosts files without it, and none is deleted before its release.
Before `HostsPublished` a failure changes nothing; after it the leaving workers are released even so.
"""

from collections.abc import Mapping

from services.scaler.core import drain, membership, script, size
from shared.job import reasons
from shared.job.events.scaler import ScaleCancelled, ScaleFailed, ScaleSucceeded, WorkersReleased
from shared.job.membership import Unknown
from shared.job.naming import Slot, Uid
from shared.job.policies import replacement
from shared.job.request import Request
from shared.job.sorted_set import SortedSet
from shared.job.state import Job, hosts_seen
from shared.job.steps import Record, Step
from shared.job.timers import SCALING_DEADLINE, passed
from shared.job.views import Member, PodView, spans

LEFT = "the workers have left and will be deleted: {sizes}"
"""What stays of a request that fails after its release: the same request again would take other workers."""


def removable(job: Job) -> SortedSet[Slot]:
    """The slots of which a scale-in removes those with the highest indices.

    A kind that replaces pods under their own names counts vacancies, too: if worker 0 will be replaced, worker 2
    still is the one to leave.
    """
    in_place = job.spec is not None and job.spec.handling.in_place
    return replacement.filled(job) if in_place else job.attempt.workers - job.attempt.replaced_ahead


def victims(job: Job, count: int) -> tuple[Member, ...]:
    """The `count` workers with the highest indices, highest first; fewer if there are fewer."""
    # By number, not by name: "worker-10" sorts before "worker-9".
    pods = job.by_slot()
    ranked = sorted(removable(job), key=lambda slot: slot.index, reverse=True)
    return tuple(member(slot, pods) for slot in ranked[:count])


def member(slot: Slot, pods: Mapping[Slot, PodView]) -> Member:
    """A worker as index and uid of its present pod."""
    pod = pods.get(slot)
    return Member(slot.index, pod.uid if pod is not None else Uid(""))


def next_steps(job: Job, request: Request) -> list[Step]:
    """The next step of an accepted scale-in; none while it waits for the hosts files, the drain or the deletions."""
    late = passed(job, request.waits_since, SCALING_DEADLINE)
    if not request.published:
        return _publish(job, request, late=late)
    if not request.released:
        if not request.seen:
            return [_failed(request, reasons.HOSTS_NOT_WRITTEN)] if late else []
        answer = drain.answer(job, request, late=late)
        if isinstance(answer, str):
            return [Record(_release(job, request, answer))]
        return [answer] if answer is not None else []
    going = {job.attempt.worker_slot(leaver.index) for leaver in request.leaving}
    if not any(pod.slot in going and not pod.deleting for pod in job.pods.values()):
        # A pod may take its whole grace period to end, but it leaves for certain, and the job no longer uses it.
        if job.phase != "Scaling" or (size.is_awaited(job) and not late):
            return []
        return [Record(ScaleSucceeded(request=request.uid, reason="ScalingInSucceeded"))]
    return [_failed(request, "WorkersNotGone")] if late else []


def late_release(job: Job) -> list[Step]:
    """Release the workers of a scale-in that failed before its hosts files were seen, now that they are."""
    if not hosts_seen(job, job.membership.version):
        return []
    for request in job.scaling.requests.values():
        published = request.published and request.kind == "ScaleIn" and of_this_attempt(job, request)
        if published and not request.released:
            return [Record(_release(job, request, "HostsWrittenLate"))]
    return []


def _failed(request: Request, reason: str) -> Record:
    return Record(ScaleFailed(request=request.uid, reason=reason, remains=LEFT.format(sizes=request.sizes)))


def of_this_attempt(job: Job, request: Request) -> bool:
    """True if the request was accepted in this attempt; workers of another attempt only have the same names."""
    return job.attempt.assigned is None or request.accepted > job.attempt.assigned.sequence


def _publish(job: Job, request: Request, *, late: bool) -> list[Step]:
    if not script.running(request):
        if request.gone:
            return [Record(ScaleCancelled(request=request.uid, reason=reasons.REQUEST_DELETED))]
        if late:
            return [Record(ScaleFailed(request=request.uid, reason=reasons.DEADLINE_EXCEEDED))]
    steps = script.next_steps(job, request)
    if steps is not None:
        return steps
    members = membership.next_members(job)
    if isinstance(members, Unknown):
        # Hosts files without members would stop a launcher that trains.
        return []
    staying = members - [leaver.index for leaver in request.leaving]
    return [Record(membership.publish(job, staying, request.uid))]


def _release(job: Job, request: Request, reason: str) -> WorkersReleased:
    slots = spans(job.attempt.worker_slot(leaver.index) for leaver in request.leaving)
    return WorkersReleased(request=request.uid, slots=slots, reason=reason)
