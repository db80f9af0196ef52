"""What leads from a process to the cluster and to the log: latency, calls that are lost, answered late or not at all.

A server does its part outside of the process: a call that was sent is carried out although its sender is dead.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from random import Random
from typing import Any, Literal, TypeVar

import msgspec

from shared.cluster import Execution, Resource
from shared.errors import Refused, Transient, Trouble
from shared.eventlog import Bucket, Entry, Stored
from shared.job.naming import JobKey
from tests.memory.cluster import Call, MemoryCluster, within
from tests.memory.eventlog import MemoryBucket, MemoryEventLog, MemoryJournal
from tests.memory.store import MemoryStore
from tests.simulation.loop import outside

R = TypeVar("R")

PATIENCE_SECONDS = 2.0
"""After this a client gives an unanswered call up."""

LONGEST_LATE_SECONDS = 5.0
"""A call that its sender gave up is carried out at most so much later."""

LATEST_SECONDS = 60.0
"""The same for a call that its server gives up by itself."""

BUSY_SECONDS = 1.0

MOST_OLD_LISTS = 2
"""After one list more the watcher takes the cluster for a restored one, as its documentation says."""

MOST_EVENTS_BEHIND = 5

AGAIN_SECONDS = 0.3
"""How long a reader waits before it tries again over a link that is cut."""

Fate = Literal["answered", "busy", "lost", "unanswered", "late"]
FATES: tuple[Fate, ...] = ("busy", "lost", "unanswered", "late")
"""Those that `Rates` has a number for."""


class Rates(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many calls of 1,000 meet each fate."""

    busy: int = 0
    lost: int = 0
    unanswered: int = 0
    late: int = 0
    slow: int = 0
    """Of 1,000 ways through the network, those that take up to half a second."""
    behind: int = 0
    """Of 1,000 questions for the log's end, those that a server answers which lags by some events."""


class Link:
    """The way from one process to one server."""

    def __init__(self, chance: Random, rates: Rates) -> None:
        self._chance = chance
        self.rates = rates
        self._delivered = 0.0
        """When the last delivery of a stream arrived."""
        self.cut = False
        """True while nothing comes through."""
        self.losing = False
        """True if the answer to the next call that is carried out is lost."""
        self.closed = False
        """True once nothing comes through any more, the end of an outage notwithstanding; every call fails at once."""
        self.shows_version = 0
        """The version that the next lists show, two of each kind at most; 0 for the newest."""
        self._old_lists = Counter[str]()
        self._outside = outside()

    def lag(self, version: int) -> None:
        """The next server lags: its lists show the cluster as it was at `version`, two of each kind at most."""
        self.shows_version = version
        self._old_lists.clear()

    def version_listed(self, kind: str, newest: int) -> int:
        """The version that a list of this kind shows now."""
        self._old_lists[kind] += 1
        return self.shows_version if self.shows_version and self._old_lists[kind] <= MOST_OLD_LISTS else newest

    def events_behind(self) -> int:
        """By how many events the server lags that answers a question now."""
        if not self.rates.behind or self._chance.random() * 1_000 >= self.rates.behind:
            return 0
        return self._chance.randint(1, MOST_EVENTS_BEHIND)

    def delay(self) -> float:
        """Seconds on the way, once."""
        chance = self._chance.random()
        if chance * 1_000 < self.rates.slow:
            return 0.02 + 0.5 * self._chance.random()
        return 0.000_5 + 0.003 * chance

    async def call(self, work: Callable[[], R], within: int = 0) -> R:
        """Let the server do `work`, `within` so many seconds or never.

        Raises what it raises, and `Transient` if there was no answer in time.
        """
        if self.closed:
            raise Refused("the run is over", reason="Closed")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        fate, way, sent = self._fate(), self.delay(), loop.time()

        def lose(patience: float = PATIENCE_SECONDS) -> None:
            # The sender learns nothing, and gives the call up by itself.
            loop.call_at(max(sent + patience, loop.time()), give_up, context=self._outside)

        def give_up() -> None:
            if not answer.done():
                answer.set_exception(Transient("no answer"))

        def arrive() -> None:
            if self.cut or self.closed or fate == "lost":
                lose()
                return
            result: R | None = None
            error: Trouble | None = None
            if fate == "busy":
                error = Transient("429 Too Many Requests", retry_after=BUSY_SECONDS)
            else:
                try:
                    result = work()
                except Trouble as trouble:
                    error = trouble
            if fate == "unanswered" or self.losing:
                self.losing = False
                lose()
            elif fate != "late":
                loop.call_later(self.delay(), come_back, result, error, context=self._outside)

        def come_back(result: R, error: Trouble | None) -> None:
            if self.cut:
                lose()
            elif not answer.done():
                if error is None:
                    answer.set_result(result)
                else:
                    answer.set_exception(error)

        if fate == "late":
            # A client waits for longer than a server that gives the call up by itself.
            lose(max(PATIENCE_SECONDS, within))
            late = PATIENCE_SECONDS + (LATEST_SECONDS if within else LONGEST_LATE_SECONDS) * self._chance.random()
            way += late
            if within and late > within:
                # The server's own deadline has ended it.
                return await answer
        loop.call_later(way, arrive, context=self._outside)
        return await answer

    def later(self, what: Callable[[], None]) -> None:
        """Do `what` after the way through the network, outside of the process."""
        asyncio.get_running_loop().call_later(self.delay(), what, context=self._outside)

    async def arrive(self) -> None:
        """One delivery of a stream; what comes at the same time comes together.

        Raises `Transient` while the link is cut.
        """
        if asyncio.get_running_loop().time() > self._delivered:
            await asyncio.sleep(self.delay())
            self._delivered = asyncio.get_running_loop().time()
        if self.closed:
            raise Refused("the run is over", reason="Closed")
        if self.cut:
            await asyncio.sleep(PATIENCE_SECONDS * (0.1 + self._chance.random()))
            raise Transient("the connection is lost")

    def _fate(self) -> Fate:
        number, rates = self._chance.random() * 1_000, self.rates
        for fate in FATES:
            rate: int = getattr(rates, fate)
            if number < rate:
                return fate
            number -= rate
        return "answered"


class _Deliveries:
    """The weather of a watch: each delivery takes its time."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def before(self, call: Call) -> None:
        await self._link.arrive()

    async def after(self, call: Call) -> None:
        pass


ACTS_FOR: ContextVar[JobKey | None] = ContextVar("ACTS_FOR", default=None)
"""The job whose effect a service carries out; its calls are made in the same context."""

Acting = Callable[[JobKey | None], Callable[[Callable[[], Any]], Any]]
"""Of a service's call for a job that is sent now, what lets the cluster do its work."""


class NetworkedCluster(MemoryCluster):
    """One process's client of the cluster."""

    def __init__(self, store: MemoryStore, link: Link, acting: Acting) -> None:
        super().__init__(store, weather=_Deliveries(link))
        self._link = link
        self._acting = acting

    async def _call(self, call: Call, work: Callable[[], R]) -> R:
        self._must_be_open(call)
        acting: Callable[[Callable[[], R]], R] = self._acting(ACTS_FOR.get())
        return await self._link.call(lambda: acting(work), call.within)

    def _version_listed(self, resource: Resource[Any]) -> int:
        return self._link.version_listed(resource.kind, self._store.version)

    async def _execute(self, call: Call, timeout: float, run: Callable[[], Awaitable[Execution]]) -> Execution:
        """The command runs in its pod, whatever becomes of its caller and of the connection."""
        self._must_be_open(call)
        ended, executed, refused = asyncio.Event(), list[Execution](), list[Refused]()

        async def to_its_end() -> None:
            try:
                executed.append(await run())
            except Refused as refusal:
                refused.append(refusal)
            ended.set()

        async def there_and_back() -> None:
            start = asyncio.get_running_loop().create_task
            await self._link.call(lambda: start(to_its_end(), context=outside()))
            await ended.wait()
            await self._link.call(lambda: None)

        await within(timeout, call, there_and_back())
        for refusal in refused:
            raise refusal
        return executed[0]


class NetworkedLog(MemoryEventLog):
    """One process's client of the log."""

    def __init__(self, journal: MemoryJournal, link: Link, *, user: str) -> None:
        super().__init__(journal, user=user)
        self._link = link

    async def append(self, entry: Entry, *, expect: int) -> int:
        self._must_be_open()
        return await self._link.call(lambda: self._journal.append(entry, expect=expect))

    async def _grown(self, trouble: Callable[[str], None]) -> None:
        await self._journal.grown(self._link.later)
        while self._link.cut:
            trouble("the connection is lost")
            await asyncio.sleep(AGAIN_SECONDS)

    async def end(self, subjects: tuple[str, ...] = ()) -> int:
        behind = self._link.events_behind()
        return await self._link.call(lambda: self._journal.end(subjects, behind))

    async def last(self, scope: str) -> Stored | None:
        behind = self._link.events_behind()
        return await self._link.call(lambda: self._journal.last(scope, behind))

    async def bucket(self, name: str) -> Bucket:
        return NetworkedBucket(self._journal, name, self._link, user=self._user)


class NetworkedBucket(MemoryBucket):
    """One process's client of a bucket."""

    def __init__(self, journal: MemoryJournal, name: str, link: Link, *, user: str) -> None:
        super().__init__(journal, name, user=user)
        self._link = link

    async def _ask(self, work: Callable[[], R]) -> R:
        return await self._link.call(work)
