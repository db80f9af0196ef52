"""The watcher's shell: watches into the world, timers measured; what it asks besides is in `checks.py`."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Any, TypeVar, get_args

import structlog

from services.watcher.checks import Checks
from services.watcher.clock import Clock
from services.watcher.disruption import node_sight, tolerations
from services.watcher.epochs import Known, known, went_back
from services.watcher.heads import accepted
from services.watcher.observe import bereft_of, observe, waiting_room
from services.watcher.pace import pause
from services.watcher.takeover import begun_by_another
from services.watcher.vanished import counts, may_be_gone, missing, too_many
from services.watcher.views import child_sight, inherited_sight, job_sight, pod_sight, request_sight
from services.watcher.world import Level, World
from shared.cluster import Alive, Applied, Blind, Cluster, Deleted, Resource, Seen, Snapshot
from shared.cluster.kinds import CONFIGMAPS, NODES, PODS, SECRETS, SERVICES
from shared.cluster.objects import Custom, Object
from shared.eventlog import Bucket, EventLog
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.training import REQUESTS, TRAININGJOBS
from shared.job.events import Author, Fact, PodsGone, PodsObserved, TimePassed
from shared.job.fold import History
from shared.job.naming import JOB_UID, JobKey, Uid
from shared.job.spec import ScaleKind
from shared.job.state import Job
from shared.job.steps import Effect, Record, Step
from shared.job.timing import next_due
from shared.service.acts import Standing
from shared.service.parts import Parts
from shared.service.run import Machine

T = TypeVar("T", bound=Object)
At = tuple[str, str]

STALL_SECONDS = 5.0
"""A process that stood still this long (paused, or the machine slept) saw nothing meanwhile."""

LISTS_THAT_WENT_BACK = 3
"""So many in a row that are older than what was known make another store; one or two are an old answer's echo."""

LIST_AGAIN_SECONDS = 1.0
"""Between two of them."""

SCALE_KINDS: tuple[ScaleKind, ...] = get_args(ScaleKind)

NOT_SERVED = "NotFound"
"""The API server's word for a list of a kind whose definition is not installed."""

log = structlog.get_logger()


class Watcher:
    """The service; one watch per resource."""

    author: Author = "watcher"

    def __init__(
        self,
        cluster: Cluster,
        eventlog: EventLog,
        heads: Bucket,
        kinds: Kinds = BUILT_IN,
        *,
        namespace: str = "",
        believes_vanished: bool = False,
        takes_over: bool = False,
        disruption_taints: Collection[str] = (),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """An empty `namespace` is the whole cluster; `believes_vanished` is a person's word that many jobs are gone,
        `takes_over` that the operators before us are.

        `disruption_taints` are keys of taints that say, besides the well-known ones, that a node is about to go.
        """
        self._cluster = cluster
        self._namespace = namespace
        self._now = now
        self._kinds = kinds
        self._world = World(kinds, takes_over=takes_over)
        self._clocks: Mapping[Resource[Custom], Clock] = {kind: Clock() for kind in self._world.jobs}
        """One for each kind of job: of one kind the watch may be broken while the others go on."""
        self._promises = Clock()
        """For histories of no kind, such as waiting rooms: in them is nothing to judge."""
        self._believes_vanished = believes_vanished
        self._disruption_taints = disruption_taints
        self._held_back = True
        """Too many jobs vanished at once to be believed; or that cannot be told yet."""
        self._beat = inf
        """When this process was last known to move, on the loop's clock."""
        self._left_alone: set[JobKey] = set()
        """Jobs of other operators that were spoken of."""
        self._paused: set[JobKey] = set()
        """Jobs whose pods were told of a moment ago."""
        self._tasks = asyncio.TaskGroup()
        self._checks = Checks(cluster, eventlog, heads, kinds, self._world, self._tasks, self._wake_later)
        self._streams: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._following: Sequence[asyncio.Task[None] | None] = []

    def known(self) -> Iterable[JobKey]:
        return self._world.keys()

    async def act(self, effect: Effect, standing: Standing) -> None:
        raise AssertionError(f"the watcher has no effects, and was asked for {effect}")

    def decide(self, history: History) -> list[Step]:
        """The facts that are owed: what the world shows and the log lacks, and timers that ran out."""
        job = history.job
        key = job.key
        if job.epoch > self._world.epoch:
            # Another replica saw the store go back; what we saw before that is no news.
            self._enter(job.epoch)
        sight = self._world.job(key)
        if not self._checks.examined(history, sight):
            # Nothing is said about a job whose history may have been lost.
            return []
        if (wrong := self._checks.untold(job)) is not None:
            return [Record(wrong)]
        if job.broken:
            # Nobody acts meanwhile, so no deadline runs: measuring lets go of those that did.
            self._timers(history)
            # What is there is taken on with the acceptance: before a list of pods nobody knows what that is.
            wish = sight.accept if sight is not None and self._world.pods.listed else ""
            return [Record(event) for event in accepted(job, wish, self._world.pods_of(key))]
        if (theirs := begun_by_another(job, sight)) is not None:
            return [Record(theirs)]
        if job.another:
            self._tell_of_another(job)
        vanished = may_be_gone(job, self._world) and not self._held_back
        if vanished or bereft_of(job, self._world) - self._world.vouched:
            self._checks.confirm(history)
        facts = observe(job, self._world, self._folded, self._begun, pods=key not in self._paused)
        self._pause_after(history, facts)
        self._see_off(job)
        return [*map(Record, facts), *map(Record, self._timers(history))]

    def _tell_of_another(self, job: Job) -> None:
        """Once in the life of this process."""
        framework = self._kinds.find(job.api_version, job.kind)
        if framework is None or job.gone or job.key in self._left_alone:
            return
        self._left_alone.add(job.key)
        if not framework.inherits:
            log.warning("a job of another operator is left alone: its kind cannot be taken over", job=str(job.key))
        elif not self._world.takes_over:
            log.warning(
                "a job of another operator is left alone until MUSTER_TAKE_OVER=true says that operator is gone",
                job=str(job.key),
            )

    def _pause_after(self, history: History, facts: list[Fact]) -> None:
        """Tell of a job's pods only once in a while; what does not fit into one event goes on at once."""
        key = history.job.key
        views = sum(isinstance(fact, PodsObserved | PodsGone) for fact in facts)
        # What has to wait for the append before it was not told yet.
        if views == 1 and not self._machine.appends.busy(history):
            seconds = pause(len(self._world.pods_of(key)), self._machine.appends.seconds, len(self._paused))
            self._paused.add(key)
            asyncio.get_running_loop().call_later(seconds, self._resume, key)

    def _resume(self, key: JobKey) -> None:
        self._paused.discard(key)
        self._machine.wake(key)

    def _wake_later(self, key: JobKey, seconds: float) -> None:
        self._machine.wake_later(key, seconds)

    def _folded(self, key: JobKey) -> Job | None:
        history = self._machine.histories.get(key)
        return history.job if history is not None else None

    def _begun(self, key: JobKey) -> set[Uid]:
        lives = [life.job for life in self._machine.histories.lives(key) if life.job.key != key]
        return {uid for job in lives for uid, request in job.requests.items() if request.phase != "Pending"}

    def _see_off(self, job: Job) -> None:
        """Requests that this history has by now may leave the one where they were before."""
        waiting = self._folded(waiting_room(job.key))
        if waiting is not None and waiting is not job and waiting.requests.keys() & job.requests.keys():
            self._machine.wake_later(waiting.key, 0.0)

    async def attend(self, machine: Machine) -> None:
        """Watch every resource; each change wakes the jobs it concerns."""
        self._machine = machine
        # A LIST is compared with what the log knew before it was asked for.
        await machine.folded.wait()
        world, selector = self._world, JOB_UID
        requests = SCALE_KINDS if TRAININGJOBS in world.jobs else ()
        self._streams = [
            *(partial(self._follow_jobs, framework) for framework in self._kinds),
            *(partial(self._follow_requests, kind) for kind in requests),
            lambda: self._follow(
                PODS,
                world.pods,
                lambda at, pod: world.set_pod(at, pod_sight(pod), tolerations(pod)) if pod else world.set_pod(at, None),
                selector,
            ),
            *(partial(self._follow_inherited, theirs) for theirs in world.inherited),
            lambda: self._follow_children(SERVICES, selector),
            lambda: self._follow_children(CONFIGMAPS, selector),
            lambda: self._follow_children(SECRETS, selector),
        ]
        if not self._namespace:
            # They belong to no namespace; whoever works in one alone is told by the pods' own conditions.
            self._streams.append(self._follow_nodes)
        async with self._tasks as tasks:
            tasks.create_task(self._notice_stalls())
            self._begin()

    def _begin(self, but: asyncio.Task[Any] | None = None) -> None:
        """Begin every watch anew, `but` one that lists just now."""
        running = self._following or [None] * len(self._streams)
        self._following = [
            task if task is not None and task is but else self._tasks.create_task(stream())
            for task, stream in zip(running, self._streams, strict=True)
        ]
        for task in running:
            if task is not None and task is not but:
                task.cancel()

    def _enter(self, epoch: int, but: asyncio.Task[Any] | None = None) -> None:
        """The store is another one; a watch that did not break would never find out by itself."""
        if epoch > self._world.epoch:
            self._world.enter(epoch)
            if self._following:
                self._begin(but)

    async def _follow_jobs(self, framework: Framework) -> None:
        kind = framework.resource

        def seen(at: At, manifest: Custom | None) -> set[JobKey]:
            ours = manifest is not None and framework.ours(manifest)
            return self._world.set_job(kind, at, job_sight(framework, manifest) if manifest and ours else None)

        await self._follow(kind, self._world.jobs[kind], seen)

    async def _follow_inherited(self, selector: str) -> None:
        await self._follow(
            PODS,
            self._world.inherited[selector],
            lambda at, pod: self._world.set_inherited(selector, at, inherited_sight(pod, self._kinds) if pod else None),
            selector,
        )

    async def _follow_requests(self, kind: ScaleKind) -> None:
        await self._follow(
            REQUESTS[kind],
            self._world.requests[kind],
            lambda at, seen: self._world.set_request(kind, at, request_sight(kind, seen) if seen else None),
        )

    async def _follow_children(self, resource: Resource[Object], selector: str) -> None:
        await self._follow(
            resource,
            self._world.children[resource.kind],
            lambda at, child: self._world.set_child(
                resource.kind, at, child_sight(resource.kind, child) if child else None
            ),
            selector,
        )

    async def _follow_nodes(self) -> None:
        taints = self._disruption_taints
        await self._follow(
            NODES,
            self._world.nodes,
            lambda at, node: self._world.set_node(at[1], node_sight(node, taints) if node else None),
        )

    async def _follow(
        self,
        resource: Resource[T],
        level: Level[Any],
        put: Callable[[At, T | None], set[JobKey]],
        selector: str = "",
    ) -> None:
        before, doubts = self._known(resource, level), 0
        while True:
            async with aclosing(self._cluster.watch(resource, namespace=self._namespace, selector=selector)) as watch:
                async for seen in watch:
                    if isinstance(seen, Snapshot):
                        before = (
                            before if doubts and before.epoch == self._world.epoch else self._known(resource, level)
                        )
                        if went_back(before, seen.version, seen.objects):
                            doubts += 1
                            if doubts < LISTS_THAT_WENT_BACK:
                                break
                            self._enter_another_store(before, seen.version)
                        doubts = 0
                    self._take(resource, level, put, seen)
                else:
                    # Our client was closed.
                    return
            log.info("list older than what is known", resource=resource.plural, known=before.reached)
            level.blind = True
            self._life()
            await asyncio.sleep(LIST_AGAIN_SECONDS)

    def _take(
        self, resource: Resource[T], level: Level[Any], put: Callable[[At, T | None], set[JobKey]], seen: Seen[T]
    ) -> None:
        """Into the world with it, and wake the jobs that it concerns."""
        concerned: set[JobKey] = set()
        match seen:
            case Snapshot(objects=objects, version=version):
                now = {_at(thing): thing for thing in sorted(objects, key=lambda thing: thing.metadata.version)}
                for at in [at for at in level if at not in now]:
                    put(at, None)
                for at, thing in now.items():
                    put(at, thing)
                level.version, level.blind, level.outdated = version, False, False
                if level.absent:
                    level.absent = False
                    log.info("kind is served", kind=_name(resource))
                self._hold_if_too_many(resource)
                self._wake_all()
            case Applied(object=thing):
                concerned = put(_at(thing), thing)
                level.version = max(level.version, thing.metadata.version)
            case Deleted(object=thing):
                concerned = put(_at(thing), None)
                level.version = max(level.version, thing.metadata.version)
            case Alive():
                level.blind = False
            case Blind(reason=reason) if reason == NOT_SERVED and not level.version:
                # Nobody installed it, or not yet: the watch goes on asking, and nobody misses anything meanwhile.
                if not level.absent:
                    log.info("kind is not served", kind=_name(resource))
                level.absent = True
            case Blind(reason=reason):
                log.info("watch broken", resource=resource.plural, why=reason)
                if resource is NODES and not level.listed:
                    log.warning("nodes are not seen: workers leave ahead of one only when their own pods say so")
                self._machine.alarm.set()
                level.blind = True
        if isinstance(seen, Blind) and resource in self._world.jobs and not level.answered:
            self._hold_if_too_many(resource)
            self._wake_all()
        self._life()
        if resource is PODS:
            # They are woken when they may be told of again.
            concerned -= self._paused
        for key in concerned:
            self._machine.wake(key)

    def _known(self, resource: Resource[Any], level: Level[Any]) -> Known:
        """What any LIST that is asked for from now on must show, at least."""
        jobs = [history.job for history in self._machine.histories]
        self._enter(max((job.epoch for job in jobs), default=0), asyncio.current_task())
        return known(self._world.epoch, 0 if level.outdated else level.version, jobs, resource)

    def _enter_another_store(self, before: Known, version: int) -> None:
        self._enter(before.epoch + 1, asyncio.current_task())
        log.warning("resource versions went back", to=version, known=before.reached, epoch=self._world.epoch)

    def _wake_all(self) -> None:
        for key in {*self._world.keys(), *(history.job.key for history in self._machine.histories)}:
            self._machine.wake(key)

    def _life(self) -> None:
        changed = [clock.life(sees=self._world.sees(kind)) for kind, clock in self._clocks.items()]
        if any(changed):
            self._wake_all()

    async def _notice_stalls(self) -> None:
        while True:
            self._notice_stall()
            await asyncio.sleep(1.0)

    def _notice_stall(self) -> None:
        loop = asyncio.get_running_loop()
        stood, self._beat = loop.time() - self._beat, loop.time()
        if stood > STALL_SECONDS:
            log.warning("stood still", seconds=round(stood))
            for kind, clock in self._clocks.items():
                clock.life(sees=False)
                clock.life(sees=self._world.sees(kind))
            loop.call_soon(self._wake_all)

    def _timers(self, history: History) -> list[TimePassed]:
        # After a stall the wake-up of a deadline may be the first thing to run.
        self._notice_stall()
        key, monotonic = history.job.key, asyncio.get_running_loop().time()
        framework = self._kinds.find(history.job.api_version, history.job.kind)
        clock = self._clocks[framework.resource] if framework is not None else self._promises
        out, following = clock.measure(key, next_due(history.job), monotonic, self._now())
        if following is not None:
            self._machine.wake_later(key, following + 0.001)
        return [TimePassed(anchor=timer.anchor, timer=timer.name) for timer in out]

    def _hold_if_too_many(self, resource: Resource[Any]) -> None:
        """Of all kinds together: whatever lost the jobs of one lost those of the others, whose lists may come later."""
        if resource not in self._world.jobs:
            return
        self._world.jobs[resource].answered, self._held_back = True, True
        if not all(level.answered for level in self._world.jobs.values()):
            return
        alive = [history.job for history in self._machine.histories if counts(history.job, self._world)]
        lost = sum(missing(job, self._world) for job in alive)
        self._held_back = too_many(lost, len(alive)) and not self._believes_vanished
        if self._held_back:
            log.error(
                "too many jobs vanished at once; none is believed gone until MUSTER_BELIEVE_VANISHED=true says so",
                missing=lost,
                of=len(alive),
            )


def _name(resource: Resource[Any]) -> str:
    return f"{resource.plural}.{resource.group}".rstrip(".")


def _at(thing: Object) -> At:
    return thing.metadata.namespace, thing.metadata.name


def build(parts: Parts) -> Watcher:
    """The service from what a process has."""
    return Watcher(
        parts.cluster,
        parts.eventlog,
        parts.heads,
        parts.kinds,
        namespace=parts.settings.namespace,
        believes_vanished=parts.settings.believe_vanished,
        takes_over=parts.settings.take_over,
        disruption_taints=parts.settings.disruption_taints,
    )
