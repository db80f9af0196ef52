"""All objects in memory, in the order of one resourceVersion, with watches and a journal.

A write is in the journal before it is anywhere else, so no client sees what the end of this process takes back.
What an object may look like is decided in `objects.py`.
"""

import bisect
from collections import defaultdict, deque
from collections.abc import Callable
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
        self.listeners: list[Callable[[Change], None]] = []
        """Called within each write: the server's own indices and controllers."""
        self.subscribers: dict[Key, list[Callable[[Change], None]]] = defaultdict(list)
        """Called after the listeners, for each change of one kind: the watches."""
        self._objects: dict[Key, dict[Place, Entry]] = defaultdict(dict)
        self._history: dict[Key, deque[Change]] = defaultdict(lambda: deque(maxlen=history))
        self._journal = journal
        if journal:
            self._load(journal)
        beginning = self.version
        self._floor: dict[Key, int] = defaultdict(lambda: beginning)
        """The oldest version of each kind that a watch may start from."""

    def _load(self, journal: Journal) -> None:
        for row in journal.rows():
            self._objects[Key(row.group, row.plural)][Place(row.namespace, row.name)] = Entry(
                msgspec.json.decode(row.body), row.version
            )
        self.version = max(journal.last_version(), 1)

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
        """The changes after `version`.  Raises `CompactedError` when that is too long ago."""
        if version < self._floor[key]:
            raise CompactedError
        history = self._history[key]
        start = bisect.bisect_right(history, version, key=lambda change: change.entry.version)
        return [history[i] for i in range(start, len(history))]

    # Writing

    def put(self, key: Key, obj: Json) -> Entry:
        """Store `obj`, which gets the next resourceVersion."""
        entry = self._next(obj)
        if self._journal:
            self._journal.put(Row(*key, *entry.place, entry.version, entry.raw))
        self.version = entry.version
        previous = self._objects[key].get(entry.place)
        self._objects[key][entry.place] = entry
        self._tell(Change(key, MODIFIED if previous else ADDED, entry, previous))
        return entry

    def delete(self, key: Key, obj: Json) -> Entry:
        """Remove the object at `obj`'s place; `obj` is the last state that watchers are shown."""
        entry = self._next(obj)
        if self._journal:
            self._journal.delete(entry.version, (*key, *entry.place))
        self.version = entry.version
        previous = self._objects[key].pop(entry.place)
        self._tell(Change(key, DELETED, entry, previous))
        return entry

    def _next(self, obj: Json) -> Entry:
        """`obj` at the version after the last one."""
        obj["metadata"]["resourceVersion"] = str(self.version + 1)
        return Entry(obj, self.version + 1)

    def _tell(self, change: Change) -> None:
        history = self._history[change.key]
        if len(history) == history.maxlen:
            self._floor[change.key] = history[0].entry.version
        history.append(change)
        for listener in (*self.listeners, *self.subscribers[change.key]):
            listener(change)
