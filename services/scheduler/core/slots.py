"""Assigns the slots of an attempt and those that replace lost ones, and compares slots with pods that were seen.  Pure.

`shared/job/policies/replacement.py` has the rules of replacements: which pods are replaced, how often and after which
back-off; `shared/job/policies/nodes.py` which are replaced ahead.
The scaler decides when a scale request changes the slots.
"""

from collections.abc import Iterable, Iterator

from services.scheduler.core import keys
from services.scheduler.core.effects import ClaimPod, CreatePod, CreateService, DeletePod, DeleteService
from shared.job import causes, reasons
from shared.job.attempt import Members
from shared.job.events.event import Cause
from shared.job.events.scheduler import SlotsAssigned
from shared.job.naming import Slot, service_name
from shared.job.policies import capacity, gangs, nodes, quota, replacement
from shared.job.policies.verdict import verdict
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, WORKER, JobSpec
from shared.job.state import Job, hosts_seen
from shared.job.steps import Record, Step
from shared.job.timers import may_appear
from shared.job.views import PodView, Slots, occupies, spans


def assigned(job: Job) -> list[Step]:
    """Assign all slots but the launcher's; then the launcher's, once the Service exists and all workers are listed."""
    if not job.starting or job.spec is None or quota.wants_pause(job):
        return []
    if not job.attempt.begun:
        return _first(job, job.spec) if _no_other_pod(job) else []
    if not job.spec.has_launcher:
        return []
    if job.attempt.launched or not _service_seen(job) or not _listed(job):
        return []
    listed = [slot for slot in job.attempt.workers if slot.index in job.listed_workers]
    if len(listed) < capacity.least_to_start(job) or (job.elasticity is None and replacement.replaceable(job)):
        return []
    return [Record(SlotsAssigned(slots=_launchers(job), reason="WorkersReady"), _because_listed(job))]


def _launchers(job: Job) -> tuple[Slots, ...]:
    return (Slots(job.attempt.number, LAUNCHER, ((0, 0),)),)


def _listed(job: Job) -> bool:
    return isinstance(job.membership, Members) and job.hosts is not None and job.hosts.hosts >= job.membership.version


def _because_listed(job: Job) -> Cause:
    written = job.membership.written if isinstance(job.membership, Members) else 0
    return causes.newest(causes.of_beginning(job), Cause(written))


def _no_other_pod(job: Job) -> bool:
    """True if none is being deleted, and none of another attempt can exist: pods of two never run at the same time."""
    number = job.attempt.number
    return not may_appear(job) and all(pod.attempt == number and not pod.deleting for pod in job.pods.views.values())


def _waits_for_a_later_attempt(job: Job) -> bool:
    """True while an attempt starts and the pods of a later one, whose restart the log has lost, are there."""
    return job.starting and any(pod.attempt > job.attempt.number for pod in job.pods.views.values())


def _may_get_slot(job: Job, pod: PodView) -> bool:
    """True for a pod of an attempt that starts, before its first slots, or the launcher's, are assigned.

    The log has lost the decision that made the pod.  The assignment of its slot makes it the job's again.
    """
    if not job.starting or pod.attempt != job.attempt.number:
        return False
    return not (job.attempt.launched if pod.role == LAUNCHER else job.attempt.begun)


def _first(job: Job, spec: JobSpec) -> list[Step]:
    sizes = {role.name: role.replicas for role in spec.roles if role.name != LAUNCHER}
    if job.scaling.size:
        sizes[WORKER] = job.scaling.size
    if WORKER in sizes:
        # The others follow as an edit of the size, once a larger Workload is admitted.
        sizes[WORKER] = quota.most_workers(job, sizes[WORKER])
    first = tuple(Slots(job.attempt.number, role, ((0, size - 1),)) for role, size in sizes.items() if size)
    reason, because = reasons.JOB_RESTARTED if job.attempt.number else "JobCreated", causes.of_beginning(job)
    gang = gangs.least_of(job, spec, sizes)
    if job.launcher_alone:
        # A launcher without workers reads hosts files, too.
        first, because = _launchers(job) if _listed(job) else (), _because_listed(job)
    return [Record(SlotsAssigned(slots=first, reason=reason, gang=gang), because)] if first else []


def missing(job: Job, there: SortedSet[Slot]) -> list[Step]:
    """Create the Services and pods of slots for which none was seen; `there` are the slots that have a pod."""
    if not job.attempt.slots or job.resource.problems:
        # An invalid resource has no usable pod template; its correction is an event that wakes the job.
        return []
    steps = [*_services(job)] if job.may_try("CreateService") else []
    if not keys.ready(job) or not job.may_try("CreatePod") or _waits_for_a_later_attempt(job):
        return steps
    wanted = [slot for slot in job.attempt.slots - there if _known(job, slot)]
    wanted = gangs.within(job, capacity.within(job, quota.within(job, wanted)))
    held, refusal = job.held_names, job.efforts.refusals.get("CreatePod")
    if held is not None:
        # The others do not wait for a name; of those that do, a few probe.
        waiting = [slot for slot in wanted if slot in held.slots]
        wanted = [slot for slot in wanted if slot not in held.slots] + waiting[: held.probe]
    if refusal is not None:
        # After a refusal a few pods probe: an exhausted quota would refuse each of a thousand.
        wanted = wanted[: refusal.probe]
    if not wanted:
        return steps
    request = job.scaling.open_request
    asked = dict.fromkeys(request.added, request.name) if request is not None else {}
    groups = {slot: gang.name for gang in gangs.unplaced(job) for slot in gang.slots}
    avoid = tuple(sorted(nodes.avoided(job)))
    return [*steps, *(CreatePod(slot, asked.get(slot, ""), groups.get(slot, ""), avoid) for slot in wanted)]


def surplus(job: Job, there: SortedSet[Slot]) -> list[Step]:
    """Delete pods of released slots and of other attempts, and Services of released slots."""
    released = there - job.attempt.unreleased
    left = [pod for pod in job.pods.views.values() if pod.slot in released and not pod.deleting] if released else []
    going = by_name(pod for pod in left if not _may_get_slot(job, pod))
    pods = [DeletePod(pod.name, pod.uid, drained=pod.uid in job.pods.drained) for pod in going]
    return [*pods, *_idle_services(job)]


def by_name(pods: Iterable[PodView]) -> list[PodView]:
    """In an order that every process agrees on."""
    return sorted(pods, key=lambda pod: (pod.name, pod.uid))


def outliving(job: Job) -> list[Step]:
    """Delete the pods in given-up slots whose containers run on, while the attempt goes on.

    Their training ended and other containers did not, or the kubelet began it again.  A worker leaves the hosts files
    before.
    """
    spent = job.attempt.spent
    lost = [
        pod for pod in job.pods.views.values() if spent and occupies(pod) and not pod.deleting and pod.slot in spent
    ]
    if isinstance(job.membership, Members):
        listed = job.listed_workers if hosts_seen(job, job.membership.version) else None
        lost = [pod for pod in lost if pod.role != WORKER or (listed is not None and pod.index not in listed)]
    if not lost or verdict(job) is not None:
        # With the attempt's end cleanPodPolicy decides.
        return []
    return [DeletePod(pod.name, pod.uid) for pod in by_name(lost)]


def unclaimed(job: Job) -> list[Step]:
    """Claim the pods that another operator created and that lack Muster's labels."""
    if not job.resource.adopted or not job.may_try("ClaimPod"):
        return []
    kept = job.attempt.unreleased
    return [
        ClaimPod(pod.name, pod.uid, pod.slot)
        for pod in by_name(job.pods.views.values())
        if not pod.claimed and not pod.deleting and pod.slot in kept
    ]


def _known(job: Job, slot: Slot) -> bool:
    """True if the resource still has the slot's role: an edit may have removed it."""
    return job.spec is not None and job.spec.has(slot.role)


def _has_one_service(job: Job) -> bool:
    return job.spec is None or job.spec.handling.services == "Job"


def _with_own_service(job: Job, slots: SortedSet[Slot]) -> SortedSet[Slot]:
    """The slots with a Service of their own: all of them if the kind says so.

    Pods of an adopted job find each other by the names of such Services; a launcher needs none.
    """
    if not job.has_service_per_pod:
        return SortedSet()
    return SortedSet(slot for slot in slots if slot.role != LAUNCHER) if _has_one_service(job) else slots


def _services(job: Job) -> Iterator[Step]:
    if _has_one_service(job) and not _service_seen(job):
        yield CreateService()
    refusal = job.efforts.refusals.get("CreateService")
    # The filter comes before the sort, because usually none is missing.
    missing = sorted(
        slot
        for slot in _with_own_service(job, job.attempt.slots)
        if _known(job, slot) and ("Service", job.pod_name(slot)) not in job.objects.children
    )
    # After a refusal a few probe, as with pods.
    yield from map(CreateService, missing if refusal is None else missing[: refusal.probe])


def _idle_services(job: Job) -> Iterator[Step]:
    """Delete Services of released slots while the attempt runs; between attempts they stay.

    After the end a Service goes with the last pod that it serves, also if that was never made; unless cleanPodPolicy
    is None.
    """
    kept: set[str]
    runs = job.attempt.begun and not (job.over or job.between_attempts)
    if job.over and job.spec is not None and job.spec.clean_pod_policy != "None":
        kept = {pod.name for pod in job.pods.views.values()}
        serves_all = bool(kept)
    elif not runs or (_has_one_service(job) and not job.resource.adopted):
        return
    else:
        kept = {job.pod_name(slot) for slot in _with_own_service(job, job.attempt.unreleased)}
        serves_all = _has_one_service(job)
    if serves_all:
        kept.add(service_name(job.key.name))
    for child in job.objects.children.values():
        if child.kind == "Service" and child.ours and child.name not in kept:
            yield DeleteService(child.name, child.uid)


def _service_seen(job: Job) -> bool:
    return ("Service", service_name(job.key.name)) in job.objects.children


def replaced(job: Job) -> list[Step]:
    """Slots for every vacancy whose back-off is over."""
    due = [slot for slot, vacancy in replacement.replaceable(job).items() if replacement.due(job, vacancy)]
    due += nodes.to_replace(job)
    if not due or capacity.yields(job) or verdict(job) is not None:
        # An attempt that is over gets no pods, and a launcher comes before more workers.
        return []
    if job.spec is not None and job.spec.handling.in_place:
        return _in_place(job, due)
    new = replacement.new_workers(job, len(due))
    return [_replaced(job, (new,), due, "WorkersReplaced")]


def _replaced(job: Job, new: tuple[Slots, ...], old: list[Slot], reason: str) -> Record:
    because = causes.newest(replacement.cause_of_refill(job, slot) for slot in sorted(old))
    return Record(SlotsAssigned(slots=new, replaces=spans(old), reason=reason), because)


def _in_place(job: Job, due: list[Slot]) -> list[Step]:
    """The same slots again; the old pod is deleted first, because the new one has its name."""
    left = {pod.slot: pod for pod in sorted(job.pods.views.values(), key=lambda pod: pod.deleting, reverse=True)}
    free = [slot for slot in due if slot not in left]
    # `slots.surplus` deletes the pods in released slots.
    going: list[Step] = [
        DeletePod(pod.name, pod.uid)
        for slot in due
        if slot in job.attempt.spent and (pod := left.get(slot)) is not None and not pod.deleting
    ]
    if not free:
        return going
    return [_replaced(job, spans(free), free, "PodsReplaced"), *going]
