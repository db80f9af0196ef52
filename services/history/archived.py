"""Which histories the archive has: a line of some hundred bytes for each; documents are read as a page needs them."""

import asyncio
from bisect import bisect_left, insort
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec
import structlog

from services.history.documents import Kept, Row
from shared.errors import Refused, Trouble
from shared.eventlog import EventLog
from shared.eventlog.parts import Part
from shared.job.naming import JobKey, Uid
from shared.telling.sealed import row_of, shown_of
from shared.telling.selection import as_text

LOOK_SECONDS = 1.0
"""Seconds between two looks for what is new in the archive."""
FEW = 1_000
"""So many new lines are put into their places one by one."""
AT_ONCE = 64
"""Documents that are read together."""
log = structlog.get_logger()


class _Of(NamedTuple):
    """What many histories have in common."""

    called: str
    kind: str
    group: str
    phase: str
    gone: bool


class Archived:
    """The index of one archive."""

    def __init__(self, eventlog: Callable[[], Awaitable[EventLog]]) -> None:
        self._log = eventlog
        self.looked = asyncio.Event()
        """Set once the archive was read for the first time."""
        self.clear()

    def clear(self) -> None:
        """Begin anew: another archive may be there."""
        self.looked.clear()
        self.extent = (0, 0)
        """The number of messages and the last sequence, at the last look."""
        self._read = 0
        self._lines: list[bytes] = []
        """Sorted; a zero byte between its parts: namespace, name, uid, place in `_of`, time, sequences, labels."""
        self._of: list[_Of] = []
        self._places: dict[_Of, int] = {}

    async def follow(self) -> None:
        """Note what comes into the archive, for ever."""
        told = ""
        while True:
            try:
                await self._look(await self._log())
                told = ""
            except Trouble as trouble:
                if isinstance(trouble, Refused):
                    # Lists have what the log has.
                    self.looked.set()
                if str(trouble) != told:
                    log.warning("the archive is not listed", why=(told := str(trouble)))
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, eventlog: EventLog) -> None:
        messages, end = await eventlog.archive.extent()
        if end < self._read or len(self._lines) > messages + messages // 10 + FEW:
            # Another archive, or one from which much was removed.
            self.clear()
        if end > self._read:
            lines, read = list[bytes](), self._read
            async with aclosing(eventlog.archive.scan(read)) as parts:
                async for part in parts:
                    read = part.sequence
                    if (line := self._line(part)) is not None:
                        lines.append(line)
            if len(lines) > FEW:
                self._lines = await asyncio.to_thread(sorted, [*self._lines, *lines])
            else:
                for line in lines:
                    insort(self._lines, line)
            # The server that answered may not have all of it yet: the next look goes on from here.
            self._read = read
        self.extent = messages, end
        self.looked.set()

    def _line(self, part: Part) -> bytes | None:
        """That of a history, which its last part has; None for another part."""
        if (row := row_of(part)) is None:
            return None
        of = _Of(row.called, row.kind, row.api_version.partition("/")[0], row.phase, row.gone)
        if (place := self._places.get(of)) is None:
            place = self._places[of] = len(self._of)
            self._of.append(of)
        words = row.namespace, row.name, row.uid, place, row.time, part.seal.first, row.sequence, part.sequence
        return "\0".join(map(str, (*words, as_text(row.labels)))).encode()

    def lines(self, namespace: str, after: JobKey) -> Sequence[bytes]:
        """Those of a namespace, or of all, from the first life of a name on."""
        begin = bisect_left(self._lines, f"{after.namespace}\0{after.name}\0".encode() if after.namespace else b"")
        if not namespace:
            return self._lines[begin:]
        first, end = (bisect_left(self._lines, f"{namespace}{each}".encode()) for each in ("\0", "\1"))
        return self._lines[max(begin, first) : end]

    def rows(self, lines: Sequence[bytes]) -> Iterator[Row]:
        """Their rows, without documents."""
        for line in lines:
            namespace, name, uid, place, time, first, sequence, at, own = line.decode().split("\0")
            of = self._of[int(place)]
            yield Row(
                key=JobKey(namespace, name, Uid(uid)),
                place=(namespace, f"{of.called}.{name}"),
                of=(of.group, of.kind),
                first=int(first),
                sequence=int(sequence),
                time=time,
                phase=of.phase,
                own=own,
                gone=of.gone,
                archived=int(at),
            )

    async def documents(self, rows: Sequence[Row]) -> list[bytes]:
        """The documents of these rows; none of a history that was removed meanwhile."""
        eventlog, places = await self._log(), asyncio.Semaphore(AT_ONCE)

        async def document(row: Row) -> bytes:
            async with places:
                part = await eventlog.archive.at(row.archived)
            archived = None if part is None else row_of(part)
            return (
                msgspec.json.encode(Kept(shown_of(archived), archived.time, archived.began).document)
                if archived
                else b""
            )

        # Most lists have none of the archive, and a task for each of 20,000 rows would hold the loop for long.
        older = iter(await asyncio.gather(*(document(row) for row in rows if row.archived)))
        return [found for row in rows if (found := next(older) if row.archived else row.document)]
