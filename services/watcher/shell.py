"""The watcher's shell: watches into the world, heads examined, timers measured."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from math import inf
from typing import Any, TypeVar

import structlog

from services.watcher.clock import Clock
from services.watcher.heads import accepted, judge
from services.watcher.observe import observe, waiting_room
from services.watcher.views import child_sight, job_sight, pod_sight, request_sight
from services.watcher.world import Level, World
from shared.cluster import Alive, Applied, Blind, Cluster, Deleted, Resource, Snapshot
from shared.cluster.kinds import CONFIGMAPS, PODS, SERVICES
from shared.cluster.objects import Custom, Object
from shared.errors import Refused, Transient
from shared.eventlog import Bucket, EventLog
from shared.frameworks.training import SCALEINS, SCALEOUTS, TRAININGJOBS
from shared.job.chain import Head
from shared.job.events import Author, HeadForged, HistoryBroken, TimePassed
from shared.job.fold import History
from shared.job.naming import JOB_UID, JobKey, Uid, history_subjects
from shared.job.spec import ScaleKind
from shared.job.state import Job
from shared.job.steps import Effect, Record, Step
from shared.job.timing import next_due
from shared.service.parts import Parts
from shared.service.run import Machine, Standing

T = TypeVar("T", bound=Object)
At = tuple[str, str]

VANISHED_AT_ONCE = 10
"""More jobs (or more than a fifth of all) missing from one LIST are not believed gone: a person decides."""

STALL_SECONDS = 5.0
"""A process that stood still this long (paused, or the machine slept) saw nothing meanwhile."""

_HINTS = {
    "NotFound": "`muster crds | kubectl apply -f -` installs the definitions",
    "Forbidden": "give this service account get, list and watch of it",
}
"""What a person can do about a watch that is refused."""

log = structlog.get_logger()


class Watcher:
    """The service; one watch per resource."""

    author: Author = "watcher"

    def __init__(
        self,
        cluster: Cluster,
        eventlog: EventLog,
        heads: Bucket,
        *,
        namespace: str = "",
        believes_vanished: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """An empty `namespace` is the whole cluster; `believes_vanished` is a person's word that many jobs are gone."""
        self._cluster = cluster
        self._log = eventlog
        self._heads = heads
        self._namespace = namespace
        self._now = now
        self._world = World()
        self._clock = Clock()
        self._identity = ""
        self._examined: dict[JobKey, tuple[str, Head]] = {}
        self._wrong: dict[JobKey, tuple[HistoryBroken | HeadForged, int]] = {}
        """What is wrong with a head, and how far the fold was when that was found."""
        self._checking: set[JobKey] = set()
        self._believes_vanished = believes_vanished
        self._held_back = False
        """Too many jobs vanished at once to be believed."""
        self._beat = inf
        """When this process was last known to move, on the loop's clock."""
        self._tasks = asyncio.TaskGroup()

    def known(self) -> Iterable[JobKey]:
        return self._world.keys()

    async def act(self, effect: Effect, standing: Standing) -> None:
        raise AssertionError(f"the watcher has no effects, and was asked for {effect}")

    def decide(self, history: History) -> list[Step]:
        """The facts that are owed: what the world shows and the log lacks, and timers that ran out."""
        job = history.job
        key = job.key
        sight = self._world.job(key)
        if sight is not None and sight.head is not None and self._examined.get(key) != (sight.log, sight.head):
            self._check(key, self._examine(history, sight.log, sight.head))
            if key not in self._examined:
                # Nothing is said about a job whose history may have been lost.
                return []
        wrong, found = self._wrong.get(key, (None, 0))
        if wrong is not None and not _told(job, wrong, found):
            return [Record(wrong)]
        if job.broken:
            # Nobody acts meanwhile, so no deadline runs: measuring lets go of those that did.
            self._timers(history)
            # What is there is taken on with the acceptance: before a list of pods nobody knows what that is.
            wish = sight.accept if sight is not None and self._world.pods.listed else ""
            return [Record(event) for event in accepted(job, wish, self._world.pods_of(key))]
        if self._may_be_gone(history):
            self._check(key, self._confirm(key))
        facts = observe(job, self._world, self._folded, self._begun)
        self._see_off(job)
        return [*map(Record, facts), *map(Record, self._timers(history))]

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
        self._identity = await self._log.identity()
        world, selector = self._world, JOB_UID
        async with self._tasks as tasks:
            tasks.create_task(self._notice_stalls())
            tasks.create_task(
                self._follow(
                    TRAININGJOBS,
                    world.jobs,
                    lambda at, manifest: world.set_job(
                        at, job_sight(TRAININGJOBS.kind, TRAININGJOBS.api_version, manifest) if manifest else None
                    ),
                )
            )
            tasks.create_task(self._follow_requests(SCALEINS, "ScaleIn"))
            tasks.create_task(self._follow_requests(SCALEOUTS, "ScaleOut"))
            tasks.create_task(
                self._follow(
                    PODS, world.pods, lambda at, pod: world.set_pod(at, pod_sight(pod) if pod else None), selector
                )
            )
            tasks.create_task(self._follow_children(SERVICES, selector))
            tasks.create_task(self._follow_children(CONFIGMAPS, selector))

    async def _follow_requests(self, resource: Resource[Custom], kind: ScaleKind) -> None:
        await self._follow(
            resource,
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

    async def _follow(
        self,
        resource: Resource[T],
        level: Level[Any],
        put: Callable[[At, T | None], set[JobKey]],
        selector: str = "",
    ) -> None:
        async for seen in self._cluster.watch(resource, namespace=self._namespace, selector=selector):
            match seen:
                case Snapshot(objects=objects, version=version):
                    self._raise_epoch(level, version)
                    now = {_at(thing): thing for thing in sorted(objects, key=lambda thing: thing.metadata.version)}
                    for at in [at for at in level if at not in now]:
                        put(at, None)
                    for at, thing in now.items():
                        put(at, thing)
                    level.version, level.blind = version, False
                    self._hold_if_too_many(resource)
                    self._life()
                    self._wake_all()
                    continue
                case Applied(object=thing):
                    concerned = put(_at(thing), thing)
                    level.version = max(level.version, thing.metadata.version)
                case Deleted(object=thing):
                    concerned = put(_at(thing), None)
                    level.version = max(level.version, thing.metadata.version)
                case Alive():
                    level.blind, concerned = False, set()
                case Blind(reason=reason):
                    log.warning("watch broken", resource=resource.plural, why=reason, hint=_HINTS.get(reason, ""))
                    level.blind, concerned = True, set()
            self._life()
            for key in concerned:
                self._machine.wake(key)

    def _raise_epoch(self, level: Level[Any], version: int) -> None:
        # Versions are the store's revision: a complete LIST that is older than what was seen is another store.
        jobs = [history.job for history in self._machine.histories]
        self._world.epoch = max([self._world.epoch, *(job.epoch for job in jobs)])
        newest = [job for job in jobs if job.epoch == self._world.epoch]
        known = 0
        # Only with what came from this very watch: another one may be ahead of this LIST.
        if level is self._world.jobs:
            known = max((job.version for job in newest), default=0)
        elif level is self._world.pods:
            known = max((pod.version for job in newest for pod in job.pods.values()), default=0)
        if version < max(level.version, known):
            self._world.epoch += 1
            log.warning("resource versions went back", to=version, known=known, epoch=self._world.epoch)

    def _wake_all(self) -> None:
        for key in {*self._world.keys(), *(history.job.key for history in self._machine.histories)}:
            self._machine.wake(key)

    def _life(self) -> None:
        if self._clock.life(sees=self._world.sees()):
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
            self._clock.life(sees=False)
            self._clock.life(sees=self._world.sees())
            loop.call_soon(self._wake_all)

    def _timers(self, history: History) -> list[TimePassed]:
        # After a stall the wake-up of a deadline may be the first thing to run.
        self._notice_stall()
        key, monotonic = history.job.key, asyncio.get_running_loop().time()
        out, following = self._clock.measure(key, next_due(history.job), monotonic, self._now())
        if following is not None:
            self._machine.wake_later(key, following + 0.001)
        return [TimePassed(anchor=timer.anchor, timer=timer.name) for timer in out]

    def _may_be_gone(self, history: History) -> bool:
        job = history.job
        return (
            bool(job.generation)
            and not job.gone
            and self._world.jobs.listed
            and not self._held_back
            and self._world.job(job.key) is None
            and job.key not in self._world.confirmed_gone
        )

    def _hold_if_too_many(self, resource: Resource[T]) -> None:
        if resource.kind != TRAININGJOBS.kind:
            return
        alive = [h.job for h in self._machine.histories if h.job.generation and not h.job.gone]
        missing = sum(self._world.job(job.key) is None for job in alive)
        self._held_back = missing > max(VANISHED_AT_ONCE, len(alive) // 5) and not self._believes_vanished
        if self._held_back:
            log.error(
                "too many jobs vanished at once; none is believed gone until MUSTER_BELIEVE_VANISHED=true says so",
                missing=missing,
                of=len(alive),
            )

    def _check(self, key: JobKey, work: Coroutine[Any, Any, None]) -> None:
        if key in self._checking:
            work.close()
            return
        self._checking.add(key)
        task = self._tasks.create_task(work)
        task.add_done_callback(lambda _: self._checking.discard(key))

    async def _confirm(self, key: JobKey) -> None:
        """Ask for this very job: only its own GET says that it is gone."""
        try:
            found = await self._cluster.get(TRAININGJOBS, key.namespace, key.name)
        except (Transient, Refused) as trouble:
            log.info("cannot confirm that a job is gone", job=str(key), why=str(trouble))
            self._machine.wake_later(key, 1.0)
            return
        if found is None or found.metadata.uid != key.uid:
            self._world.confirmed_gone.add(key)
        self._machine.wake_later(key, 0.0)

    async def _examine(self, history: History, named: str, head: Head) -> None:
        """Compare a head from a resource with the log; a fold that is behind it catches up first."""
        key = history.job.key
        try:
            end = await self._log.end()
            known = history.hash_at(head.sequence)
            if known is None and key not in self._examined and head.sequence <= end:
                known = await self._read_again(history, head.sequence)
            kept = await self._heads.get(key.uid) if known not in (None, head.hash) else None
        except (Transient, Refused) as trouble:
            log.info("cannot examine a head", job=str(key), why=str(trouble))
            self._machine.wake_later(key, 1.0)
            return
        checkpoint = kept.value.decode() if kept is not None else ""
        wrong = judge(self._identity, named, head, end=end, known=known, checkpoint=checkpoint)
        if wrong is not None:
            self._wrong[key] = wrong, history.sequence
            log.error("head is wrong", job=str(key), head=str(head), verdict=type(wrong).__name__)
        else:
            self._wrong.pop(key, None)
        self._examined[key] = (named, head)
        self._machine.wake_later(key, 0.0)

    async def _read_again(self, history: History, sequence: int) -> str | None:
        """The hash of a job's history up to a sequence, from the log itself; None when it has no such event."""
        key = history.job.key
        again = History(key)
        async for batch in self._log.read(subjects=history_subjects(key)):
            for stored in batch.events:
                if stored.sequence <= sequence:
                    again.fold(stored)
            if not batch.pending or (batch.events and batch.events[-1].sequence >= sequence):
                break
        return again.head.hash if again.sequence == sequence else ""


def _at(thing: Object) -> At:
    return thing.metadata.namespace, thing.metadata.name


def _told(job: Job, wrong: HistoryBroken | HeadForged, found: int) -> bool:
    """The log knows of it, or a person accepted it before."""
    head = f"{wrong.sequence}:{wrong.hash}"
    if head in job.accepted_heads:
        return True
    return job.forged > found if isinstance(wrong, HeadForged) else job.broken == f"{wrong.log}/{head}"


def build(parts: Parts) -> Watcher:
    """The service from what a process has."""
    return Watcher(
        parts.cluster,
        parts.eventlog,
        parts.heads,
        namespace=parts.settings.namespace,
        believes_vanished=parts.settings.believe_vanished,
    )
