"""Gangs: pods that find places together or not at all, by a PodGroup of Kubernetes.  Pure.

The first pods of an attempt are one gang, those of a scale-out another.  The launcher is none of them: it is made when
its workers are Ready, and a gang that waited for it would never be scheduled.  Nor is the rendezvous.

The kube-scheduler considers no pod of a gang before as many exist as its PodGroup says, and binds so many at once.  A
gang is just so many pods: one more would wait for the others again after they were lost.  The pods that a job makes
beyond it, and those in the place of lost ones, come alone once one pod of the gang has a node: all of them had places.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from shared.job.naming import Slot, gang_name
from shared.job.policies import capacity, replacement
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, RENDEZVOUS, WORKER, JobSpec
from shared.job.state import Job, needed_workers

POD_GROUP = "PodGroup"
"""The kind of the children by which they do."""
OUTSIDE = frozenset({LAUNCHER, RENDEZVOUS})


class Gang(NamedTuple):
    """Pods that find places together."""

    name: str
    """Of its PodGroup."""
    least: int
    """The number of pods that have to find places."""
    slots: SortedSet[Slot]


def least_of(job: Job, spec: JobSpec, sizes: Mapping[str, int]) -> int:
    """How many of an attempt's first pods find places together, by the number of pods of each role; 0 for no gang."""
    if spec.gang is None:
        return 0
    every = sum(size for role, size in sizes.items() if role not in OUTSIDE)
    least = every
    if spec.handling.elastic and (not spec.has_launcher or spec.elasticity is not None):
        # It begins with its minimum; a launcher waits for all of its workers, unless the job goes by capacity.
        least -= max(sizes.get(WORKER, 0) - needed_workers(job), 0)
    # A job may say how many pods wait for a node: more than those and its minimum are not made before some have one.
    pending = spec.elasticity.most_pending if spec.elasticity is not None else None
    most = max(pending, least) if pending is not None else every
    least = min(spec.gang or least, most, every)
    return least if least > 1 else 0


def known(job: Job) -> Iterator[Gang]:
    """The gangs of the attempt: that of its beginning, and that of the open scale-out."""
    attempt = job.attempt
    if not attempt.gang or job.between_attempts:
        return
    yield Gang(gang_name(job.key, attempt.number), attempt.gang, _first(job))
    request, arriving = job.scaling.open_request, job.scaling.arriving
    if request is not None and len(arriving) > 1 and not capacity.takes_part(job, request):
        yield Gang(gang_name(job.key, attempt.number, request.accepted), len(arriving), arriving)


def _first(job: Job) -> SortedSet[Slot]:
    """The slots of the attempt's first gang until it has places."""
    attempt = job.attempt
    if attempt.placed or not job.starting:
        return SortedSet()
    slots = attempt.slots
    if job.spec is not None and job.spec.handling.in_place:
        # A lost pod that is made again under its name keeps its place in the gang.
        slots |= [*replacement.replaceable(job)]
    return SortedSet([slot for slot in slots if slot.role not in OUTSIDE][: attempt.gang])


def left(job: Job) -> int:
    """How many pods the attempt has, if those are too few for its first gang and wait for ever; otherwise 0.

    Kubernetes 1.36 changes no `minCount`, and no release lets a pod change its group.
    """
    attempt = job.attempt
    if not attempt.gang or attempt.placed or not job.starting:
        return 0
    slots = [slot for slot in attempt.slots | attempt.vacancies.keys() if slot.role not in OUTSIDE]
    # An edit that takes workers away has released them, and gives the job its size afterwards.
    begins = job.scaling.size <= sum(slot.role == WORKER for slot in slots)
    return len(slots) if begins and len(slots) < attempt.gang else 0


def within(job: Job, slots: Iterable[Slot]) -> list[Slot]:
    """Those of these slots without a pod that may get one now: before its first gang has places a job has no others."""
    first = _first(job) if job.attempt.gang else ()
    return [slot for slot in slots if not first or slot in first or slot.role in OUTSIDE]


def unplaced(job: Job) -> list[Gang]:
    """Those whose pods have no places yet."""
    if not job.attempt.gang:
        # Every decision asks, and most jobs have none.
        return []
    placed = {pod.slot for pod in job.pods.views.values() if pod.node or pod.phase != "Pending"}
    return [gang for gang in known(job) if gang.slots and gang.slots.isdisjoint(placed)]
