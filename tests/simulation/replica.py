"""One replica of a service: its runtime, its lease and its links, in a process that can be killed."""

import asyncio
import contextvars
from datetime import datetime, timedelta
from random import Random

from services.scaler.core import Policy
from services.watcher.watches import Options
from shared.errors import Refused, Transient
from shared.eventlog.account import HEADS, LEASES
from shared.frameworks.kinds import Kinds
from shared.installation.scope import lease_key
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import Author
from shared.job.steps import Effect
from shared.runtime.acts import Context
from shared.runtime.lease import Lease
from shared.runtime.run import Runtime, Service
from tests.kit.gangs import POD_GROUP
from tests.kit.services import a_service, wall_clock
from tests.memory.eventlog import MemoryJournal
from tests.memory.store import MemoryStore
from tests.simulation.loop import PROCESS, Process, outside
from tests.simulation.network import ACTS_FOR, Acting, Link, NetworkedCluster, NetworkedLog

RESTART_SECONDS = 0.5
"""How long a process that ended by itself is down."""

CALLBACK_SECONDS = 0.000_02
"""What one question for the time costs: a slice of work ends after so many."""


class _Attributed:
    """A service whose calls say for which job they are."""

    def __init__(self, service: Service) -> None:
        self.author, self.decide, self.attend = service.author, service.decide, service.attend
        self.known, self.forget = service.known, service.forget
        self._service = service

    async def act(self, effect: Effect, context: Context) -> AnyEvent | None:
        ACTS_FOR.set(context.job.key)
        return await self._service.act(effect, context)


class Replica:
    """A name under which one process after the other runs."""

    def __init__(
        self,
        author: Author,
        number: int,
        *,
        journal: MemoryJournal,
        store: MemoryStore,
        kinds: Kinds,
        chance: Random,
        links: tuple[Link, Link],
        acting: Acting,
        kueue: bool = False,
        gangs: bool = False,
        seal_after: int | None = None,
    ) -> None:
        """`links` lead to the cluster and to the log; the cluster does a service's work by `acting`."""
        self.author: Author = author
        self.name = f"{author}-{number}"
        self.to_cluster, self.to_log = links
        self.process: Process | None = None
        self.runtime: Runtime | None = None
        self.service: Service | None = None
        self.context: contextvars.Context | None = None
        """In which the callbacks of its process run."""
        self.lease: Lease | None = None
        self.skew = 0.0
        """Seconds by which its wall clock is wrong."""
        self.lives = 0
        self.ended: list[str] = []
        """Why its processes ended by themselves."""
        self._journal = journal
        self._store = store
        self._kinds = kinds
        self._chance = chance
        self._acting = acting
        self._options = Options(
            takes_over=True, kueue=kueue, pod_groups=POD_GROUP if gangs else None, seal_after=seal_after
        )
        self._ticks = 0
        self._ids = 0
        self._processes: list[Process] = []

    def start(self) -> None:
        """A new process, unless one runs."""
        if self.process is not None:
            return
        self.lives += 1
        self.process = Process(f"{self.name}#{self.lives}")
        self._processes.append(self.process)
        self.context = context = contextvars.copy_context()
        context.run(PROCESS.set, self.process)
        self._task = asyncio.get_running_loop().create_task(self._serve(), context=context)

    def close(self) -> None:
        """The run is over: what waits in killed processes may end."""
        self.to_cluster.closed = self.to_log.closed = True
        for process in self._processes:
            process.dies_at, process.dead = None, False
            process.go_on()

    def disconnect(self) -> None:
        """Nothing that was sent arrives any more."""
        before = self.to_cluster, self.to_log
        for link in before:
            link.closed = True
        self.to_cluster, self.to_log = (Link(self._chance, link.rates) for link in before)

    def kill(self) -> None:
        """End the process between two of its callbacks; its calls are on their way all the same."""
        if self.process is not None:
            self.process.kill()
            self.process = self.runtime = self.service = self.lease = None

    async def _serve(self) -> None:
        process = PROCESS.get()
        try:
            await self._run()
        except (Transient, Refused) as trouble:
            why = str(trouble)
        except Exception as error:  # noqa: BLE001  a finding of its own
            why = f"{error!r}"
        else:
            why = "it returned"
        self.ended.append(why)
        if self.process is process and not self.to_log.closed:
            self.kill()
            asyncio.get_running_loop().call_later(RESTART_SECONDS, self.start, context=outside())

    async def _run(self) -> None:
        cluster = NetworkedCluster(self._store, self.to_cluster, self._acting)
        log = NetworkedLog(self._journal, self.to_log, user=self.author)
        loop, chance = asyncio.get_running_loop(), self._chance.random
        self.lease = lease = Lease(
            await log.bucket(LEASES),
            lease_key(self.author, ""),
            f"{self.name}/{self.lives}",
            clock=loop.time,
            chance=chance,
        )
        self.service = service = await a_service(
            self.author,
            cluster,
            log,
            self._kinds,
            policy=Policy(drain_seconds=1),
            options=self._options,
            chance=chance,
        )
        self.runtime = runtime = Runtime(
            _Attributed(service),
            log,
            heads=await log.bucket(HEADS) if self.author != "watcher" else None,
            owns=lease.held,
            now=self._time,
            new_id=self._new_id,
            chance=chance,
            clock=self._clock,
        )
        running = asyncio.create_task(runtime.run())
        keeping = asyncio.create_task(lease.keep(runtime.owned))
        await asyncio.wait((running, keeping), return_when=asyncio.FIRST_COMPLETED)
        # The sets that `wait` returns are in the order of addresses in memory.
        for task in (running, keeping):
            if task.done():
                task.result()

    def _time(self) -> datetime:
        return wall_clock() + timedelta(seconds=self.skew)

    def _new_id(self) -> str:
        self._ids += 1
        return f"{self.name}.{self._ids}"

    def _clock(self) -> float:
        self._ticks += 1
        return self._ticks * CALLBACK_SECONDS
