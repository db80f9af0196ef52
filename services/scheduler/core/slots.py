"""Slots: which exist, and the difference between them and the pods that were seen.  Pure.

When a scale-out or a scale-in changes them is the scaler's decision.
"""

from collections.abc import Iterator

from services.scheduler.core import keys
from services.scheduler.core.effects import ClaimPod, CreatePod, CreateService, DeletePod, DeleteService
from shared.job.events.scheduler import SlotsAssigned
from shared.job.membership import Members
from shared.job.naming import Slot, service_name
from shared.job.policies import replacement
from shared.job.request import Request
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, WORKER, JobSpec
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timing import UNSEEN, passed
from shared.job.views import Slots


def assigned(job: Job) -> list[Step]:
    """First all pods but the launcher's; it follows once names resolve and the hosts files list all the others."""
    if not job.starting or job.spec is None or job.spec.suspend:
        return []
    if not job.attempt.begun:
        return _first(job, job.spec) if _alone(job) else []
    if not job.spec.has_launcher:
        return []
    listed = job.listed_workers
    complete = all(slot.index in listed for slot in job.attempt.workers) and not replacement.owed(job)
    if job.attempt.launched or not _served(job) or not complete or not _listed(job):
        return []
    return [Record(SlotsAssigned(slots=_launchers(job), reason="WorkersReady"))]


def _launchers(job: Job) -> tuple[Slots, ...]:
    return (Slots(job.attempt.number, LAUNCHER, ((0, 0),)),)


def _listed(job: Job) -> bool:
    """The hosts files of this attempt were written."""
    return isinstance(job.membership, Members) and job.hosts is not None and job.hosts.hosts >= job.membership.version


def _alone(job: Job) -> bool:
    """No pod of an earlier attempt is there, or may be: the pods of two attempts never run at the same time."""
    if job.unseen.slots and not passed(job, job.unseen.since, UNSEEN):
        return False
    return all(pod.attempt >= job.attempt.number for pod in job.pods.values())


def _first(job: Job, spec: JobSpec) -> list[Step]:
    sizes = {role.name: role.replicas for role in spec.roles if role.name != LAUNCHER}
    if job.scaling.size:
        sizes[WORKER] = job.scaling.size
    first = tuple(Slots(job.attempt.number, role, ((0, size - 1),)) for role, size in sizes.items() if size)
    reason = "JobRestarted" if job.attempt.number else "JobCreated"
    if job.launcher_alone:
        # Nobody is waited for; but it reads hosts files all the same.
        return [Record(SlotsAssigned(slots=_launchers(job), reason=reason))] if _listed(job) else []
    return [Record(SlotsAssigned(slots=first, reason=reason))] if first else []


def missing(job: Job) -> list[Step]:
    """The Services and the pods that shall be there and were not seen."""
    if not job.attempt.slots:
        return []
    steps = [*_services(job)] if job.may_try("CreateService") else []
    if job.problems or not keys.there(job) or not job.may_try("CreatePod"):
        # Of a resource that is invalid by now no pod can be made; the one that is corrected wakes us.
        return steps
    filled = {pod.slot for pod in job.pods.values()}
    wanted = sorted(slot for slot in job.attempt.slots - filled if _known(job, slot))
    refusal = job.refusals.get("CreatePod")
    if refusal is not None:
        # Probe with a few: what refused one pod would refuse a thousand, a thousand times.
        wanted = wanted[: refusal.probe]
    asked = job.scaling.open_request
    return [*steps, *(CreatePod(slot, _scaleout(asked, slot)) for slot in wanted)]


def surplus(job: Job) -> list[Step]:
    """Pods whose slot was released, or that belong to an earlier attempt; Services of slots that were released."""
    kept = job.attempt.places
    pods: list[Step] = [
        DeletePod(pod.name, pod.uid)
        for pod in sorted(job.pods.values(), key=lambda pod: (pod.name, pod.uid))
        if pod.slot not in kept and not pod.deleting
    ]
    return [*pods, *_idle_services(job)]


def unclaimed(job: Job) -> list[Step]:
    """Pods that another operator made and that do not carry our labels yet."""
    if not job.adopted or not job.may_try("ClaimPod"):
        return []
    kept = job.attempt.places
    return [
        ClaimPod(pod.name, pod.uid, pod.slot)
        for pod in sorted(job.pods.values(), key=lambda pod: (pod.name, pod.uid))
        if not pod.claimed and not pod.deleting and pod.slot in kept
    ]


def _known(job: Job, slot: Slot) -> bool:
    """The resource says what its pod is made of; a role may have been taken out of it."""
    return job.spec is not None and job.spec.has(slot.role)


def _together(job: Job) -> bool:
    """One Service is behind the names of all pods."""
    return job.spec is None or job.spec.handling.services == "Job"


def _apart(job: Job, slots: SortedSet[Slot]) -> SortedSet[Slot]:
    """Those of `slots` with a Service of their own: all where the kind wants it so.

    Pods that another operator made find each other by such names alone, and nobody asks for a launcher's.
    """
    if not job.served_apart:
        return SortedSet()
    return SortedSet(slot for slot in slots if slot.role != LAUNCHER) if _together(job) else slots


def _services(job: Job) -> Iterator[Step]:
    """Those that are wanted and were not seen."""
    if _together(job) and not _served(job):
        yield CreateService()
    refusal = job.refusals.get("CreateService")
    # Sorted last: as a rule none is missing.
    missing = sorted(
        slot
        for slot in _apart(job, job.attempt.slots)
        if _known(job, slot) and ("Service", job.pod_name(slot)) not in job.children
    )
    # As with pods: what refused one would refuse a thousand.
    yield from map(CreateService, missing if refusal is None else missing[: refusal.probe])


def _idle_services(job: Job) -> Iterator[Step]:
    """Of pods that were released while the others go on; between attempts and after the end they stay."""
    if (_together(job) and not job.adopted) or not job.attempt.begun or job.over or job.between_attempts:
        return
    kept: set[str] = {job.pod_name(slot) for slot in _apart(job, job.attempt.places)}
    if _together(job):
        kept.add(service_name(job.key.name))
    for child in job.children.values():
        if child.kind == "Service" and child.ours and child.name not in kept:
            yield DeleteService(child.name, child.uid)


def _served(job: Job) -> bool:
    """The Service behind the workers' names is there."""
    return ("Service", service_name(job.key.name)) in job.children


def _scaleout(request: Request | None, slot: Slot) -> str:
    return request.name if request is not None and slot in request.added else ""
