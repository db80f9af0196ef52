"""Carries an accepted scale request out, and writes the size of the job into its resource.  Pure.

A scale-out waits for its new workers, lists them, then runs its script.  `HostsPublished` is the point of no return: a
failure before it releases all new workers, a failure after it none.
A scale-in runs its script, then its workers are unlisted, drained, released and deleted.  No worker is released before
the launcher has seen hosts files without it, and none is deleted before its release.  Before `HostsPublished` a failure
changes nothing; after it the leaving workers are released even so.

A ScaleOut or a ScaleIn changes the size, and the resource's own number, which `kubectl scale` and autoscalers read,
would say another one: the next request for that number would be no change of the resource, and be lost.  An edit of a
person that was not carried out yet stays.
"""

from collections.abc import Iterable
from itertools import count as numbers
from itertools import filterfalse, islice

from services.scaler.core import commands, membership
from services.scaler.core.effects import WriteSize
from shared.job import causes, reasons, text
from shared.job.attempt import Unknown
from shared.job.events.event import UNKNOWN, Cause
from shared.job.events.scaler import ScaleCancelled, ScaleFailed, ScaleSucceeded, WorkersReleased
from shared.job.naming import Slot, Uid
from shared.job.policies import capacity, quota, replacement
from shared.job.scaling import Request
from shared.job.sorted_set import SortedSet
from shared.job.state import Job, hosts_seen
from shared.job.steps import Record, Step
from shared.job.timers import DRAIN, SCALING_DEADLINE, passed
from shared.job.views import Member, Slots, alive, spans


def size_written(job: Job) -> list[Step]:
    return [WriteSize(job.scaling.size, job.resource.generation)] if size_awaited(job) else []


def size_awaited(job: Job) -> bool:
    """True until the resource was seen with the size; False while the write is refused, and for kinds without one.

    A request ends, and the next one begins, after that: a client that saw it succeed finds its size in the resource.
    """
    scaling, request = job.scaling, job.scaling.open_request
    if job.spec is None or job.resource.problems or not (job.spec.handling.elastic and job.spec.worker.written):
        return False
    worker = job.spec.worker
    if scaling.size in (0, worker.replicas) or (request is not None and not request.published):
        return False
    if any(known.resize is not None and not known.over for known in scaling.requests.values()):
        # The resource has the size that the newest edit asks for.
        return False
    most = worker.max_replicas
    fits = scaling.size >= worker.least and (most is None or scaling.size <= most)
    return fits and job.may_try("WriteSize")


def new_slots(job: Job, count: int) -> tuple[Slots, ...]:
    """Slots for `count` new workers.

    A kind that replaces pods under their own names uses the lowest free indices.
    """
    if job.spec is None or not job.spec.handling.in_place:
        return (replacement.new_workers(job, count),)
    free = islice(filterfalse(replacement.taken(job).__contains__, numbers()), count)
    return spans(job.attempt.worker_slot(index) for index in free)


def scale_out(job: Job, request: Request) -> list[Step]:
    """The next step of an accepted scale-out; none while it waits for pods or hosts files."""
    late = passed(job, request.waits_since, SCALING_DEADLINE)
    if request.published:
        if request.seen:
            return _seen(job, request, late=late)
        failed = ScaleFailed(request=request.uid, reason=reasons.HOSTS_NOT_WRITTEN)
        return [Record(failed, _deadline(job, request))] if late else []
    if request.gone:
        return [_taken_back(request, request.added)]
    lost = request.added & job.attempt.spent - replacement.replaceable(job).keys()
    if lost or request.added & membership.disrupted(job):
        doomed = [pod.slot for uid, pod in job.pods.views.items() if uid in job.pods.disrupted]
        because = causes.newest(causes.of_pods(job, request.added & (job.attempt.spent | doomed)))
        return [_failed_before(request, reasons.WORKER_FAILED, because)]
    pods = job.worker_pods()
    come = [slot.index for slot in request.added if membership.ready(pods.get(slot.index))]
    if len(come) == len(request.added) or _takes_part(job, request, len(come), late=late):
        members = membership.next_members(job, come)
        if not isinstance(members, Unknown):
            return [_published(job, members, request)]
    refusal = job.efforts.refusals.get("CreatePod")
    if refusal is not None and refusal.at.sequence < request.accepted:
        # The refused pod was not one of this request.
        refusal = None
    if late or (refusal is not None and refusal.permanent):
        # A permanent refusal does not end by waiting.
        if refusal is not None:
            return [_failed_before(request, refusal.reason, Cause(refusal.at.sequence))]
        words = _awaited(job, request)
        return [_failed_before(request, reasons.DEADLINE_EXCEEDED, _deadline(job, request), words)]
    return []


def _takes_part(job: Job, request: Request, come: int, *, late: bool) -> bool:
    """True if the request goes on with those that are Ready, as there is no node or no quota for the others.

    They wait for it as the job's own, and join when they are Ready.
    """
    if not capacity.takes_part(job, request):
        return False
    pods = job.worker_pods()
    without = sum(capacity.finds_no_node(pods.get(slot.index)) for slot in request.added)
    lacking = [slot for slot in request.added if slot.index not in pods]
    without += len(lacking) - len(quota.within(job, lacking))
    enough = come > 0 or job.elasticity is not None
    return enough and (late or come + without == len(request.added))


def _failed_before(request: Request, reason: str, because: Cause, words: str = "") -> Record:
    """The failure of a scale-out before its point of no return."""
    failed = ScaleFailed(request=request.uid, reason=reason, released=spans(request.added), awaited=words)
    return Record(failed, because)


def _awaited(job: Job, request: Request) -> str:
    """`resnet-worker-3 was not Ready: Unschedulable: 0/4 nodes are available`: the first of the new workers that was
    waited for, and how many more; empty if it was none.
    """
    pods = job.worker_pods()
    lacking = [slot for slot in request.added if not membership.ready(pods.get(slot.index))]
    if not lacking:
        return ""
    pod, more = pods.get(lacking[0].index), f", like {len(lacking) - 1} more" if lacking[1:] else ""
    name = job.pod_name(lacking[0])
    if pod is None:
        return f"{name} was not created{more}"
    return text.with_words(f"{name} was not Ready{more}: {pod.reason or pod.phase}", pod.message)


def _taken_back(request: Request, released: Iterable[Slot] = ()) -> Record:
    """A person deleted the request."""
    reason = reasons.REQUEST_DELETED
    return Record(ScaleCancelled(request=request.uid, reason=reason, released=spans(released)), Cause(request.gone))


def _published(job: Job, members: SortedSet[int], request: Request) -> Record:
    because = causes.newest(causes.of_beginning(job), causes.of_request(job, request))
    return Record(membership.publish(job, members, request.uid), because)


def _deadline(job: Job, request: Request) -> Cause:
    return causes.timer(job, request.waits_since, SCALING_DEADLINE)


def _seen(job: Job, request: Request, *, late: bool) -> list[Step]:
    """The step after the launcher has seen the new hosts files: the job keeps its new size even if the script fails."""
    if request.gone and commands.script_wanted(request):
        # The deleted request had the script.
        return [_taken_back(request)]
    steps = commands.script_steps(job, request)
    if steps is not None:
        return steps
    # The request succeeds only after the status service recorded its start.
    succeeded = ScaleSucceeded(request=request.uid, reason="ScalingOutSucceeded")
    done = Record(succeeded, causes.of_request(job, request))
    return [done] if job.status.phase == "Scaling" and (late or not size_awaited(job)) else []


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
    """The `count` workers with the highest indices, highest first; fewer if there are fewer.

    Of a job with elasticity those that are no members go first: the others train.
    """
    # By number, not by name: "worker-10" sorts before "worker-9".
    waits = removable(job) - [job.attempt.worker_slot(index) for index in job.listed_workers]
    first = waits if job.elasticity is not None else ()
    ranked = sorted(removable(job), key=lambda slot: (slot not in first, -slot.index))
    return members(job, (slot.index for slot in ranked[:count]))


def members(job: Job, indices: Iterable[int]) -> tuple[Member, ...]:
    pods = job.worker_pods()
    return tuple(Member(index, pods[index].uid if index in pods else Uid("")) for index in indices)


def scale_in(job: Job, request: Request) -> list[Step]:
    """The next step of an accepted scale-in; none while it waits for the hosts files, the drain or the deletions."""
    late = passed(job, request.waits_since, SCALING_DEADLINE)
    if not request.published:
        return _publish(job, request, late=late)
    if not request.released:
        if not request.seen:
            return [_failed_after(job, request, reasons.HOSTS_NOT_WRITTEN)] if late else []
        answer = commands.reason_to_release(job, request, late=late)
        if isinstance(answer, str):
            return [_release(job, request, answer)]
        return [answer] if answer is not None else []
    going = {job.attempt.worker_slot(leaver.index) for leaver in request.leaving}
    if not any(pod.slot in going and not pod.deleting for pod in job.pods.views.values()):
        # A pod may take its whole grace period to end, but it leaves for certain, and the job no longer uses it.
        if job.status.phase != "Scaling" or (size_awaited(job) and not late):
            return []
        succeeded = ScaleSucceeded(request=request.uid, reason="ScalingInSucceeded")
        return [Record(succeeded, causes.of_request(job, request))]
    return [_failed_after(job, request, "WorkersNotGone")] if late else []


def late_release(job: Job) -> list[Step]:
    """Release the workers of a scale-in that failed before its hosts files were seen, now that they are."""
    if not hosts_seen(job, job.membership.version):
        return []
    for request in job.scaling.requests.values():
        published = request.published and request.kind == "ScaleIn" and of_this_attempt(job, request)
        if published and not request.released:
            return [_release(job, request, "HostsWrittenLate")]
    return []


def _failed_after(job: Job, request: Request, reason: str) -> Record:
    """The failure of a scale-in after its point of no return."""
    failed = ScaleFailed(request=request.uid, reason=reason, remains=LEFT.format(sizes=request.sizes))
    return Record(failed, _deadline(job, request))


def of_this_attempt(job: Job, request: Request) -> bool:
    """True if the request was accepted in this attempt; workers of another attempt only have the same names."""
    return job.attempt.assigned is None or request.accepted > job.attempt.assigned.sequence


def _publish(job: Job, request: Request, *, late: bool) -> list[Step]:
    if request.script is None or request.script.ended:
        if request.gone:
            return [_taken_back(request)]
        if late:
            failed = ScaleFailed(request=request.uid, reason=reasons.DEADLINE_EXCEEDED)
            return [Record(failed, _deadline(job, request))]
    steps = commands.script_steps(job, request)
    if steps is not None:
        return steps
    members = membership.next_members(job)
    if isinstance(members, Unknown):
        # Hosts files without members would stop a launcher that trains.
        return []
    staying = members - [leaver.index for leaver in request.leaving]
    if not capacity.is_enough(job, len(staying)):
        return []
    return [_published(job, staying, request)]


def _release(job: Job, request: Request, reason: str) -> Record:
    """The launcher no longer uses the workers, or their drain time has passed."""
    slots = SortedSet(job.attempt.worker_slot(leaver.index) for leaver in request.leaving)
    timers = (causes.timer(job, request.seen, DRAIN), _deadline(job, request))
    looked = Cause(request.look.at if request.look is not None else 0)
    launcher = causes.of_launcher(job) if not alive(job.launcher) else UNKNOWN
    steps = membership.of_departures(job, slots), causes.of_steps(request)
    released = WorkersReleased(request=request.uid, slots=spans(slots), reason=reason)
    return Record(released, causes.newest(*steps, timers, looked, launcher))
