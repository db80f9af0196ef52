"""What the page knows of now: the table of jobs, and the events of the jobs that a browser has open."""

import asyncio
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Iterator,
    MutableMapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec

from muster.asking import Source, patiently
from muster.following import Tell
from muster.get import followed
from muster.history import job_events
from muster.page.drawing import Sketch, Sketched, drawn
from shared.errors import Refused, Trouble
from shared.eventlog import Stored
from shared.flow import Shares, Turns
from shared.frameworks.kinds import Kinds
from shared.job.fold import OF_EVENT, History
from shared.runtime.appends import stamp
from shared.telling.shown import Shown
from shared.telling.targets import Asked, known_kinds

MOST_OPEN = 16
"""The most jobs that `muster ui` follows at a time: each holds the events of a job, and a stream of the server."""
ANSWERS, OF_ONE = 16, 2
"""Answers about jobs on their way, in all and of one person: each holds as much as its job has events."""
ROWS = 2_000_000
"""Rows of all tables, of which one person has half at the most: 120 bytes each, beside the jobs that tables share."""
NO_STATUS: dict[str, Any] = {}
"""Of each row: a list has no use for statuses, which are most of the bytes."""
FULL = "the jobs that are open here have too many events: close a tab of another one, or use `muster ui`"
TOO_LARGE = "the job has more events than this page holds for one user: use `muster ui` or `muster report --html`"
IDLE_SECONDS = 120.0
"""Seconds between two looks for what nobody reads."""
PAUSE_SECONDS = 0.25
"""The least seconds between two pieces of news to one browser."""
AGAIN_SECONDS = 0.1
"""How long what ends has for it, before it is cancelled once more."""
BEAT_SECONDS = 15.0
"""Seconds without news after which a browser gets an empty line, by which a connection that broke is noticed."""

NOT_FOLDED: tuple[int, History | None] = (0, None)

T = TypeVar("T")


async def end(task: asyncio.Task[None]) -> None:
    """Cancel until it has ended: a cancellation that comes as a read ends may be lost."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=AGAIN_SECONDS)


async def in_thread(make: Callable[[], T]) -> T:
    """What a thread makes.  Who is cancelled goes once the thread has ended: until then it needs its places."""
    return await to_the_end(asyncio.to_thread(make))


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """What the work gives.  Who is cancelled goes once it has ended."""
    making = asyncio.create_task(work)
    left: asyncio.CancelledError | None = None
    while not making.done():
        try:
            await asyncio.wait([making])
        except asyncio.CancelledError as cancelled:
            left = cancelled
    if left is not None:
        if not making.cancelled():
            # asyncio logs an exception that no caller has read.
            making.exception()
        raise left
    return making.result()


class Readable:
    """What one person may read."""

    def __init__(self, source: Source) -> None:
        self.kinds: Kinds = known_kinds()
        self._source = source

    def jobs(self, namespace: str, trouble: Tell) -> AsyncGenerator[Shown, None]:
        """The jobs of a namespace, or of all without one, those that are gone as well; then each that changes."""
        return followed(self._source, namespace, self.kinds, trouble)

    def events(self, asked: Asked, namespace: str, uid: str, trouble: Tell) -> AsyncGenerator[Sequence[Stored], None]:
        """The events of a job until now, an empty batch, then later ones."""
        return job_events(self._source, asked, namespace, uid=uid, trouble=trouble)

    async def must_be_known(self) -> None:
        """Raises `Refused` once the person is not known any more."""

    async def end(self) -> None:
        """Close what was opened for this person."""


class News:
    """A number that grows with each change."""

    def __init__(self) -> None:
        self.version = 0
        self.trouble = ""
        """What is away; empty while all answers."""
        self.over = False
        """True once no more comes."""
        self._changed = asyncio.Event()

    def changed(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def told(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            self.changed()

    def end(self) -> None:
        self.over = True
        self.changed()

    async def later(self, seen: int) -> None:
        """Until the version is another one than `seen`, or `BEAT_SECONDS` are over."""
        if self.version == seen:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_SECONDS):
                    await self._changed.wait()
                await asyncio.sleep(PAUSE_SECONDS)


class Table:
    """The jobs that the person may see."""

    def __init__(self, told: MutableMapping[str, Shown], room: Shares, person: str) -> None:
        """`told` has the rows of all tables, which share those that are the same; `room` counts them."""
        self.news = News()
        self._told, self._room, self._person = told, room, person
        self.rows: dict[str, tuple[int, Shown]] = {}
        """By uid, with the version at which it changed."""
        self._changes: list[tuple[int, Shown]] = []
        """The rows in the order of their versions, among some that have changed again."""

    def since(self, version: int, most: int) -> tuple[int, list[Shown]]:
        """The first rows that changed after this version, and the version that they reach."""
        found = list[Shown]()
        for at in range(bisect_left(self._changes, (version + 1,)), len(self._changes)):
            if self._is_newest(change := self._changes[at]):
                if len(found) == most:
                    return change[0] - 1, found
                found.append(change[1])
        return self.news.version, found

    async def follow(self, look: Callable[[], AsyncGenerator[Shown, None]]) -> None:
        """Go on until it is refused, which is told."""
        try:
            async with aclosing(patiently(look, self.news.told)) as found:
                async for shown in found:
                    self.note(shown)
        except Trouble as trouble:
            # Who lost the right to see the jobs finds none of them here.
            self.clear()
            self.news.told(str(trouble))
        finally:
            self.news.end()

    def note(self, shown: Shown) -> None:
        """Keep the job as it is now.  Raises `Refused` if all tables have as many rows as they may."""
        self.news.told("")
        row = msgspec.structs.replace(shown, status=NO_STATUS)
        if (known := self._told.get(row.uid)) == row:
            row = known
        else:
            self._told[row.uid] = row
        _, before = self.rows.get(row.uid, (0, None))
        if before == row:
            return
        if before is None and not self._room.take(self._person):
            raise Refused("too many jobs for this page: open the page of a single namespace", reason="TooManyRequests")
        self.rows[row.uid] = change = self.news.version + 1, row
        self._changes.append(change)
        if len(self._changes) > 1.25 * len(self.rows) + 64:
            self._changes = [*filter(self._is_newest, self._changes)]
        self.news.changed()

    def clear(self) -> None:
        self._room.give(self._person, amount=len(self.rows))
        self.rows.clear()
        self._changes.clear()

    def _is_newest(self, change: tuple[int, Shown]) -> bool:
        return self.rows[change[1].uid] is change


class Followed:
    """One job: its events, and its drawing."""

    def __init__(
        self,
        read: Callable[[Tell], AsyncGenerator[Sequence[Stored], None]],
        take: Callable[["Followed", int], Awaitable[None]],
        give: Callable[[int], None],
    ) -> None:
        """`take` makes room for so many more bytes of events, or raises `Refused`; `give` gives all of it back."""
        self.news = News()
        self._take, self._give, self.taken = take, give, 0
        self.events: list[Stored] = []
        self.then: tuple[int, History | None] = NOT_FOLDED
        """The state at the event that was asked for last: of so many events."""
        self.readers = 0
        self._sketch = Sketch()
        self._drawing: tuple[int, Sketched] | None = None
        self._draws = asyncio.Lock()
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._follow(read))

    async def _follow(self, read: Callable[[Tell], AsyncGenerator[Sequence[Stored], None]]) -> None:
        try:
            async with aclosing(read(self.news.told)) as batches:
                async for batch in batches:
                    await self._take(self, size := sum(OF_EVENT + len(stored.body) for stored in batch))
                    self.taken += size
                    self.events += batch
                    self.news.trouble = ""
                    self.news.changed()
                    if not batch and not self._first.done():
                        self._first.set_result(None)
        except Trouble as trouble:
            if not self._first.done():
                self._first.set_exception(trouble)
            self.news.told(str(trouble))
        finally:
            self.news.end()

    async def ready(self) -> None:
        """Until its events are known.  Raises `Trouble` if they cannot be read."""
        await asyncio.shield(self._first)

    async def drawing(self, asked: Asked, kinds: Kinds) -> Sketched:
        """The drawing of now; of several browsers that ask at once, made once."""
        async with self._draws:
            count = len(self.events)
            if self._drawing is None or self._drawing[0] != count:
                # A long history takes a second, in which others are answered.
                events, until = self.events[:count], stamp(datetime.now(UTC))
                made = await in_thread(partial(drawn, events, asked, kinds, until=until, sketch=self._sketch))
                self._drawing = count, made
            made = self._drawing[1]
            report = msgspec.structs.replace(made.report, until=max(made.report.until, stamp(datetime.now(UTC))))
            return msgspec.structs.replace(made, report=report)

    @property
    def over(self) -> bool:
        """True if it is followed no more: it may not be read any longer."""
        return self._task.done()

    async def close(self) -> None:
        await end(self._task)
        self._give(self.taken)
        if self._first.done() and not self._first.cancelled():
            # asyncio logs an exception that no caller has read, and the browsers were told of this one.
            self._first.exception()


class Shared(Protocol):
    """Something that several requests read, for as long as one of them is there or shortly was."""

    readers: int

    @property
    def over(self) -> bool:
        """True if it is of no use any more."""

    async def ready(self) -> None:
        """Until it can be read.  Raises `Trouble` if it cannot."""

    async def close(self) -> None: ...


K = TypeVar("K", bound=Hashable)
S = TypeVar("S", bound=Shared)


class Places:
    """So many in all, and so many of one person."""

    def __init__(self, most: int, of_one: int) -> None:
        self.of_one = of_one
        self._most = most
        self._of = Counter[str]()

    def has_all(self, person: str) -> bool:
        """True if the person has as many as one may."""
        return self._of[person] >= self.of_one

    def take(self, person: str) -> bool:
        """True if there was one; `give` gives it back."""
        if self._of.total() >= self._most or self.has_all(person):
            return False
        self._of[person] += 1
        return True

    def give(self, person: str) -> None:
        self._of -= Counter([person])

    @contextmanager
    def place(self, person: str, full: str) -> Iterator[None]:
        """A place while the context lasts.  Raises `Refused` with the words of `full` if there is none."""
        if not self.take(person):
            raise Refused(full, reason="TooManyRequests")
        try:
            yield
        finally:
            self.give(person)


class Kept(Generic[K, S]):
    """Those used last, each in a place of the person whose it is."""

    def __init__(self, places: Places, full: str) -> None:
        """`full` says what a person can do when all of them are read."""
        self._places = places
        self._full = full
        self._things: dict[K, tuple[str, S]] = {}
        self._changing = asyncio.Lock()

    @asynccontextmanager
    async def of(self, key: K, person: str, begin: Callable[[], S]) -> AsyncIterator[S]:
        """That of the key while the context lasts, begun if there is none.  Raises `Trouble` if it cannot be read."""
        async with self._changing:
            if (known := self._things.get(key)) is not None and known[1].over:
                await self._close(key)
            if key not in self._things:
                await self._make_room(person)
            kept = self._things.pop(key) if key in self._things else (person, begin())
            self._things[key], thing = kept, kept[1]
            thing.readers += 1
        try:
            try:
                await thing.ready()
            except Trouble:
                async with self._changing:
                    if (known := self._things.get(key)) is not None and known[1] is thing:
                        await self._close(key)
                raise
            yield thing
        finally:
            thing.readers -= 1

    async def _make_room(self, person: str) -> None:
        while not self._places.take(person):
            own = self._places.has_all(person)
            things = self._things.items()
            idle = next((key for key, (whose, it) in things if not it.readers and (whose == person or not own)), None)
            if idle is None:
                raise Refused(self._full, reason="TooManyRequests")
            await self._close(idle)

    async def takes(self, take: Callable[[], bool], person: str, thing: S) -> bool:
        """True once `take` does; others than `thing` without a reader are closed until then, the person's own first."""
        async with self._changing:
            of = {key: whose for key, (whose, it) in self._things.items() if not it.readers and it is not thing}
            idle = sorted(of, key=lambda key: of[key] != person)
            while not (taken := take()) and idle:
                await self._close(idle.pop(0))
        return taken

    async def rest(self, of: Callable[[K], bool] = lambda _: True) -> None:
        """Close, for ever, those of these keys that had no reader at two looks."""
        idle: set[K] = set()
        while True:
            async with self._changing:
                now = {key for key, (_, thing) in self._things.items() if not thing.readers and of(key)}
                for key in now & idle:
                    await self._close(key)
            idle = now
            await asyncio.sleep(IDLE_SECONDS)

    async def _close(self, key: K) -> None:
        person, thing = self._things.pop(key)
        self._places.give(person)
        # A browser may leave meanwhile: what is half closed keeps its rows and connections.
        await to_the_end(thing.close())

    async def close(self, of: Callable[[K], bool] = lambda _: True) -> None:
        """Close those of these keys."""
        async with self._changing:
            for key in filter(of, tuple(self._things)):
                await self._close(key)


class Bounds:
    """What all who read share: the answers on their way, and the jobs that are followed."""

    def __init__(self, jobs: Places, event_bytes: int = sys.maxsize) -> None:
        """`event_bytes` bounds the events of all jobs that are followed."""
        self.jobs = Kept[tuple["View", str, str, str], Followed](
            jobs, f"{jobs.of_one} jobs are open: close a tab of another one"
        )
        self.events = Shares(event_bytes)
        self.answers = Turns(ANSWERS, of_namespace=OF_ONE)
        self.rows, self.told = Shares(ROWS), WeakValueDictionary[str, Shown]()


class View:
    """What one person sees: the jobs of a namespace, or of all without one, and those that are open."""

    def __init__(self, source: Readable, namespace: str, bounds: Bounds, person: str = "") -> None:
        self.source = source
        self.table = Table(bounds.told, bounds.rows, person)
        self.readers = 0
        self._bounds, self._person = bounds, person
        self._following = asyncio.create_task(self.table.follow(lambda: source.jobs(namespace, self.table.news.told)))
        self._resting = asyncio.create_task(bounds.jobs.rest(self._has))

    def answering(self) -> AbstractAsyncContextManager[None]:
        """A turn to answer what holds all events of a job."""
        return self._bounds.answers.turn(self._person)

    def job(self, asked: Asked, namespace: str, uid: str) -> AbstractAsyncContextManager[Followed]:
        """The job while the context lasts.  Raises `Trouble` if it cannot be read."""

        def begin() -> Followed:
            return Followed(
                lambda trouble: self.source.events(asked, namespace, uid, trouble),
                self._take,
                lambda size: self._bounds.events.give(self._person, amount=size),
            )

        return self._bounds.jobs.of((self, namespace, asked.word, uid), self._person, begin)

    async def _take(self, job: Followed, size: int) -> None:
        take = partial(self._bounds.events.take, self._person, amount=size)
        if take():
            return
        # One person alone may have half.
        if 2 * (job.taken + size) > self._bounds.events.limit:
            raise Refused(TOO_LARGE, reason="TooLarge")
        if not await self._bounds.jobs.takes(take, self._person, job):
            raise Refused(FULL, reason="TooManyRequests")

    def _has(self, key: tuple["View", str, str, str]) -> bool:
        return key[0] is self

    @property
    def over(self) -> bool:
        # Those who read it may see some of the jobs, though not all of the namespace.
        return self._following.done() and not self.readers

    async def ready(self) -> None:
        """At once: its jobs come as they are read."""

    async def close(self) -> None:
        for task in (self._following, self._resting):
            await end(task)
        self.table.clear()
        await self._bounds.jobs.close(self._has)
        await self.source.end()
