"""The store's file: every object's newest state and the last resourceVersion, in one SQLite database.

Each change is one transaction.  The end of this process loses none; a power cut may.
"""

import sqlite3
from collections.abc import Iterator
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
    """One object as it is kept."""

    group: str
    plural: str
    namespace: str
    name: str
    version: int
    body: bytes


class Journal:
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
        """The resourceVersion given last, even to an object that is gone."""
        return self._counter("version")

    def rows(self) -> Iterator[Row]:
        for row in self._database.execute("select api_group, plural, namespace, name, version, body from objects"):
            yield Row(*row)

    def put(self, row: Row) -> None:
        self._write(row.version, "insert or replace into objects values (?, ?, ?, ?, ?, ?)", row)

    def delete(self, version: int, place: tuple[str, str, str, str]) -> None:
        """Group, plural, namespace and name of an object that is gone since `version`."""
        statement = "delete from objects where api_group = ? and plural = ? and namespace = ? and name = ?"
        self._write(version, statement, place)

    def _write(self, version: int, statement: str, values: tuple[object, ...]) -> None:
        with self._database:
            self._database.execute("begin immediate")
            self._database.execute(statement, values)
            self._database.execute("insert or replace into counters values ('version', ?)", [version])

    def close(self) -> None:
        self._database.close()
