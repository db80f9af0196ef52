"""The store's file: every object's newest state and the last resourceVersion, in one SQLite database.

Each write is one transaction of a whole group of changes, on disk when `write` returns.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

FORMAT = 1
"""Raised when the tables change; a file of another format is refused instead of being misread."""

TABLES = """
create table if not exists objects (
    api_group text, plural text, namespace text, name text, version integer, body blob,
    primary key (api_group, plural, namespace, name)
) without rowid;
create table if not exists counters (name text primary key, value integer) without rowid;
"""


class Row(NamedTuple):
    """One object as it is kept; without a body it is the object's removal."""

    group: str
    plural: str
    namespace: str
    name: str
    version: int
    body: bytes | None


class Journal:
    """Used by one thread at a time, not always the same one."""

    def __init__(self, path: Path, *, fsync: bool = True) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute("pragma journal_mode = wal")
        # FULL syncs the write-ahead log at every commit: an answered write survives a power cut, not only a kill.
        self._database.execute(f"pragma synchronous = {'full' if fsync else 'off'}")
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
        """The resourceVersion given last, even to an object that is gone."""
        return self._counter("version")

    def rows(self) -> Iterator[Row]:
        for row in self._database.execute("select api_group, plural, namespace, name, version, body from objects"):
            yield Row(*row)

    def write(self, rows: Sequence[Row], last_version: int) -> None:
        gone = [row[:4] for row in rows if row.body is None]
        kept = [row for row in rows if row.body is not None]
        self._database.execute("begin immediate")
        self._database.executemany(
            "delete from objects where api_group = ? and plural = ? and namespace = ? and name = ?", gone
        )
        self._database.executemany("insert or replace into objects values (?, ?, ?, ?, ?, ?)", kept)
        self._database.execute("insert or replace into counters values ('version', ?)", [last_version])
        self._database.execute("commit")

    def close(self) -> None:
        self._database.close()
