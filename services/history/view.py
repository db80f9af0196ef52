"""The view: every history that the log has, folded once as events come; lists, documents and watches are made of it.

Of each job there is a row with its document.  The fold's state of the jobs with the newest events is kept as it is, and
that of the others packed: an event of such a job costs some 0.2 ms more.
"""

import asyncio
import pickle
import zlib
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

import msgspec
import structlog

from services.history.archived import Archived
from services.history.documents import Row
from shared.errors import Refused, Transient, Trouble
from shared.eventlog import EventLog, Stored
from shared.eventlog.parts import seal_of
from shared.eventlog.retry import backoff
from shared.eventlog.subject import Subject, split
from shared.frameworks.kinds import Kinds
from shared.job.chain import Head
from shared.job.events.catalog import for_people
from shared.job.fold import History
from shared.job.naming import NO_UID, JobKey, Uid, key_of
from shared.runtime.queue import Slice
from shared.telling.histories import JobHistory
from shared.telling.reading import is_seal
from shared.telling.selection import as_text
from shared.telling.shown import Shown
from shared.telling.targets import Asked, chosen

UNPACKED = 2_000
"""Histories whose state is in memory as it is."""
SEALED = 10_000
"""Rows of sealed histories, the newest ones; lists have the others once the archive has them."""
WAIT_SECONDS = 2.0
"""Seconds that a question waits for the first fold, before it is told to come again."""
COME_AGAIN_SECONDS = 2
log = structlog.get_logger()


class Folding(Transient):
    """The first fold is under way."""


class _Folded:
    __slots__ = ("first", "history", "key", "packed", "prefixes", "sealed")

    def __init__(self, key: JobKey, first: int) -> None:
        self.key = key
        self.first = first
        self.prefixes = set[str]()
        self.history: History | None = History(key)
        self.packed = b""
        self.sealed = False

    def unpacked(self) -> History:
        # Written here, and nowhere else.
        return self.history or pickle.loads(zlib.decompress(self.packed))  # noqa: S301


class View:
    def __init__(self, log: Callable[[], Awaitable[EventLog]], kinds: Kinds) -> None:
        """`log` gives the connected log, or raises `Trouble`."""
        self._log = log
        self._kinds = kinds
        self._slice = Slice()
        self.archived = Archived(log)
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self.folded = asyncio.Event()
        """Set when `complete` is true for the first time."""
        self._clear("")

    def _clear(self, identity: str) -> None:
        self.identity = identity
        """That of the log which was folded."""
        self.position = 0
        """The last sequence that the rows know."""
        self.complete = False
        """True once the first fold has reached the log's end."""
        self.epoch = object()
        """Another one after the log was replaced: its sequences mean nothing in this one."""
        self._read = self._end = 0
        self._began = False
        self._by_prefix: dict[str, _Folded] = {}
        self._folded: dict[JobKey, _Folded] = {}
        self._unpacked: dict[JobKey, _Folded] = {}
        self._dirty: dict[JobKey, _Folded] = {}
        self._sealed: dict[JobKey, None] = {}
        self._rows: dict[JobKey, Row] = {}
        self._newest: dict[tuple[str, str], Row] = {}
        self._keys: list[JobKey] | None = None
        self._wake()

    @property
    def folding(self) -> str:
        """How far the first fold is, in words; empty once it is over, and while the log is away."""
        return f"it has folded {self._read} of {self._end} events" if self._began and not self.complete else ""

    def start(self) -> None:
        """Follow the log and the archive from now on."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(each) for each in (self._follow(), self.archived.follow())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def reached(self, identity: str, end: int, *, archived: bool = False) -> None:
        """Wait until the rows know the event `end` of this log, and `archived` what the archive has.

        Raises `Folding` while the first fold is under way.
        """
        self.start()
        try:
            known = self.complete and (self.archived.looked.is_set() or not archived)
            async with asyncio.timeout(None if known else WAIT_SECONDS):
                while not self.complete or self.identity != identity or self.position < end:
                    await self._changed.wait()
                if archived:
                    await self.archived.looked.wait()
        except TimeoutError as late:
            words = self.folding or ("the archive is read" if self.complete else "it has not begun")
            raise Folding(
                f"the service reads the log for the first time: {words}", retry_after=COME_AGAIN_SECONDS
            ) from late

    async def beyond(self, position: int, epoch: object) -> None:
        """Wait for a later event.  Raises `Refused(reason="Expired")` after the end of the log of that epoch."""
        while self.epoch is epoch and self.position <= position:
            await self._changed.wait()
        if self.epoch is not epoch:
            raise Refused("another log is in the place of the one before; list anew", reason="Expired")

    def rows(self, namespace: str = "", *, every: bool = False) -> list[Row]:
        """Those of a namespace, or of all, by namespace, name and uid; the newest of each name without `every`."""
        if self._keys is None:
            self._keys = sorted(self._rows)
        keys = self._keys
        if namespace:
            keys = keys[_at(keys, namespace) : _at(keys, f"{namespace}\0")]
        found = [self._rows[key] for key in keys]
        return found if every else [row for row in found if self.is_newest(row)]

    def changed(self, after: int) -> list[Row]:
        """Those with an event after a sequence, in the order of their last ones."""
        found = list[Row]()
        for row in reversed(self._rows.values()):
            if row.sequence <= after:
                break
            found.append(row)
        return found[::-1]

    def is_newest(self, row: Row) -> bool:
        """True unless a later job has its name."""
        return self._newest.get(row.place) is row

    def find(self, asked: Asked, namespace: str, uid: str = "") -> Row | None:
        """The newest job of that name and kind, or that of the uid; None if the view has none.

        Raises `Refused` if jobs of several kinds have the name.
        """
        if asked.is_request:
            return None
        of = {(target.resource.group, target.resource.kind): target for target in asked.targets}
        lives = (row for row in self.rows(namespace, every=True) if row.key.name == asked.name and row.of in of)
        found = [row for row in lives if uid in ("", row.key.uid)]
        there = [row for row in found if not row.gone] or found
        target = chosen(asked, {of[row.of]: None for row in there}, namespace)
        return max((row for row in found if of[row.of] is target), key=lambda row: row.first, default=None)

    async def _follow(self) -> None:
        tries = 0
        while True:
            try:
                eventlog = await self._log()
                try:
                    await self._fold_all(eventlog)
                    tries = 0
                except Refused as refusal:
                    if refusal.reason in ("LogReplaced", "LogTruncated"):
                        self._clear("")
                        self.archived.clear()
                        await eventlog.close()
                    raise
            except Trouble as trouble:
                log.debug("the log is not followed", why=str(trouble))
            except Exception:
                log.exception("the view begins anew")
                self._clear("")
            await asyncio.sleep(backoff(tries))
            tries += 1

    async def _fold_all(self, eventlog: EventLog) -> None:
        if (identity := await eventlog.identity()) != self.identity:
            self._clear(identity)
            if self.archived.identity != identity:
                self.archived.clear()
        self._end, self._began = await eventlog.end(), True
        async with aclosing(eventlog.read(after=self._read)) as batches:
            async for batch in batches:
                async for stored in self._slice.each(batch.events):
                    self._fold(stored)
                if self.complete or not batch.pending:
                    await self._publish()
                await asyncio.sleep(0)

    def _fold(self, stored: Stored) -> None:
        self._read = stored.sequence
        try:
            prefix, author, tag = split(stored.subject)
            folded = self._by_prefix.get(prefix)
            if folded is None:
                key = key_of(Subject.parse(stored.subject))
                folded = self._folded.get(key) or _Folded(key, stored.sequence)
        except ValueError:
            return
        if folded.key.uid == NO_UID or for_people(author, tag):
            return
        if folded.sealed or folded.key in self._sealed:
            return
        if is_seal(stored) and folded.key not in self._folded:
            # Of one whose events are in the archive alone there is no row.
            self._note_sealed(folded.key)
            return
        self._folded[folded.key] = self._by_prefix[prefix] = self._dirty[folded.key] = folded
        folded.prefixes.add(prefix)
        history = self._history(folded)
        head = history.head if is_seal(stored) else None
        history.fold(stored)
        folded.sealed = history.sealed
        if folded.sealed and (seal := seal_of(stored.body)) and head != Head(seal.last, seal.hash):
            # The archiver purged what was not read yet: the archive has the whole.
            del self._dirty[folded.key]
            self._seal(folded)
            self._remove(folded.key)

    def _history(self, folded: _Folded) -> History:
        """The fold of a job that goes on."""
        history = folded.history = folded.unpacked()
        folded.packed = b""
        self._unpacked.pop(folded.key, None)
        self._unpacked[folded.key] = folded
        if len(self._unpacked) > UNPACKED:
            oldest = self._unpacked.pop(next(iter(self._unpacked)))
            oldest.packed, oldest.history = zlib.compress(pickle.dumps(oldest.history, 5), 1), None
        return history

    async def _publish(self) -> None:
        """Make the rows of what changed, and show all of them at once."""
        dirty, self._dirty = self._dirty, {}
        made = [(folded, self._row(folded)) async for folded in self._slice.each(dirty.values())]
        for folded, row in sorted(made, key=lambda each: each[1].sequence):
            before = self._rows.pop(folded.key, None)
            if before is None:
                self._keys = None
            elif before.place != row.place and self._newest.get(before.place) is before:
                del self._newest[before.place]
            self._rows[folded.key] = row
            # A job is sealed long after it is gone, when another may have its name.
            if (newest := self._newest.get(row.place)) is None or newest.first <= row.first:
                self._newest[row.place] = row
            if folded.sealed:
                self._seal(folded)
        self.position, self.complete = self._read, True
        self.folded.set()
        self._wake()

    def _row(self, folded: _Folded) -> Row:
        history = folded.unpacked()
        shown = Shown.of(history, self._kinds)
        document = JobHistory.of(shown, history.time)
        return Row(
            key=folded.key,
            place=(folded.key.namespace, document.metadata.name),
            of=(shown.api_version.partition("/")[0], shown.kind),
            first=folded.first,
            sequence=history.sequence,
            time=history.time,
            phase=shown.phase,
            own=as_text(shown.labels),
            gone=shown.gone,
            document=msgspec.json.encode(document),
        )

    def _seal(self, folded: _Folded) -> None:
        """Keep the row alone, and no more rows of sealed histories than the bound."""
        for prefix in folded.prefixes:
            self._by_prefix.pop(prefix, None)
        self._folded.pop(folded.key, None)
        self._unpacked.pop(folded.key, None)
        self._note_sealed(folded.key)

    def _note_sealed(self, key: JobKey) -> None:
        self._sealed[key] = None
        if len(self._sealed) > SEALED:
            oldest = next(iter(self._sealed))
            del self._sealed[oldest]
            self._remove(oldest)

    def _remove(self, key: JobKey) -> None:
        if (row := self._rows.pop(key, None)) is not None:
            self._keys = None
            if self._newest.get(row.place) is row:
                del self._newest[row.place]

    def _wake(self) -> None:
        woken, self._changed = self._changed, asyncio.Event()
        woken.set()


def _at(keys: Sequence[JobKey], namespace: str) -> int:
    return bisect_left(keys, JobKey(namespace, "", Uid("")))
