"""The four services in one process, started and killed one by one."""

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from services.scaler.core import Policy
from services.scaler.shell import Scaler
from services.scheduler.shell import Scheduler
from services.status.shell import Status
from services.watcher.shell import Watcher
from services.watcher.watches import Options
from shared.cluster import Cluster
from shared.eventlog import EventLog
from shared.eventlog.account import HEADS
from shared.frameworks.kinds import Kinds
from shared.release import this_release
from shared.runtime.run import Runtime, Service

AUTHORS = ("watcher", "scheduler", "scaler", "status")


def wall_clock() -> datetime:
    """It goes as the loop's own does, however fast that is."""
    return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=asyncio.get_running_loop().time())


async def a_service(
    author: str,
    cluster: Cluster,
    log: EventLog,
    kinds: Kinds,
    *,
    policy: Policy,
    options: Options,
    chance: Callable[[], float] = random.random,
) -> Service:
    """The service of this author, with nothing but the log and the cluster."""
    heads = await log.bucket(HEADS)
    match author:
        case "watcher":
            return Watcher(cluster, log, heads, kinds, options)
        case "scheduler":
            return Scheduler(cluster, kinds, pod_groups=options.pod_groups)
        case "scaler":
            return Scaler(cluster, policy, kinds)
        case _:
            return Status(cluster, heads, await log.identity(), kinds, chance=chance)


class Services(ABC):
    """Services that share this process, and each of them a cluster and a log as it reaches them."""

    clock: Callable[[], float] = staticmethod(time.perf_counter)
    """What measures how long they hold the loop."""
    chance: Callable[[], float] = staticmethod(random.random)
    """What spreads their retries."""

    def __init__(
        self, kinds: Kinds, *, policy: Policy, namespace: str = "", now: Callable[[], datetime] = wall_clock
    ) -> None:
        """With a `namespace` the services work there alone."""
        self.namespace = namespace
        self._kinds = kinds
        self._policy = policy
        self.now = now
        self._running: dict[str, tuple[Runtime, asyncio.Task[None]]] = {}
        self.standby: set[str] = set()
        """The services whose lease another replica has."""
        self.full = False
        """True while the rest of the log's room is for decisions."""

    @abstractmethod
    async def cluster(self, author: str) -> Cluster:
        """The cluster as a new process of this service reaches it."""

    @abstractmethod
    def log(self, author: str) -> EventLog:
        """The log as a new process of this service reaches it."""

    def options(self) -> Options:
        """What a watcher is told."""
        return Options(namespace=self.namespace)

    async def start(self, author: str) -> None:
        """A service, from nothing but the log and the cluster."""
        cluster, log = await self.cluster(author), self.log(author)
        service = await a_service(author, cluster, log, self._kinds, policy=self._policy, options=self.options())
        runtime = Runtime(
            service,
            log,
            heads=await log.bucket(HEADS) if author != "watcher" else None,
            namespace=self.namespace,
            release=f"{this_release()} MUSTER_DRAIN={self._policy.drain_seconds}",
            owns=lambda: author not in self.standby,
            reserved=lambda: self.full,
            now=self.now,
            clock=self.clock,
            chance=self.chance,
        )
        self._running[author] = (runtime, asyncio.create_task(runtime.run()))

    async def kill(self, author: str) -> None:
        """End a service wherever it is."""
        runtime, task = self._running.pop(author)
        failed = task.done() and not task.cancelled() and task.exception()
        # As in a crash, what is in flight ends too.
        runtime._stopping = True
        for each in (*runtime._tasks, task):
            each.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert not failed, f"the {author} ended by itself: {failed}"

    async def lead(self, author: str) -> None:
        """A standby service gets the lease."""
        self.standby.remove(author)
        await self._running[author][0].owned()

    def runtimes(self) -> list[Runtime]:
        """Those that run."""
        return [runtime for runtime, _ in self._running.values()]
