"""All objects in memory, versioned by one resourceVersion, with watches and a journal on disk.

A write is in the journal before any client sees it, so that the end of this process takes nothing back.
`objects.py` validates objects.
"""

import bisect
import sqlite3
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from devcluster.apiserver.errors import Json


class Key(NamedTuple):
    """The store's key of a kind, the same in every served version."""

    group: str
    plural: str


class Place(NamedTuple):
    """The store's key of an object within its kind; places sort in the order of a LIST."""

    namespace: str
    name: str


class Entry:
    """An object at one resourceVersion, never changed.

    It is kept as JSON: a decoded Pod takes ten times the memory, and a shared dictionary could be changed by a reader.
    """

    __slots__ = ("_fields", "deleting", "labels", "owners", "place", "raw", "uid", "version")

    def __init__(self, obj: Json, version: int) -> None:
        metadata = obj["metadata"]
        self.raw: bytes = msgspec.json.encode(obj)
        self.version = version
        self.place = Place(metadata.get("namespace", ""), metadata["name"])
        self.uid: str = metadata.get("uid", "")
        self.labels: dict[str, str] = metadata.get("labels") or {}
        self.owners: tuple[str, ...] = tuple(owner["uid"] for owner in metadata.get("ownerReferences") or ())
        self.deleting: bool = bool(metadata.get("deletionTimestamp"))
        self._fields: dict[str, str] = {"metadata.name": self.place.name, "metadata.namespace": self.place.namespace}

    def object(self) -> Json:
        """The object, decoded anew for each caller."""
        obj: Json = msgspec.json.decode(self.raw)
        return obj

    def field(self, path: str) -> str:
        """The field as field selectors compare it: text, empty when absent."""
        value = self._fields.get(path)
        if value is None:
            value = self._fields[path] = as_text(dig(self.object(), path))
        return value


def dig(value: Any, path: str) -> Any:
    """The value at a dotted path, or None."""
    for part in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class Change(NamedTuple):
    """One write.  The entry of a deletion is the object's last state at the version of the deletion."""

    key: Key
    type: str
    entry: Entry
    previous: Entry | None


class CompactedError(Exception):
    """The requested version is older than the kept history."""


FORMAT = 1
"""The version of the tables; a file with another one is refused instead of misread."""

TABLES = """
create table if not exists objects (
    api_group text, plural text, namespace text, name text, version integer, body blob,
    primary key (api_group, plural, namespace, name)
) without rowid;
create table if not exists counters (name text primary key, value integer) without rowid;
"""


class Row(NamedTuple):
    """One object in the journal."""

    group: str
    plural: str
    namespace: str
    name: str
    version: int
    body: bytes


class Journal:
    """Every object's newest state and the last resourceVersion, in one SQLite database.

    Each change is one transaction.  The end of this process loses none; a power cut may.
    """

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("pragma journal_mode = wal")
        # A commit takes microseconds, so that every write can wait for its own.
        self._database.execute("pragma synchronous = off")
        # Two servers on one file would each answer from their own memory.
        self._database.execute("pragma locking_mode = exclusive")
        self._database.executescript(TABLES)
        self._check_format()

    def _check_format(self) -> None:
        self._database.execute("insert or ignore into counters values ('format', ?)", [FORMAT])
        found = self._counter("format")
        if found != FORMAT:
            raise ValueError(f"the data was written in format {found}, this server reads {FORMAT}: use a new folder")

    def _counter(self, name: str) -> int:
        row = self._database.execute("select value from counters where name = ?", [name]).fetchone()
        return int(row[0]) if row else 0

    def last_version(self) -> int:
        """The newest resourceVersion, even if its object is gone."""
        return self._counter("version")

    def rows(self) -> Iterator[Row]:
        for row in self._database.execute("select api_group, plural, namespace, name, version, body from objects"):
            yield Row(*row)

    def put(self, row: Row) -> None:
        self._write(row.version, "insert or replace into objects values (?, ?, ?, ?, ?, ?)", row)

    def delete(self, version: int, place: tuple[str, str, str, str]) -> None:
        """Remove an object, deleted at `version`, by group, plural, namespace and name."""
        statement = "delete from objects where api_group = ? and plural = ? and namespace = ? and name = ?"
        self._write(version, statement, place)

    def _write(self, version: int, statement: str, values: tuple[object, ...]) -> None:
        with self._database:
            self._database.execute("begin immediate")
            self._database.execute(statement, values)
            self._database.execute("insert or replace into counters values ('version', ?)", [version])

    def close(self) -> None:
        self._database.close()


class Store:
    def __init__(self, journal: Journal | None = None, *, history: int = 10_000) -> None:
        """`history` is the number of changes of each kind from which a watch or a list can start."""
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
        """The oldest version of each kind from which a watch can start."""

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
        """Remove the object at `obj`'s place; `obj` is the last state that watches show."""
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
