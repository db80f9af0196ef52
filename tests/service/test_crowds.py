"""With 8,000 finished and 4,000 running jobs in the log, no step of any real service holds its loop for long.

The jobs are copies of two that all four services ran in memory, each in a namespace of its own.
"""

import asyncio
import gc
import time
from asyncio import events
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import msgspec
import pytest

from services.scaler.core import Policy
from services.scaler.shell import Scaler
from services.scheduler.shell import Scheduler
from services.status.shell import Status
from services.watcher.shell import Watcher
from shared.cluster import Cluster, Manifest, Resource, Seen, Snapshot
from shared.cluster.decoding import encode, read_object
from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.cluster.objects import Object
from shared.eventlog import Bucket, EventLog
from shared.eventlog.account import HEADS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.fold import Histories, History
from shared.job.naming import JobKey
from shared.job.steps import Step
from shared.runtime.queue import Slice
from shared.runtime.run import Runtime, Service
from tests.kit.histories import folded
from tests.kit.tasks import beside
from tests.kit.virtual_time import VirtualLoop
from tests.kit.world import NAMESPACE, World, a_training_job
from tests.memory.cluster import MemoryCluster
from tests.memory.eventlog import MemoryEventLog, MemoryJournal

pytestmark = pytest.mark.real_time

FINISHED, RUNNING = 8_000, 4_000

LONGEST_SECONDS = 0.025
"""Of processor time, for which a service may hold its loop."""

LATER = datetime(2031, 1, 1, tzinfo=UTC)
"""Kubernetes has deleted the Events of these jobs."""

KINDS: tuple[Resource[Any], ...] = (TRAININGJOBS, PODS, SERVICES, CONFIGMAPS, SECRETS)

T = TypeVar("T", bound=Object)


class Crowd(NamedTuple):
    """The log and the cluster of many jobs."""

    journal: MemoryJournal
    jobs: tuple[tuple[JobKey, History], ...]
    """Each with the history that its own is a copy of."""
    objects: dict[Resource[Any], tuple[Any, ...]]
    version: int


class Listed(MemoryCluster):
    """A cluster that lists these objects, and in which nothing happens."""

    def __init__(self, crowd: Crowd, world: World) -> None:
        super().__init__(world.store)
        self._crowd = crowd
        jobs = crowd.objects[TRAININGJOBS]
        self._jobs = {(job.metadata.namespace, job.metadata.name): job for job in jobs}

    async def watch(
        self, resource: Resource[T], *, namespace: str = "", selector: str = "", name: str = ""
    ) -> AsyncGenerator[Seen[T], None]:
        await asyncio.sleep(0)
        of_kind = next((found for kind, found in self._crowd.objects.items() if kind.plural == resource.plural), ())
        # As in a list of pages, a few at a time.
        kept = [resource.kept(each) async for each in Slice().each(of_kind)]
        yield Snapshot(tuple(kept), self._crowd.version)
        await asyncio.Event().wait()

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T | None:
        await asyncio.sleep(0)
        found: T | None = self._jobs.get((namespace, name)) if resource == TRAININGJOBS else None
        return found

    async def create(self, resource: Resource[T], namespace: str, manifest: Manifest, *, within: int = 0) -> T:
        raise AssertionError(f"create {resource.kind} {manifest}")

    async def patch(
        self, resource: Resource[T], namespace: str, name: str, manifest: Manifest, *, subresource: str = ""
    ) -> T:
        raise AssertionError(f"patch {resource.kind} {name}: {manifest}")


@pytest.fixture(scope="module")
def world() -> World:
    """Two jobs of all four services: one that is over, and one that runs."""

    async def lived() -> World:
        async with World() as world:
            for name in ("over", "runs"):
                world.apply(TRAININGJOBS, a_training_job(name, workers=2))
                await world.running(name)
            world.exit_codes["over-launcher"] = 0
            await world.phase("Succeeded", TRAININGJOBS, "over")
            await world.quiet()
        return world

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(lived())


@pytest.fixture(scope="module")
def crowd(world: World) -> Crowd:
    lived = folded(world.journal.events)
    jobs: list[tuple[JobKey, History]] = []
    objects: dict[Resource[Any], list[Any]] = {kind: [] for kind in KINDS}
    for name, count in (("over", FINISHED), ("runs", RUNNING)):
        (history,) = (history for history in lived if history.job.key.name == name)
        theirs = [
            (kind, encode(held.manifest)) for kind in KINDS for held in world.store.find(kind) if name in held.at[1]
        ]
        for number in range(count):
            namespace = f"{name}-{number}"
            jobs.append((msgspec.structs.replace(history.job.key, namespace=namespace), history))
            for kind, manifest in theirs:
                mine = manifest.replace(f'"namespace":"{NAMESPACE}"'.encode(), f'"namespace":"{namespace}"'.encode())
                objects[kind].append(read_object(kind, mine))
    kept = {kind: tuple(found) for kind, found in objects.items()}
    return Crowd(world.journal, tuple(jobs), kept, world.store.version)


def fill(histories: Histories, crowd: Crowd) -> None:
    """As if the log had been folded."""
    for key, lived in crowd.jobs:
        history = histories[key]
        history.job = msgspec.structs.replace(lived.job, key=key)
        for slot in ("_basis", "_since_decision", "digest", "facts", "last_decision", "sequence", "time"):
            setattr(history, slot, getattr(lived, slot))
    histories.position = crowd.journal.events[-1].sequence


async def idle(runtime: Runtime, running: asyncio.Task[None], decided: dict[JobKey, int]) -> None:
    """Wait until nothing was decided for a while."""
    before = -1
    while not (runtime.current and decided and before == sum(decided.values())):
        before = sum(decided.values())
        await asyncio.sleep(0.5)
        assert not running.done(), running.result()


class Steps:
    """How long each step of a loop took, without the collection of garbage."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}

    @contextmanager
    def measured(self) -> Iterator["Steps"]:
        run, longest = events.Handle._run, self.longest

        def measure(handle: events.Handle) -> None:
            began = time.thread_time()
            run(handle)
            took = time.thread_time() - began
            if took > LONGEST_SECONDS / 2:
                task = getattr(handle._callback, "__self__", None)
                what = task.get_coro().__qualname__ if isinstance(task, asyncio.Task) else repr(handle)
                longest[what] = max(took, longest.get(what, 0.0))

        events.Handle._run = measure  # type: ignore[method-assign]
        gc.disable()
        try:
            yield self
        finally:
            gc.enable()
            events.Handle._run = run  # type: ignore[method-assign]


Make = Callable[[Cluster, EventLog, Bucket, str], Service]

SERVICES_OF_MUSTER: dict[str, Make] = {
    "watcher": lambda cluster, eventlog, heads, _: Watcher(cluster, eventlog, heads),
    "scheduler": lambda cluster, *_: Scheduler(cluster),
    "scaler": lambda cluster, *_: Scaler(cluster, Policy()),
    "status": lambda cluster, _, heads, identity: Status(cluster, heads, identity),
}


@pytest.mark.parametrize("author", SERVICES_OF_MUSTER)
async def test_no_step_of_a_service_holds_its_loop_for_long(author: str, crowd: Crowd, world: World):
    crowd.journal.wall = LATER.timestamp
    eventlog = MemoryEventLog(crowd.journal, user=author)
    heads, identity = await eventlog.bucket(HEADS), await eventlog.identity()
    service = SERVICES_OF_MUSTER[author](Listed(crowd, world), eventlog, heads, identity)
    decided: dict[JobKey, int] = {}
    decide = service.decide

    def counted(history: History) -> list[Step]:
        decided[history.job.key] = decided.get(history.job.key, 0) + 1
        return decide(history)

    service.decide = counted  # type: ignore[method-assign]
    runtime = Runtime(service, eventlog)
    fill(runtime.histories, crowd)
    events_before = len(crowd.journal.events)
    with Steps().measured() as steps:
        async with beside(runtime.run()) as running:
            await idle(runtime, running, decided)
    assert runtime.held() == {}
    assert len(crowd.journal.events) == events_before, "there is nothing to record"
    assert decided.keys() == {key for key, _ in crowd.jobs}
    assert {what: round(took * 1_000) for what, took in steps.longest.items() if took > LONGEST_SECONDS} == {}
