"""Which histories the archive has: a table in a temporary file, which the service makes anew when it starts.

A million take some 300 MB there.  The archive itself is not asked for what a page shows: its server would load 8 MiB
for each line.
"""

import asyncio
import sqlite3
import weakref
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import takewhile

import msgspec
import structlog

from services.history.documents import Row
from shared.errors import Refused, Transient, Trouble
from shared.eventlog import EventLog, Extent
from shared.eventlog.parts import Part
from shared.job.naming import JobKey, Uid
from shared.telling.histories import JobHistory
from shared.telling.sealed import row_of, shown_of
from shared.telling.selection import as_text

LOOK_SECONDS = 1.0
"""Seconds between two looks for what is new in the archive."""
AT_ONCE = 500
"""Lines that are put into the table together."""
_TABLE = """
CREATE TABLE history (
    at INTEGER PRIMARY KEY, namespace TEXT, name TEXT, uid TEXT, first INTEGER, sequence INTEGER, time TEXT,
    called TEXT, kind TEXT, api_group TEXT, phase TEXT, gone INTEGER, labels TEXT, line BLOB);
CREATE UNIQUE INDEX by_name ON history (namespace, name, uid);
"""
_INSERT = "INSERT OR REPLACE INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ROW = "at, namespace, name, uid, first, sequence, time, called, kind, api_group, phase, gone, labels"
log = structlog.get_logger()


class Archived:
    """The index of one archive."""

    def __init__(self, eventlog: Callable[[], Awaitable[EventLog]]) -> None:
        self._log = eventlog
        self.looked = asyncio.Event()
        """Set once the archive was read for the first time."""
        self.identity = ""
        """That of the log whose archive is read."""
        self.extent = Extent()
        """At the last look."""
        self.read = 0
        """The sequence up to which it was read then: a copy that lags has less."""
        self._looking = asyncio.Lock()
        # A file of its own that is deleted with it.  Threads share it: SQLite gives each call its turn.  No statement
        # is kept for the next call: from Python 3.12 on two threads that take it at once get each other's rows.
        self._table = sqlite3.connect("", check_same_thread=False, cached_statements=0)
        weakref.finalize(self, self._table.close)
        self._table.executescript(f"PRAGMA journal_mode = MEMORY; PRAGMA cache_size = -16000; {_TABLE}")
        self._like = b""
        """The first line that was read: the others are much like it, and compressed by it."""

    def clear(self) -> None:
        """Have the next look begin anew: another archive may be there."""
        self.looked.clear()
        self.identity = ""

    async def _begin(self, identity: str) -> None:
        self.looked.clear()
        await self._write("DELETE FROM history", [()])
        self.identity, self.extent, self.read = identity, Extent(), 0

    async def follow(self) -> None:
        """Note what comes into the archive, for ever."""
        told = ""
        while True:
            try:
                await self.look()
                told = ""
            except Trouble as trouble:
                if isinstance(trouble, Refused):
                    # Lists have what the log has.
                    self.looked.set()
                if str(trouble) != told:
                    log.warning("the archive is not listed", why=(told := str(trouble)))
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Note what came into the archive since the last look, and what left it."""
        async with self._looking:
            eventlog = await self._log()
            identity, archive = await eventlog.identity(), eventlog.archive
            extent, known = await archive.extent(), self.extent
            if identity != self.identity or extent.created != known.created or extent.end < self.read:
                await self._begin(identity)
            elif extent.gone != known.gone:
                first, removed = await archive.removed()
                await self._write("DELETE FROM history WHERE at < ?", [(first,)])
                await self._write("DELETE FROM history WHERE at = ?", ((each,) for each in removed))
            self.extent = extent
            if extent.end > self.read:
                # The server that answers may not have all of it yet, or fail: the next look goes on from there.
                async with aclosing(archive.scan(self.read)) as found:
                    parts = list[Part]()
                    async for part in found:
                        parts.append(part)
                        if len(parts) == AT_ONCE:
                            await self._add(parts)
                            parts = []
                await self._add(parts)
            if self.identity == identity:
                self.looked.set()

    async def _add(self, parts: list[Part]) -> None:
        """Note the histories of these messages, each of which its last one describes."""
        if parts:
            await self._write(_INSERT, self._lines(parts))
            self.read = parts[-1].sequence

    async def _write(self, statement: str, values: Iterable[tuple[str | int | bytes, ...]]) -> None:
        """Raises `Transient` if the table has no room."""

        def write() -> None:
            with self._table:
                self._table.executemany(statement, values)

        try:
            await asyncio.to_thread(write)
        except sqlite3.Error as error:
            raise Transient(f"the table of the archive: {error}") from error

    def _lines(self, parts: Sequence[Part]) -> Iterator[tuple[str | int | bytes, ...]]:
        for part in parts:
            # A number that is too large for the table is none of the archiver's.
            if (row := row_of(part.row)) is not None and max(abs(part.seal.first), abs(row.sequence)) < 2**63:
                self._like = self._like or part.row
                packing = zlib.compressobj(zdict=self._like)
                group, line = row.api_version.partition("/")[0], packing.compress(part.row) + packing.flush()
                place = part.sequence, row.namespace, row.name, row.uid, part.seal.first, row.sequence, row.time
                yield (*place, row.called, row.kind, group, row.phase, row.gone, as_text(row.labels), line)

    def count(self, namespace: str, after: JobKey) -> int:
        """How many rows there are."""
        return int(next(self._asked("count(*)", namespace, after))[0])

    def rows(self, namespace: str, after: JobKey) -> Iterator[Row]:
        """Those of a namespace, or of all, from the first life of a name on, in order, without documents."""
        for at, place, name, uid, first, sequence, time, called, kind, group, phase, gone, labels in self._asked(
            _ROW, namespace, after, "ORDER BY namespace, name, uid"
        ):
            yield Row(
                key=JobKey(place, name, Uid(uid)),
                place=(place, f"{called}.{name}"),
                of=(group, kind),
                first=first,
                sequence=sequence,
                time=time,
                phase=phase,
                own=labels,
                gone=bool(gone),
                archived=at,
            )

    def has_later(self, row: Row) -> bool:
        """True if it has a later job of that kind and name."""
        lives = takewhile(lambda each: each.key.name == row.key.name, self.rows(row.key.namespace, row.key))
        return any(each.place == row.place and each.first > row.first for each in lives)

    def _asked(self, what: str, namespace: str, after: JobKey, order: str = "") -> sqlite3.Cursor:
        begin = max((after.namespace, after.name), (namespace, ""))
        where = "(namespace, name) >= (?, ?)" + (" AND namespace <= ?" if namespace else "")
        values = (*begin, namespace) if namespace else begin
        return self._table.execute(f"SELECT {what} FROM history WHERE {where} {order}", values)  # noqa: S608  ours

    def document(self, row: Row) -> bytes:
        """That of a row; empty for a history that was removed meanwhile."""
        if not row.archived:
            return row.document
        for (line,) in self._table.execute("SELECT line FROM history WHERE at = ?", (row.archived,)):
            known = row_of(zlib.decompressobj(zdict=self._like).decompress(line))
            assert known is not None, "it was read when it came"
            return msgspec.json.encode(JobHistory.of(shown_of(known), known.time))
        return b""
