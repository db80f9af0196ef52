"""The log in memory: one journal for a process, and a client for each service that uses it.

For unit tests and the simulation.  It is deterministic: it reads only the clock that is passed in, starts no task, and
wakes its readers in the order in which they began to wait.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from typing import TypeVar

from shared.errors import Conflict, Refused
from shared.eventlog import (
    MAX_BODY,
    REMOVED_SECONDS,
    Batch,
    Bucket,
    Entry,
    Extent,
    Revised,
    Stored,
    ignore_trouble,
    wire,
)
from shared.eventlog.account import ADMIN, GENESIS, HEADS, LEASES, publishes, subject_of
from shared.eventlog.parts import Part
from shared.eventlog.subject import SEALED, Subject, matches

R = TypeVar("R")

BATCH = 1_000


class MemoryJournal:
    """The events and buckets of a log, and the readers that wait."""

    def __init__(
        self,
        *,
        identity: str = "memory",
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        most: float = math.inf,
    ) -> None:
        """`wall` is the server's clock in seconds since 1970.

        More events than `most` are a hot loop, which would never end while virtual time stands still.
        """
        self.events: list[Stored] = []
        self._genesis = identity
        self.purged: dict[int, int] = {}
        """The sequences of events that were removed, each with the log's end at that time."""
        self.restored = False
        self.archived: list[Part] = []
        self.listeners: list[Callable[[Stored], None]] = []
        """Called with each event at the moment of its append."""
        self._most = most
        self.clock = clock
        self.wall = wall
        self.buckets: dict[str, dict[str, _Value]] = {LEASES: {}, HEADS: {}}
        self.markers: dict[tuple[str, str], _Value] = {}
        """Those of deleted keys, by bucket and key."""
        self._revision = 0
        self._last: dict[str, Stored] = {}
        self._by_id: dict[str, int] = {}
        self._waiting: list[Callable[[], object]] = []
        self.append(
            Entry(subject=GENESIS, event_id=identity, time="1970-01-01T00:00:00.000Z", body=b'{"type":"LogCreated"}'),
            expect=0,
        )

    def append(self, entry: Entry, *, expect: int) -> int:
        """As `EventLog.append`, at once."""
        if known := self._by_id.get(entry.event_id):
            return known
        subject = Subject.parse(entry.subject)
        scope = subject.scope
        newest = self._last.get(scope) if subject.type != SEALED else self.last(scope)
        last = newest.sequence if newest is not None else 0
        if last != expect:
            raise Conflict(f"append {entry.subject}: {scope} is at {last}, not at {expect}; read on and decide again")
        stored = Stored(
            len(self.events) + 1,
            entry.subject,
            entry.event_id,
            entry.time,
            entry.body,
            entry.basis,
            entry.optional,
            datetime.fromtimestamp(self.wall(), UTC).isoformat(),
            wire.source(self._genesis, subject.author),
        )
        self.events.append(stored)
        # A seal's guard covers all of its job, the guard of a later decision also the seal.
        self._last[_scope_of(entry.subject)] = stored
        self._by_id[entry.event_id] = stored.sequence
        self.wake()
        assert stored.sequence < self._most, f"a hot loop: {entry.subject}"
        for listener in self.listeners:
            listener(stored)
        return stored.sequence

    def restore(self, length: int) -> None:
        """Forget all events but the first `length`, as a backup had them; the buckets stay."""
        del self.events[length:]
        self.restored = True
        self.purged = {sequence: end for sequence, end in self.purged.items() if end <= length}
        self._note_last()
        self._by_id = {event.event_id: event.sequence for event in self.events}

    def purge(self, subject: str, before: int) -> list[Stored]:
        """Remove the events under a filter that come before a sequence, and return them."""
        there = (event for event in self.events[: before - 1] if event.sequence not in self.purged)
        removed = [event for event in there if matches(subject, event.subject)]
        self.purged |= dict.fromkeys((event.sequence for event in removed), len(self.events))
        self._note_last()
        return removed

    def _note_last(self) -> None:
        there = (event for event in self.events if event.sequence not in self.purged)
        self._last = {_scope_of(event.subject): event for event in there}

    def last(self, scope: str, behind: int = 0) -> Stored | None:
        """The last event of a scope, as a server says that lags `behind` by so many events."""
        if scope in self._last and not behind:
            return self._last[scope]
        return next((event for event in self._newest(behind) if matches(scope, event.subject)), None)

    def end(self, subjects: tuple[str, ...], behind: int = 0) -> int:
        """The sequence of the last event on these subjects, as a server says that lags `behind` by so many events."""
        if not subjects:
            return len(self.events) - min(behind, len(self.events))
        return next((event.sequence for event in self._newest(behind) if _selected(event, subjects)), 0)

    def _newest(self, behind: int) -> Iterator[Stored]:
        there = (event for event in reversed(self.events) if event.sequence not in self.purged)
        return islice(there, behind, None)

    def next_revision(self) -> int:
        self._revision += 1
        return self._revision

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    async def grown(self, delay: Callable[[Callable[[], None]], object] = lambda wake: wake()) -> None:
        """Wait for the next event, or for a client to close; `delay` calls `wake` when the reader is to know."""
        waiting = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not waiting.done():
                waiting.set_result(None)

        self._waiting.append(lambda: delay(wake))
        await waiting


class MemoryArchive:
    """The parts of an archive."""

    def __init__(self, kept: list[Part]) -> None:
        self._kept = kept

    async def parts(self, subject: str, after: int = 0, since: str = "") -> AsyncGenerator[Part, None]:
        for part in self._kept:
            if part.sequence > after and part.time >= since and matches(subject, part.subject):
                yield part

    async def extent(self) -> Extent:
        return Extent(len(self._kept), self._kept[-1].sequence if self._kept else 0)

    def scan(self, after: int = 0, subject: str = ">", since: str = "") -> AsyncGenerator[Part, None]:
        return self.parts(subject, after, since)

    async def removed(self) -> tuple[int, list[int]]:
        there = {part.sequence for part in self._kept}
        first = min(there, default=0)
        return first, [each for each in range(first, max(there, default=0)) if each not in there]

    async def newest(self, subject: str) -> Part | None:
        found = [part for part in self._kept if matches(subject, part.subject)]
        return found[-1] if found else None


class MemoryEventLog:
    """One user's client of a journal; it may publish the same as that user on a server."""

    def __init__(self, journal: MemoryJournal, *, user: str = ADMIN) -> None:
        self._journal = journal
        self._user = user
        self._closed = False
        self.archive = MemoryArchive(journal.archived)

    async def identity(self) -> str:
        return self._journal.events[0].event_id

    async def append(self, entry: Entry, *, expect: int) -> int:
        self._must_be_open()
        if len(entry.body) > MAX_BODY:
            raise Refused(f"append {entry.subject}: {len(entry.body)} bytes, at most {MAX_BODY}", reason="TooLarge")
        _must_be_allowed(self._user, entry.subject)
        # A real append always lets other tasks run first.
        await asyncio.sleep(0)
        return self._journal.append(entry, expect=expect)

    async def read(
        self, *, after: int = 0, subjects: tuple[str, ...] = (), trouble: Callable[[str], None] = ignore_trouble
    ) -> AsyncGenerator[Batch, None]:
        events = self._journal.events
        if after > len(events):
            raise Refused(
                f"read the log after {after}: it ends at {len(events)}; a part of it was lost", reason="LogTruncated"
            )
        position = after
        was_at_end = False
        while not self._closed:
            found: list[Stored] = []
            while position < len(events) and len(found) < BATCH:
                if _selected(events[position], subjects) and position + 1 not in self._journal.purged:
                    found.append(events[position])
                position += 1
            rest = range(position, len(events))
            pending = sum(_selected(events[at], subjects) for at in rest) if subjects else len(rest)
            if found:
                yield Batch(tuple(found), pending)
            if pending == 0 and not was_at_end:
                was_at_end = True
                yield Batch((), 0)
            if position == len(events) and not self._closed:
                await self._grown(trouble)

    async def _grown(self, trouble: Callable[[str], None]) -> None:
        await self._journal.grown()

    def now(self) -> float | None:
        return self._journal.wall()

    async def end(self, subjects: tuple[str, ...] = ()) -> int:
        return self._journal.end(subjects)

    async def first(self, subjects: tuple[str, ...]) -> int:
        there = (event for event in self._journal.events if event.sequence not in self._journal.purged)
        return next((event.sequence for event in there if _selected(event, subjects)), 0)

    async def last(self, scope: str) -> Stored | None:
        return self._journal.last(scope)

    async def counted(self, scope: str) -> Mapping[str, int]:
        return Counter(each.subject for each in self._journal.events if matches(scope, each.subject))

    async def bucket(self, name: str) -> Bucket:
        if name not in self._journal.buckets:
            raise Refused(f"open the bucket {name}: there is none", reason="NotSetUp")
        return MemoryBucket(self._journal, name, user=self._user)

    async def close(self) -> None:
        self._closed = True
        self._journal.wake()

    def _must_be_open(self) -> None:
        if self._closed:
            raise Refused("append to the log: this client was closed", reason="Closed")


class _Value:
    """The value of a bucket under one key."""

    __slots__ = ("expires", "revised")

    def __init__(self, revised: Revised, expires: float) -> None:
        self.revised = revised
        self.expires = expires


class MemoryBucket:
    """Small values with a lifetime on the journal's clock."""

    def __init__(self, journal: MemoryJournal, name: str, *, user: str) -> None:
        self._journal = journal
        self._name = name
        self._user = user
        self._values = journal.buckets[name]

    async def get(self, key: str) -> Revised | None:
        return await self._ask(lambda: self._get(key))

    async def put(self, key: str, value: bytes, *, expect: int | None = None, ttl: float | None = None) -> int:
        try:
            return await self._ask(lambda: self._put(key, value, expect=expect, ttl=ttl))
        except Conflict:
            marker = await self._ask(lambda: self._marker(key)) if expect == 0 else None
            if marker is None:
                raise
            return await self._ask(lambda: self._put(key, value, expect=marker.revision, ttl=ttl))

    async def delete(self, key: str, *, expect: int | None = None) -> None:
        await self._ask(lambda: self._delete(key, expect=expect))

    async def below(self, key: str) -> Revised | None:
        return await self._ask(lambda: self._below(key))

    async def _ask(self, work: Callable[[], R]) -> R:
        """Let the server do `work`."""
        await asyncio.sleep(0)
        return work()

    def _put(self, key: str, value: bytes, *, expect: int | None, ttl: float | None) -> int:
        _must_be_allowed(self._user, subject_of(self._name, key))
        self._must_be_at(key, expect)
        revision = self._journal.next_revision()
        expires = math.inf if ttl is None else self._journal.clock() + math.ceil(ttl)
        self._values[key] = _Value(Revised(value, revision), expires)
        self._journal.markers.pop((self._name, key), None)
        return revision

    def _delete(self, key: str, *, expect: int | None) -> None:
        _must_be_allowed(self._user, subject_of(self._name, key))
        if expect is not None and self._get(key) is None:
            return
        self._must_be_at(key, expect)
        self._values.pop(key, None)
        revised, expires = Revised(b"", self._journal.next_revision()), self._journal.clock() + REMOVED_SECONDS
        self._journal.markers[self._name, key] = _Value(revised, expires)

    def _below(self, key: str) -> Revised | None:
        found = (self._get(each) for each in self._values if each.startswith(f"{key}."))
        return next((revised for revised in found if revised is not None), None)

    def _get(self, key: str) -> Revised | None:
        return self._unless_expired(self._values.get(key))

    def _marker(self, key: str) -> Revised | None:
        return self._unless_expired(self._journal.markers.get((self._name, key)))

    def _unless_expired(self, value: _Value | None) -> Revised | None:
        return None if value is None or value.expires <= self._journal.clock() else value.revised

    def _must_be_at(self, key: str, expect: int | None) -> None:
        current = self._get(key) or self._marker(key)
        revision = current.revision if current else 0
        if expect is not None and expect != revision:
            raise Conflict(f"write {key} in {self._name}: it is at revision {revision}, not at {expect}")


@cache
def _scope_of(subject: str) -> str:
    return Subject.parse(subject)._replace(type="").scope


def _selected(event: Stored, subjects: tuple[str, ...]) -> bool:
    return not subjects or any(matches(pattern, event.subject) for pattern in subjects)


def _must_be_allowed(user: str, subject: str) -> None:
    if not any(matches(pattern, subject) for pattern in publishes(user)):
        raise Refused(f"publish {subject}: the user {user} may not", reason="Forbidden")
