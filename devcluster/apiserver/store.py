"""All objects in memory, in the order of one resourceVersion, with watches and a durable journal.

Writes are synchronous and immediately visible to the server itself; `durable` is awaited before anything
leaves the server, so that a client never sees what a crash could take back.  Watches are told of a change
once it is on disk.  What an object may look like is decided in `objects.py`.
"""

import asyncio
import bisect
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from devcluster.apiserver.entry import Entry, Key, Place
from devcluster.apiserver.errors import Json
from devcluster.apiserver.journal import Journal, Row

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class Change(NamedTuple):
    """One write.  The entry of a deletion is the object's last state at the version of the deletion."""

    key: Key
    type: str
    entry: Entry
    previous: Entry | None


class CompactedError(Exception):
    """The history no longer reaches back to the version asked for."""


class Store:
    def __init__(self, journal: Journal | None = None, *, history: int = 10_000) -> None:
        """`history` is how many changes of each kind can be watched or listed again."""
        self.version = 1
        self.published = 1
        self.listeners: list[Callable[[Change], None]] = []
        """Called within each write, before it is durable: for the server's own indices and controllers."""
        self.subscribers: dict[Key, list[Callable[[Change], None]]] = defaultdict(list)
        """Called for each change of a kind once it is durable."""
        self._objects: dict[Key, dict[Place, Entry]] = defaultdict(dict)
        self._history: dict[Key, deque[Change]] = defaultdict(lambda: deque(maxlen=history))
        self._journal = journal
        self._unwritten: list[Change] = []
        self._written = asyncio.Event()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        if journal:
            self._load(journal)
        beginning = self.version
        self._floor: dict[Key, int] = defaultdict(lambda: beginning)
        """The oldest version of each kind that a watch may start from."""

    def _load(self, journal: Journal) -> None:
        for row in journal.rows():
            assert row.body is not None, row
            self._objects[Key(row.group, row.plural)][Place(row.namespace, row.name)] = Entry(
                msgspec.json.decode(row.body), row.version
            )
        self.version = self.published = max(journal.last_version(), 1)

    # Reading

    def get(self, key: Key, place: Place) -> Entry | None:
        return self._objects[key].get(place)

    def kinds(self) -> list[Key]:
        return [key for key, objects in self._objects.items() if objects]

    def all(self, key: Key, namespace: str = "") -> list[Entry]:
        """All objects of a kind, in no order."""
        objects = self._objects[key].values()
        return [entry for entry in objects if entry.place.namespace == namespace] if namespace else [*objects]

    def list_at(self, key: Key, version: int) -> list[Entry]:
        """All objects as they were at `version`.  Raises `CompactedError` when that is too long ago."""
        if version < self._floor[key]:
            raise CompactedError
        objects = dict(self._objects[key])
        for change in reversed(self._history[key]):
            if change.entry.version <= version:
                break
            if change.previous is None:
                objects.pop(change.entry.place, None)
            else:
                objects[change.entry.place] = change.previous
        return [*objects.values()]

    def since(self, key: Key, version: int) -> list[Change]:
        """The durable changes after `version`.  Raises `CompactedError` when that is too long ago."""
        if version < self._floor[key]:
            raise CompactedError
        history = self._history[key]
        start = bisect.bisect_right(history, version, key=lambda change: change.entry.version)
        return [history[i] for i in range(start, len(history)) if history[i].entry.version <= self.published]

    # Writing

    def put(self, key: Key, obj: Json) -> Entry:
        """Store `obj`, which gets the next resourceVersion."""
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        entry = Entry(obj, self.version)
        previous = self._objects[key].get(entry.place)
        self._objects[key][entry.place] = entry
        self._record(Change(key, MODIFIED if previous else ADDED, entry, previous))
        return entry

    def delete(self, key: Key, obj: Json) -> Entry:
        """Remove the object at `obj`'s place; `obj` is the last state that watchers are shown."""
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        entry = Entry(obj, self.version)
        previous = self._objects[key].pop(entry.place)
        self._record(Change(key, DELETED, entry, previous))
        return entry

    def _record(self, change: Change) -> None:
        history = self._history[change.key]
        if len(history) == history.maxlen:
            self._floor[change.key] = history[0].entry.version
        history.append(change)
        if self._journal:
            self._unwritten.append(change)
            self._written.set()
        for listener in self.listeners:
            listener(change)
        if not self._journal:
            self._publish([change], self.version)

    # Durability

    async def durable(self) -> None:
        """Wait until everything written so far is on disk."""
        if self.published >= self.version:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self.version, future))
        await future

    async def commit_forever(self) -> None:
        """Write to disk, for as long as the server runs, whatever has gathered while the last write was under way.

        A failing disk ends this with its error: the server must not go on answering.
        """
        assert self._journal, "a store in memory has nothing to commit"
        with ThreadPoolExecutor(1, "journal") as writer:
            while True:
                await self._written.wait()
                self._written.clear()
                changes, self._unwritten = self._unwritten, []
                version = self.version
                rows = _newest(changes)
                await asyncio.get_running_loop().run_in_executor(writer, self._journal.write, rows, version)
                self._publish(changes, version)

    def commit(self) -> None:
        """Write what `commit_forever` has not written, at the end or before it runs."""
        if self._journal and self._unwritten:
            changes, self._unwritten = self._unwritten, []
            self._journal.write(_newest(changes), self.version)
            self._publish(changes, self.version)

    def _publish(self, changes: Iterable[Change], version: int) -> None:
        self.published = version
        for change in changes:
            for subscriber in self.subscribers[change.key]:
                subscriber(change)
        while self._waiting and self._waiting[0][0] <= version:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_result(None)


def _newest(changes: Iterable[Change]) -> list[Row]:
    """One row for each changed object: what it is after all the changes."""
    rows: dict[tuple[Key, Place], Row] = {}
    for change in changes:
        entry = change.entry
        body = None if change.type == DELETED else entry.raw
        rows[(change.key, entry.place)] = Row(*change.key, *entry.place, entry.version, body)
    return [*rows.values()]
