"""What the log does not know yet: the difference between a folded job and the world.  Pure.

Older versions of an object are ignored; changes that no decision needs are not recorded.
"""

from collections.abc import Iterator

from services.watcher.sights import RequestSight
from services.watcher.world import World
from shared.job.events import (
    ChildGone,
    ChildrenObserved,
    Fact,
    JobDeleting,
    JobGone,
    JobObserved,
    LauncherLost,
    PodsGone,
    PodsObserved,
    ScaleRequested,
    ScaleRequestGone,
)
from shared.job.naming import NO_UID
from shared.job.spec import LAUNCHER
from shared.job.state import Job
from shared.job.views import PodView

PODS_PER_EVENT = 400
"""So that an event stays under a quarter of a mebibyte: a view takes about 400 bytes."""


def observe(job: Job, world: World, waiting: Job | None = None) -> list[Fact]:
    """The facts about `job` that the world shows and the log lacks, most important first.

    `waiting` is the job's namesake without a uid: requests that waited there keep their order.
    """
    if job.key.uid == NO_UID:
        return [*_requests(job, world, waiting)]
    events = [*_resource(job, world)]
    if events or not job.generation:
        # Pods and requests mean something once the log knows the job.
        return events
    return [*_pods(job, world), *_children(job, world), *_requests(job, world, waiting)]


def _resource(job: Job, world: World) -> Iterator[Fact]:
    sight = world.job(job.key)
    if sight is None:
        if job.generation and not job.gone and job.key in world.confirmed_gone:
            yield JobGone(version=world.jobs.version)
        return
    seen = sight.observed
    if world.epoch == job.epoch and seen.version < job.version:
        return
    known = (job.generation, job.problems) if job.problems else (job.generation, job.spec)
    now = (seen.generation, seen.problems) if seen.problems else (seen.generation, seen.spec)
    if known != now or job.gone or world.epoch > job.epoch:
        yield JobObserved(
            kind=seen.kind,
            api_version=seen.api_version,
            generation=seen.generation,
            version=seen.version,
            epoch=world.epoch,
            spec=seen.spec,
            problems=seen.problems,
        )
    if sight.deleting and not (job.deleting and job.orphan == sight.orphan):
        yield JobDeleting(version=seen.version, orphan=sight.orphan)


def _pods(job: Job, world: World) -> Iterator[Fact]:
    if not world.pods.listed:
        return
    now = world.pods_of(job.key)
    changed = [pod for pod in now.values() if _news(job, world, pod)]
    for some in _batches(sorted(changed, key=lambda pod: (pod.role, pod.index, pod.uid))):
        yield PodsObserved(pods=some, epoch=world.epoch)
    gone = [
        pod
        for uid, pod in job.pods.items()
        if uid not in now and (pod.version <= world.pods.version or world.epoch > job.epoch)
    ]
    for pod in gone:
        if pod.role == LAUNCHER and pod.slot in job.slots:
            yield LauncherLost(uid=pod.uid)
    others = tuple(pod.uid for pod in gone if not (pod.role == LAUNCHER and pod.slot in job.slots))
    if others:
        yield PodsGone(uids=others)


def _batches(pods: list[PodView]) -> Iterator[tuple[PodView, ...]]:
    for start in range(0, len(pods), PODS_PER_EVENT):
        yield tuple(pods[start : start + PODS_PER_EVENT])


def _news(job: Job, world: World, pod: PodView) -> bool:
    known = job.pods.get(pod.uid)
    if known is None or world.epoch > job.epoch:
        return True
    return pod.version > known.version and _told(pod) != _told(known)


def _told(pod: PodView) -> tuple[object, ...]:
    return (pod.phase, pod.ready, pod.exits, pod.reason, pod.node, pod.deleting, pod.disruption, pod.hosts)


def _children(job: Job, world: World) -> Iterator[Fact]:
    now = world.children_of(job.key)
    changed = tuple(
        child
        for at, child in sorted(now.items())
        if (known := job.children.get(at)) is None
        or known.uid != child.uid
        or (child.version > known.version and child.hosts != known.hosts)
    )
    if changed:
        yield ChildrenObserved(children=changed, epoch=world.epoch)
    for (kind, name), child in job.children.items():
        level = world.children.get(kind)
        if level is not None and level.listed and (kind, name) not in now and child.version <= level.version:
            yield ChildGone(kind=kind, name=name, uid=child.uid)


def _requests(job: Job, world: World, waiting: Job | None) -> Iterator[Fact]:
    if not (world.jobs.listed and all(level.listed for level in world.requests.values())):
        return
    now = world.requests_of(job.key)
    order = {uid: place for place, uid in enumerate(waiting.requests)} if waiting is not None else {}
    last = len(order)

    def turn(request: RequestSight) -> tuple[int, str, int]:
        return (order.get(request.uid, last), request.created, request.version)

    for request in sorted(now.values(), key=turn):
        known = job.requests.get(request.uid)
        if (
            known is None
            or known.gone
            or known.owner != request.owner
            or (known.phase == "Pending" and (known.spec, known.problems) != (request.spec, request.problems))
        ):
            yield ScaleRequested(
                kind=request.kind,
                name=request.name,
                uid=request.uid,
                version=request.version,
                owner=request.owner,
                spec=request.spec,
                problems=request.problems,
            )
    for known in job.requests.values():
        if not known.gone and known.uid not in now:
            yield ScaleRequestGone(uid=known.uid, reason="Bound" if world.has_request(known.uid) else "Deleted")
