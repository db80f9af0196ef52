"""What the log does not know yet: the difference between a folded job and the world.  Pure.

Older versions of an object are ignored; changes that no decision needs are not recorded.
"""

from collections.abc import Callable, Collection, Iterator

import msgspec

from services.watcher.sights import RequestSight
from services.watcher.takeover import adopted
from services.watcher.world import World
from shared.job.events.catalog import Fact
from shared.job.events.watcher import (
    ChildGone,
    ChildrenObserved,
    DisruptionNoticed,
    JobDeleting,
    JobGone,
    JobObserved,
    LauncherLost,
    PodsGone,
    PodsObserved,
    ScaleRequested,
    ScaleRequestGone,
)
from shared.job.naming import NO_UID, JobKey, Uid
from shared.job.spec import LAUNCHER, Problem
from shared.job.state import Job
from shared.job.views import PodView

BYTES_PER_EVENT = 200_000
"""Of pod views in one event, which stays under the log's limit with all that is around them."""

_UNKNOWN = (Problem(reason="HistoryLost", message="create the request again: how far it got is not known"),)

UIDS_PER_EVENT = 4_000
"""So that their 40 bytes each stay under the same limit."""


def observe(
    job: Job,
    world: World,
    folded: Callable[[JobKey], Job | None] = lambda _: None,
    begun: Callable[[JobKey], Collection[Uid]] = lambda _: (),
    *,
    pods: bool = True,
) -> list[Fact]:
    """The facts about `job` that the world shows and the log lacks, most important first; its `pods` may wait.

    `folded` gives other histories: a request that waited under the job's name keeps its turn, and leaves there once
    the job's own history has it.
    `begun` gives the requests that were acted upon under other lives of that name: none of them runs again.
    """
    if job.key.uid == NO_UID:
        return [*_requests(job, world, folded, begun)]
    if world.epoch < job.epoch:
        # Someone saw a newer store than we did: until we list again, nothing that we see is news.
        return []
    events = [*_resource(job, world)]
    if events or not job.generation:
        # Pods and requests mean something once the log knows the job.
        return events
    if world.epoch > job.epoch and not job.gone:
        # In another store the job itself comes first: what it says of its end decides what its pods' end means.
        return []
    if job.another:
        if not world.takes_over or not world.has_inherited(job) or not world.pods.listed:
            return []
        # First its pods, whatever became of them; nobody acts on the job before it is adopted.
        return [*_pods(job, world)] or [*adopted(job, world)]
    views = _pods(job, world) if pods else ()
    # Whatever owner a request names: it is about a TrainingJob, or nobody's.
    scaled = _requests(job, world, folded, begun) if world.level_of(job) is world.scalable else ()
    return [*_disruptions(job, world), *views, *_children(job, world), *scaled]


def _resource(job: Job, world: World) -> Iterator[Fact]:
    level, sight = world.level_of(job), world.job(job.key)
    if level is None or level.outdated:
        return
    if sight is None:
        if job.generation and not job.gone and job.key in world.confirmed_gone:
            yield JobGone(version=level.version)
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
    if sight.deleting and (not job.deleting or (sight.orphan and not job.orphan)):
        yield JobDeleting(version=seen.version, orphan=sight.orphan)


def _disruptions(job: Job, world: World) -> Iterator[Fact]:
    """Of each pod once that its node is about to go; that a notice was taken back is no news."""
    if not world.going or job.over or not (world.pods.listed and world.nodes.listed):
        return
    found: dict[tuple[str, str], list[Uid]] = {}
    for uid, pod in world.pods_of(job.key).items():
        # Of a pod that the log has never seen it would not be remembered.
        news = uid in job.pods and uid not in job.disrupted and pod.slot in job.attempt.slots
        if news and (reason := world.notice(pod)):
            found.setdefault((pod.node, reason), []).append(uid)
    for (node, reason), uids in sorted(found.items()):
        uids.sort()
        for start in range(0, len(uids), UIDS_PER_EVENT):
            yield DisruptionNoticed(node=node, uids=tuple(uids[start : start + UIDS_PER_EVENT]), reason=reason)


def _pods(job: Job, world: World) -> Iterator[Fact]:
    if not world.pods.listed:
        return
    now = world.pods_of(job.key)
    changed = [pod for pod in now.values() if _news(job, world, pod)]
    for some in _batches(sorted(changed, key=lambda pod: (pod.role, pod.index, pod.uid))):
        yield PodsObserved(pods=some, epoch=world.epoch)
    bereft = bereft_of(job, world)
    for uid in sorted(bereft & world.vouched):
        yield LauncherLost(uid=uid)
    others = tuple(
        uid for uid, pod in job.pods.items() if uid not in now and uid not in bereft and _vanished(job, world, pod)
    )
    for start in range(0, len(others), UIDS_PER_EVENT):
        yield PodsGone(uids=others[start : start + UIDS_PER_EVENT])


def bereft_of(job: Job, world: World) -> set[Uid]:
    """Launchers that vanished before their end was seen, from a job that is not known to go itself.

    Each is lost once the job's own GET, asked after that, vouches for the job: the pods watch may be ahead of the
    jobs watch, and the launcher of a job that was deleted is no failure.
    """
    if job.key in world.confirmed_gone or job.gone or job.deleting or not world.pods.listed:
        return set()
    launchers = [pod for pod in job.pods.values() if pod.role == LAUNCHER and pod.slot in job.attempt.slots]
    return {pod.uid for pod in launchers if _vanished(job, world, pod)}


def _vanished(job: Job, world: World, pod: PodView) -> bool:
    return pod.uid not in world.pods_of(job.key) and world.went(job, pod)


def _batches(pods: list[PodView]) -> Iterator[tuple[PodView, ...]]:
    some: list[PodView] = []
    size = 0
    for pod in pods:
        weight = len(msgspec.json.encode(pod)) + 1
        if some and size + weight > BYTES_PER_EVENT:
            yield tuple(some)
            some, size = [], 0
        some.append(pod)
        size += weight
    if some:
        yield tuple(some)


def _news(job: Job, world: World, pod: PodView) -> bool:
    known = job.pods.get(pod.uid)
    if known is None or world.epoch > job.epoch:
        return True
    return pod.version > known.version and _told(pod) != _told(known)


def _told(pod: PodView) -> tuple[object, ...]:
    # Its node is told of together with what happens to it there.
    node = pod.node if pod.phase != "Pending" else ""
    return (pod.phase, pod.ready, pod.exits, pod.reason, node, pod.deleting, pod.disruption, pod.hosts, pod.claimed)


def _children(job: Job, world: World) -> Iterator[Fact]:
    now = world.children_of(job.key)
    changed = tuple(
        child
        for at, child in sorted(now.items())
        if not world.children[child.kind].outdated
        and (
            (known := job.children.get(at)) is None
            or known.uid != child.uid
            or (child.version > known.version and child.hosts != known.hosts)
        )
    )
    if changed:
        yield ChildrenObserved(children=changed, epoch=world.epoch)
    for (kind, name), child in job.children.items():
        level = world.children.get(kind)
        if level is not None and level.listed and (kind, name) not in now and child.version <= level.version:
            yield ChildGone(kind=kind, name=name, uid=child.uid)


def _requests(
    job: Job,
    world: World,
    folded: Callable[[JobKey], Job | None],
    begun: Callable[[JobKey], Collection[Uid]],
) -> Iterator[Fact]:
    if not (world.scalable.listed and all(level.listed for level in world.requests.values())):
        return
    now = world.requests_of(job.key)
    waiting = folded(waiting_room(job.key))
    order = {uid: place for place, uid in enumerate(waiting.scaling.requests)} if waiting is not None else {}
    last = len(order)
    # An orphaning delete takes the owner from a request; what is left to tell that it ran is the log.
    elsewhere = begun(job.key) if now.keys() - job.scaling.requests.keys() else ()

    def turn(request: RequestSight) -> tuple[int, str, int]:
        return (order.get(request.uid, last), request.created, request.version)

    for request in sorted((_as_far_as_known(job, request) for request in now.values()), key=turn):
        known = job.scaling.requests.get(request.uid)
        if known is None and (request.uid in elsewhere or _ended_in_a_lost_log(job, request)):
            continue
        if known is not None and request.version < known.version and world.epoch <= job.epoch:
            continue
        if (
            known is None
            or known.gone
            or (request.owner and known.owner != request.owner)
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
    for known in job.scaling.requests.values():
        if known.gone or known.uid in now or known.resize is not None:
            continue
        moved = world.request(known.uid)
        if moved is None:
            # A watch that is behind does not show yet what another replica has recorded.
            if known.version <= world.requests[known.kind].version or world.epoch > job.epoch:
                yield ScaleRequestGone(uid=known.uid)
        elif job.key.uid != NO_UID or _has(folded(world.place(moved)), known.uid):
            yield ScaleRequestGone(uid=known.uid, reason="Bound")


def _ended_in_a_lost_log(job: Job, request: RequestSight) -> bool:
    return _begun_elsewhere(job) and request.phase in ("ScaleSucceeded", "ScaleFailed")


def _begun_elsewhere(job: Job) -> bool:
    """Requests may have been acted upon of which this history says nothing."""
    return bool(job.integrity.accepted) or job.adopted


def _as_far_as_known(job: Job, request: RequestSight) -> RequestSight:
    """The request; one that was under way when the log was lost cannot be carried on, and must not begin anew."""
    known = job.scaling.requests.get(request.uid)
    if not _begun_elsewhere(job) or request.phase != "Scaling" or (known is not None and known.problems != _UNKNOWN):
        return request
    return msgspec.structs.replace(request, spec=None, problems=_UNKNOWN)


def _has(home: Job | None, request: Uid) -> bool:
    return home is not None and request in home.scaling.requests


def waiting_room(key: JobKey) -> JobKey:
    """Where requests wait for a job of this name."""
    return JobKey(key.namespace, key.name, NO_UID)
