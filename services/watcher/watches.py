"""The watches: one for each resource, which fill the cache.  Implausible lists are not believed.

`core/lists.py` says which lists are implausible.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar, get_args

import msgspec
import structlog

from services.watcher.core import actors
from services.watcher.core.budgets import Limits
from services.watcher.core.cache import Cache, Concerned, Listing
from services.watcher.core.disruption import DEFAULT_NOTICE_SECONDS, lost_by_pod, observed_node, tolerations
from services.watcher.core.lists import Known, counts, missing, too_many
from services.watcher.core.observed import ObservedJob
from services.watcher.core.referring import Referring
from services.watcher.core.views import inherited_pod, observed_child, observed_job, observed_pod, observed_request
from services.watcher.deadlines import Deadlines
from shared.cluster import Alive, Applied, Blind, Cluster, Deleted, Resource, Snapshot
from shared.cluster.kinds import CONFIGMAPS, NAMESPACES, NODES, PODS, SERVICES
from shared.cluster.objects import Custom, Metadata, Object, Pod, Toleration
from shared.cluster.scope import lacking
from shared.frameworks import gangs
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import Kinds
from shared.frameworks.queueing import FLAVORS, WORKLOADS
from shared.frameworks.runtimes import JobRuntime, Reference, Without, joined, read
from shared.frameworks.scale_requests import REQUESTS
from shared.installation.plugins import GuardedReferring
from shared.job.naming import JOB_UID, JobKey
from shared.job.spec import ScaleKind
from shared.job.views import PodView
from shared.process.serving import Certificate
from shared.runtime.run import Runtime

T = TypeVar("T", bound=Object)
V = TypeVar("V")
At = tuple[str, str]

LISTS_THAT_WENT_BACK = 3
"""After so many lists in a row with an older version the store counts as restored; fewer may be late answers."""

LIST_AGAIN_SECONDS = 1.0

SCALE_KINDS: tuple[ScaleKind, ...] = get_args(ScaleKind)

NOT_SERVED = "NotFound"
"""The API server's reason for a list of a kind whose definition is not installed."""

log = structlog.get_logger()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str = ""
    """Empty for the whole cluster."""
    namespace_selector: tuple[str, ...] = ()
    """The labels of the namespaces in which jobs may begin; empty for every namespace but the system's."""
    believes_vanished: bool = False
    """Confirms that many jobs are gone."""
    takes_over: bool = False
    """Confirms that the earlier operators are gone."""
    disruption_taints: Collection[str] = ()
    """Further keys of taints that announce the removal of a node."""
    notice_seconds: int = DEFAULT_NOTICE_SECONDS
    """Seconds from a notice of unknown length to the removal of the node."""
    force_delete_after: int | None = None
    """Seconds after its grace period when a terminating pod of a lost node is deleted by force; None for never."""
    seal_after: int | None = None
    """Seconds after which the history of a job that is gone with all that it had is sealed; None for never."""
    kueue: bool = False
    pod_groups: Resource[Object] | None = None
    """The version of PodGroups by which pods are placed together; None if none are."""
    no_gangs: str = gangs.OFF
    """Why a job that asks for a gang gets none, without `pod_groups`."""
    last_words: bool = True
    """False if no termination message is recorded."""
    limits: Limits = Limits()
    progress_seconds: float = 10.0
    """Seconds between two events about the progress of one job."""
    stalls: bool = True
    """False if no program can report, so that none is stalled."""
    progress: Certificate | None = None
    """Where training programs report; None for no port."""


DEFAULTS = Options()


class Viewed(Object, frozen=True, kw_only=True):
    """What is kept of an object: where and of which version it is, and what the cache has of it."""

    view: Any


class Watches:
    def __init__(
        self,
        cluster: Cluster,
        kinds: Kinds,
        cache: Cache,
        deadlines: Deadlines,
        tasks: asyncio.TaskGroup,
        rests: Callable[[JobKey, bool], bool],
        options: Options,
    ) -> None:
        """`rests(key, gone)`: True if a change of a pod, or with `gone` its end, need not wake the job now."""
        self._cluster = cluster
        self._kinds = kinds
        self._cache = cache
        self._deadlines = deadlines
        self._tasks = tasks
        self._rests = rests
        self._options = options
        self._namespace = options.namespace
        cache.without_nodes = bool(options.namespace)
        if options.namespace_selector and not options.namespace:
            cache.namespaces = Listing()
        # Cluster-scoped kinds are seen by an installation for the whole cluster alone.
        self._answered: Mapping[Resource[Custom], asyncio.Event] = {
            each.resource: asyncio.Event()
            for framework in kinds
            for each in framework.runtimes
            if not (each.of_cluster and options.namespace)
        }
        """Set once the first LIST of a kind of runtime was answered, or refused."""
        self._referring = Referring()
        self._changed: dict[Reference, None] = {}
        """The runtimes whose jobs are to be read anew, also by the next watch if this one is cancelled."""
        self._following: Sequence[asyncio.Task[None] | None] = []
        self._lists = 0
        """The number of lists of jobs so far, failed ones too; the newest decides whether too many jobs are missing."""

    def begin(self, runtime: Runtime) -> None:
        """Start every watch; each change wakes the jobs that it concerns."""
        self._runtime = runtime
        self._streams = self._all()
        self._begin()

    def _all(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        cache, kinds, options, selector = self._cache, self._kinds, self._options, JOB_UID
        children: list[Resource[Any]] = [SERVICES, CONFIGMAPS, *([WORKLOADS] if options.kueue else [])]
        streams: list[Callable[[], Coroutine[Any, Any, None]]] = [
            *(partial(self._follow_runtimes, kind) for kind in self._answered),
            *(
                partial(self._follow_jobs, GuardedReferring(framework) if framework.runtimes else framework)
                for framework in kinds
            ),
        ]

        def follow(
            resource: Resource[T],
            listing: Listing[Any],
            read: Callable[[T], V | None],
            put: Callable[[At, V | None], Concerned],
            selector: str = "",
        ) -> None:
            streams.append(partial(self._follow, resource, listing, read, put, selector))

        for kind in SCALE_KINDS if cache.scaled is not None else ():
            request = partial(observed_request, kind, kinds=kinds)
            follow(REQUESTS[kind], cache.requests[kind], request, partial(cache.set_request, kind))
        follow(PODS, cache.pods, self._pod, lambda at, seen: cache.set_pod(at, *(seen or (None,))), selector)
        for theirs, listing in cache.inherited.items():
            inherited = partial(inherited_pod, kinds=kinds, last_words=options.last_words)
            follow(PODS, listing, inherited, partial(cache.set_inherited, theirs), theirs)
        if options.pod_groups is not None:
            children.append(options.pod_groups)
        for child in children:
            read = partial(observed_child, child.kind, kinds=kinds, known=self._in_the_log)
            follow(child, cache.children[child.kind], read, partial(cache.set_child, child.kind), selector)
        if options.kueue:
            follow(FLAVORS, cache.flavors, lambda flavor: flavor, lambda at, seen: cache.set_flavor(at[1], seen))
        if (namespaces := cache.namespaces) is not None:

            def lacks(namespace: Object) -> tuple[str, ...]:
                return lacking(options.namespace_selector, namespace.metadata.labels)

            follow(NAMESPACES, namespaces, lacks, lambda at, seen: cache.set_namespace(at[1], seen))
        if not self._namespace:
            # Nodes are cluster-scoped; an installation in one namespace sees only the conditions of pods.
            node = partial(observed_node, more=options.disruption_taints, notice_seconds=options.notice_seconds)
            follow(NODES, cache.nodes, node, lambda at, seen: cache.set_node(at[1], seen))
        return streams

    def _begin(self, but: asyncio.Task[Any] | None = None) -> None:
        """Restart every watch except `but`, which is listing now."""
        running = self._following or [None] * len(self._streams)
        self._following = [
            task if task is not None and task is but else self._tasks.create_task(stream())
            for task, stream in zip(running, self._streams, strict=True)
        ]
        for task in running:
            if task is not None and task is not but:
                task.cancel()

    def enter(self, epoch: int, but: asyncio.Task[Any] | None = None) -> None:
        """Restart the watches for a restored store; a watch that does not break would not notice it."""
        if epoch > self._cache.epoch:
            self._cache.enter(epoch)
            for answered in self._answered.values():
                answered.clear()
            if self._following:
                self._begin(but)

    async def _follow_jobs(self, framework: Framework) -> None:
        kind = framework.resource
        for runtime in framework.runtimes:
            # Until it was listed, a runtime is not known to be missing.
            if (answered := self._answered.get(runtime.resource)) is not None:
                await answered.wait()

        def seen(manifest: Custom) -> Custom | ObservedJob | None:
            if not framework.ours(manifest):
                return None
            return manifest if framework.runtimes else self._observed(framework, manifest)

        put: Callable[[Framework, At, Any], Concerned] = self._put_referring if framework.runtimes else self._put_job
        await self._follow(kind, self._cache.jobs[kind], seen, partial(put, framework))

    def _observed(self, framework: Framework, manifest: Custom) -> ObservedJob:
        options = self._options
        no_gangs = options.no_gangs if options.pod_groups is None else ""
        before = self._cache.jobs[framework.resource].get(_at(manifest))
        return observed_job(framework, manifest, kueue=options.kueue, no_gangs=no_gangs, before=before)

    def _put_job(self, framework: Framework, at: At, seen: ObservedJob | None) -> Concerned:
        kind = framework.resource
        listing = self._cache.jobs[kind]
        job = actors.attributed(seen, listing.get(at), listed=listing.at_once) if seen is not None else None
        return self._cache.set_job(kind, at, job)

    def _put_referring(self, framework: Framework, at: At, manifest: Custom | None) -> Concerned:
        """Put a job that names a runtime: it is read anew whenever that changes."""
        reference = self._referring.put(framework, at, manifest)
        if manifest is None:
            return self._put_job(framework, at, None)
        runtime = self._runtime_at(reference) if reference is not None else None
        return self._put_job(framework, at, self._observed(framework, joined(manifest, runtime)))

    def _runtime_at(self, reference: Reference) -> JobRuntime | Without | None:
        if reference.resource not in self._answered:
            return "not seen"
        listing = self._cache.runtimes[reference.resource]
        return self._cache.runtime(reference) if listing.listed or listing.absent else "not listed"

    async def _follow_runtimes(self, kind: Resource[Custom]) -> None:
        def seen(at: At, now: JobRuntime | None) -> Concerned:
            reference = Reference(kind, *at)
            before = self._cache.runtime(reference)
            if (before and before.used) != (now and now.used):
                self._cache.set_runtime(kind, at, now)
                self._changed[reference] = None
            return ()

        await self._follow(kind, self._cache.runtimes[kind], partial(read, kind), seen)

    async def _read_anew(self, kind: Resource[Any]) -> None:
        """Read the jobs anew whose runtime of this kind changed, in slices."""
        for reference in [each for each in self._changed if each.resource == kind]:
            async for known in self._runtime.in_slices(self._referring.of(reference)):
                # One that was changed or deleted meanwhile was read with the newest runtime.
                for key in self._put_referring(*known) if self._referring.holds(known) else ():
                    self._runtime.wake(key)
            self._changed.pop(reference, None)

    def _pod(self, pod: Pod) -> tuple[tuple[JobKey, PodView], tuple[Toleration, ...], str] | None:
        view = observed_pod(pod, self._kinds, self._in_the_log, last_words=self._options.last_words)
        return (view, tolerations(pod), lost_by_pod(pod)) if view is not None else None

    def _in_the_log(self, key: JobKey) -> bool:
        return self._runtime.histories.get(key) is not None

    async def _follow(
        self,
        resource: Resource[T],
        listing: Listing[Any],
        read: Callable[[T], V | None],
        put: Callable[[At, V | None], Concerned],
        selector: str = "",
    ) -> None:
        """Keep the listing: `read` makes of an object what `put` gets, or None for one that is none of Muster's."""
        seen_as = resource.kept_as(lambda thing: Viewed(metadata=_place(thing.metadata), view=read(thing)))
        before, doubts = await self._known(resource, listing), 0
        while True:
            async with aclosing(self._cluster.watch(seen_as, namespace=self._namespace, selector=selector)) as watch:
                async for seen in watch:
                    if isinstance(seen, Snapshot):
                        if not doubts or before.epoch != self._cache.epoch:
                            before = await self._known(resource, listing)
                        if await self._went_back(before, seen):
                            doubts += 1
                            if doubts < LISTS_THAT_WENT_BACK:
                                break
                            self._enter_another_store(before, seen.version)
                        doubts = 0
                        await self._take_all(resource, listing, put, seen)
                    else:
                        await self._take(resource, listing, put, seen)
                else:
                    # The client was closed.
                    return
            log.info("list older than what is known", resource=resource.plural, known=before.reached)
            listing.blind = True
            self._deadlines.look()
            await asyncio.sleep(LIST_AGAIN_SECONDS)

    async def _take_all(
        self,
        resource: Resource[Any],
        listing: Listing[Any],
        put: Callable[[At, Any], Concerned],
        seen: Snapshot[Viewed],
    ) -> None:
        """Put a whole list into the cache, in slices, and wake all jobs.

        Absence counts after that: until then the listing has its old version, and no job counts as gone.
        """
        of_jobs, things = resource in self._cache.jobs, seen.objects
        if of_jobs:
            self._hold_back()
        versions = [thing.metadata.version async for thing in self._runtime.in_slices(things)]
        now = {}
        async for place in self._runtime.in_slices(sorted(range(len(things)), key=versions.__getitem__)):
            now[_at(things[place])] = things[place]
        listing.at_once = True
        async for at in self._runtime.in_slices([*listing]):
            if at not in now:
                put(at, None)
        async for at, thing in self._runtime.in_slices(now.items()):
            put(at, thing.view)
        if not listing.listed and resource in self._cache.runtimes:
            # Their jobs were told that the runtimes cannot be listed.
            self._changed |= dict.fromkeys(self._referring.references(resource))
        listing.version, listing.blind, listing.outdated, listing.at_once = seen.version, False, False, False
        if listing.absent:
            listing.absent = False
            log.info("kind is served", kind=_name(resource))
        if of_jobs:
            await self._hold_if_too_many(resource)
        await self._read_anew(resource)
        self._answer(resource)
        self._runtime.wake_all()
        self._deadlines.look()

    async def _take(
        self,
        resource: Resource[Any],
        listing: Listing[Any],
        put: Callable[[At, Any], Concerned],
        seen: Applied[Viewed] | Deleted[Viewed] | Alive | Blind,
    ) -> None:
        """Put an element of a watch into the cache, and wake the jobs that it concerns."""
        concerned: Concerned = ()
        gone = isinstance(seen, Deleted)
        match seen:
            case Applied(object=thing):
                concerned = put(_at(thing), thing.view)
                # A pod without its owner is no pod of a job.
                gone = _at(thing) not in listing
                listing.version = max(listing.version, thing.metadata.version)
            case Deleted(object=thing):
                concerned = put(_at(thing), None)
                listing.version = max(listing.version, thing.metadata.version)
            case Alive():
                listing.blind = False
            case Blind(reason=reason):
                await self._blind(resource, listing, reason)
        await self._read_anew(resource)
        if isinstance(seen, Alive | Blind):
            self._deadlines.look()
        for key in concerned:
            if resource is not PODS or not self._rests(key, gone):
                self._runtime.wake(key)

    def _answer(self, resource: Resource[Any]) -> None:
        if resource in self._answered:
            self._answered[resource].set()

    async def _blind(self, resource: Resource[Any], listing: Listing[Any], reason: str) -> None:
        """Note that a watch is broken, or that its kind is not served."""
        self._answer(resource)
        if reason == NOT_SERVED and not listing.version:
            # The definition is not installed: the watch tries again until it is.
            if not listing.absent:
                log.info("kind is not served", kind=_name(resource))
            listing.absent = True
        else:
            log.info("watch broken", resource=resource.plural, why=reason)
            if resource is NODES and not listing.listed:
                log.warning("nodes are not watched: only pods tell that a node is removed or lost")
                self._cache.without_nodes = True
            self._runtime.alarm.set()
            listing.blind = True
        if resource in self._cache.jobs and not listing.answered:
            await self._hold_if_too_many(resource)
            self._runtime.wake_all()

    async def _known(self, resource: Resource[Any], listing: Listing[Any]) -> Known:
        """The state that any LIST from now on must have reached."""
        histories, epoch = self._runtime.histories, 0
        async for history in self._runtime.in_slices(histories):
            epoch = max(epoch, history.job.resource.epoch)
        self.enter(epoch, asyncio.current_task())
        known = Known(resource, self._cache.epoch, 0 if listing.outdated else listing.version)
        async for history in self._runtime.in_slices(histories):
            known.add(history.job)
        return known

    async def _went_back(self, before: Known, seen: Snapshot[Viewed]) -> bool:
        older = seen.version < before.reached
        async for thing in self._runtime.in_slices(() if older else seen.objects):
            older = older or before.has_newer(thing)
        return older

    def _enter_another_store(self, before: Known, version: int) -> None:
        self.enter(before.epoch + 1, asyncio.current_task())
        log.warning("resource versions went back", to=version, known=before.reached, epoch=self._cache.epoch)

    def _hold_back(self) -> int:
        """From now on no job counts as gone; return the number of the list that may change that."""
        self._cache.held_back = True
        self._lists += 1
        return self._lists

    async def _hold_if_too_many(self, resource: Resource[Any]) -> None:
        """Hold deletions back if too many jobs, of all kinds together, are missing from their lists."""
        self._cache.jobs[resource].answered = True
        this = self._hold_back()
        if not all(listing.answered for listing in self._cache.jobs.values()):
            return
        lost = alive = 0
        async for history in self._runtime.in_slices(self._runtime.histories):
            if counts(history.job, self._cache):
                alive += 1
                lost += missing(history.job, self._cache)
        if this != self._lists:
            # A newer list has begun.
            return
        doubt = too_many(lost, alive)
        self._cache.held_back = doubt and not self._options.believes_vanished
        if doubt and self._cache.held_back:
            log.error(
                "too many jobs vanished at once; none counts as gone until MUSTER_BELIEVE_VANISHED=true",
                missing=lost,
                of=alive,
            )


def _name(resource: Resource[Any]) -> str:
    return f"{resource.plural}.{resource.group}".rstrip(".")


def _place(meta: Metadata) -> Metadata:
    return Metadata(name=meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version)


def _at(thing: Object) -> At:
    return thing.metadata.namespace, thing.metadata.name
