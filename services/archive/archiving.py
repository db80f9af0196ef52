"""Takes the steps for sealed histories, one after the other, while this replica holds the lease; and tells of it.

Ready: there is an archive that takes histories, and the log lets this process in.  A history that cannot be archived is
a warning: it stays in the log.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile

import msgspec
import structlog

from services.archive.core import Sealed, Step, next_step
from shared.backoff import doubled
from shared.errors import Conflict, Refused, Transient
from shared.eventlog import Stored
from shared.eventlog.account import ARCHIVE, ARCHIVER, STREAM
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.parts import Packing, seal_of
from shared.eventlog.subject import Subject, archived_under, names_people, people, people_of, seals
from shared.frameworks.kinds import Kinds
from shared.job.fold import may_follow_a_seal
from shared.job.naming import JobKey, archived_as, history_filters, key_archived, key_of
from shared.job.text import counted
from shared.process.kept_connection import Figures
from shared.process.serving import Report
from shared.runtime.queue import Slice
from shared.telemetry.metrics import Count, Metric
from shared.telling.reading import fold_to_end, line_of
from shared.telling.sealed import check_of_log, kept

DONE = Metric(
    "muster_archive_histories_total",
    "counter",
    ("what",),
    "Histories archived and purged, and messages that retention removed",
)
PURGED = Metric("muster_archive_purged_events_total", "counter", (), "Events that the archiver removed from the log")
WAITING = Metric("muster_archive_waiting", "gauge", (), "Sealed histories whose events are still in the log")
EVENTS = Metric("muster_archive_waiting_events", "gauge", (), "Events of sealed histories in the log")
FAILING = Metric("muster_archive_failing", "gauge", (), "Those of them that could not be archived, and are tried again")
OLDEST = Metric("muster_archive_oldest_seconds", "gauge", (), "For how long the oldest of them waits")


class ArchiveFigures(Figures):
    """The report and the metrics of this process."""

    def __init__(self) -> None:
        super().__init__(ARCHIVER)
        self.names = False
        self.done, self.purged = Count(DONE), Count(PURGED)
        self.purged.add(by=0)
        self._warnings: tuple[str, ...] = ()
        self._told = dict.fromkeys((WAITING, EVENTS, FAILING, OLDEST), 0.0)
        self.gauges = {metric: partial(self._told.__getitem__, metric) for metric in self._told}
        for what in ("archived", "purged", "removed"):
            self.done.add(what, by=0)

    def tell(self, sealed: Iterable[Sealed], now: float) -> None:
        waiting = [each for each in sealed if each.waits]
        failing = [each for each in sealed if each.trouble]
        events = sum(each.seal.count for each in waiting)
        oldest = max(now - waiting[0].at, 0.0) if waiting else 0.0
        self._told |= {WAITING: len(waiting), EVENTS: events, FAILING: len(failing), OLDEST: oldest}
        why = {each.trouble: each for each in reversed(failing)}
        self._warnings = tuple(
            f"{each.key}: {trouble}" if self.names else "a sealed history is not archived"
            for trouble, each in why.items()
        )[:1]

    def report(self) -> Report:
        found = super().report()
        warnings, failing = self._warnings, int(self._told[FAILING])
        if failing > 1:
            warnings = (*warnings, f"{counted(failing, 'sealed history')} cannot be archived")
        return msgspec.structs.replace(found, warnings=warnings)


FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 300.0
"""Before a step that failed is tried again, twice as long each time."""
REST_SECONDS = 1.0
RETAIN_SECONDS = 60.0
"""Seconds between two looks for what retention takes away."""
DAY_SECONDS = 86_400.0
MOST_REMOVED = 1_000
"""The most histories that one such look removes for their age."""
MOST_TOLD = 100
"""The most foreign messages of the archive that are told once; with more they are told again."""

_OF_ONE_HISTORY = ("TooLarge", "Invalid")
"""The refusals that are about the history; any other one is about the archive or this process."""

log = structlog.get_logger()


class Archiver:
    """What waits, and the work on it, on one log."""

    def __init__(
        self,
        eventlog: JetStreamEventLog,
        kinds: Kinds,
        figures: ArchiveFigures,
        *,
        namespace: str = "",
        seals: float = DAY_SECONDS,
        days: dict[str, int] | None = None,
        most: dict[str, int] | None = None,
        people: float = 90 * DAY_SECONDS,
    ) -> None:
        """`seals` are the seconds for which the log keeps a seal.

        `days` and `most` are how long and how many histories of a namespace the archive keeps, those of all others
        under an empty name; 0 is for ever, and all.  `people` are the seconds for which both keep who made a change.
        """
        self.sealed: dict[int, Sealed] = {}
        """By the sequence of the seal, in its order."""
        self._open: dict[int, Sealed] = {}
        """Those of them that wait, or failed; the others have nothing to do but to leave, the oldest first."""
        self._slice = Slice()
        self._log = eventlog
        self._kinds = kinds
        self._figures = figures
        self._namespace = namespace
        self._seals = seals
        self._days, self._most, self._people = days or {}, most or {}, people
        self._grown: set[str] | None = None
        """Namespaces with more in the archive than at the last look; None before the first one."""
        self._looked = 0.0
        self._followed = asyncio.Event()
        """Set once every seal was noted that the log had at the start."""
        self._told = set[str]()
        """The messages of the archive that are no part of it, as they were told."""
        self._retained: dict[str, int] = {}
        """By namespace, the sequence of the archive up to which everything is younger or of another namespace."""

    async def follow(self) -> None:
        """Note the seals of the log, for ever."""
        subjects = (seals(self._namespace or "*"),)
        async with aclosing(self._log.read(subjects=subjects)) as batches:
            async for batch in batches:
                for stored in batch.events:
                    self.note(stored)
                if not batch.pending:
                    self._followed.set()

    def note(self, stored: Stored) -> None:
        try:
            key, seal = key_of(Subject.parse(stored.subject)), seal_of(stored.body)
            at = datetime.fromisoformat(stored.logged).timestamp()
        except ValueError as error:
            log.warning("not a seal", sequence=stored.sequence, why=str(error))
            return
        self.sealed[stored.sequence] = self._open[stored.sequence] = Sealed(key, stored.sequence, at, seal)

    async def work(self, held: Callable[[], bool]) -> None:
        """Do what comes next while the lease is held; a log or an archive that is away is waited for."""
        failures = 0
        # Retention has to know every seal.
        await self._followed.wait()
        while held():
            try:
                await self.turn(held)
            except Transient as trouble:
                failures += 1
                if str(trouble) != self._figures.refused:
                    log.warning("not archived", why=str(trouble))
                self._figures.refused = str(trouble)
                await asyncio.sleep(doubled(FIRST_PAUSE_SECONDS, failures, LONGEST_PAUSE_SECONDS / 10))
            else:
                failures, self._figures.refused = 0, ""
                await asyncio.sleep(REST_SECONDS)

    async def turn(self, held: Callable[[], bool]) -> None:
        """Take every step that can be taken now.  Raises `Transient` if the log or the archive is away or full."""
        waiting, trouble = set[JobKey](), None
        async for sealed in self._slice.each(self._due()):
            while held() and (now := self._log.now()) is not None:
                step = next_step(sealed, now, self._seals, earlier=sealed.key in waiting)
                if step is None or (step == "copy" and trouble is not None):
                    break
                try:
                    await self._take(step, sealed, now)
                except Transient as found:
                    if step != "copy":
                        # Until the next try the copy may be lost.
                        sealed.kept = sealed.purged
                        raise
                    # What is copied already may leave the log while the archive takes no more.
                    trouble = found
                    break
                if step == "drop":
                    break
            if sealed.waits:
                waiting.add(sealed.key)
            if sealed.kept and sealed.purged and not sealed.trouble:
                self._open.pop(sealed.sequence, None)
        self._figures.tell(self._open.values(), self._log.now() or 0.0)
        now = asyncio.get_running_loop().time()
        if held() and now >= self._looked + RETAIN_SECONDS:
            # Of a full archive, too: nothing else makes room there.
            await self._retain()
            self._looked = now
        if trouble is not None:
            raise trouble

    def _due(self) -> list[Sealed]:
        """Those for which something may be done now, in order."""
        old = (self._log.now() or 0.0) - self._seals
        leaving = takewhile(lambda sealed: sealed.at <= old, self.sealed.values())
        due = {sealed.sequence: sealed for sealed in (*leaving, *self._open.values())}
        return [due[sequence] for sequence in sorted(due)]

    async def _take(self, step: Step, sealed: Sealed, now: float) -> None:
        subject = archived_as(sealed.key)
        try:
            match step:
                case "copy":
                    await self._copy(sealed, subject)
                case "purge":
                    await self._purge(sealed, sealed.sequence)
                    sealed.purged = True
                    self._figures.done.add("purged")
                case "drop":
                    await self._drop(sealed, now)
        except (Refused, Conflict, ValueError) as trouble:
            if isinstance(trouble, Refused) and trouble.reason not in _OF_ONE_HISTORY:
                raise Transient(str(trouble)) from trouble
            self._failed(sealed, str(trouble), now)
        except Transient:
            raise
        except Exception as error:
            # The others go on.
            log.exception("not archived", job=str(sealed.key), seal=sealed.sequence)
            self._failed(sealed, f"a fault of the archiver: {error!r}", now)

    def _failed(self, sealed: Sealed, why: str, now: float) -> None:
        if why != sealed.trouble:
            log.warning("not archived", job=str(sealed.key), seal=sealed.sequence, why=why)
        sealed.failed(why, now + doubled(FIRST_PAUSE_SECONDS, sealed.tries + 1, LONGEST_PAUSE_SECONDS))
        self._open[sealed.sequence] = sealed

    async def _copy(self, sealed: Sealed, subject: str) -> None:
        """Copy what the archive lacks, and read back what it has."""
        filters = history_filters(sealed.key)
        first = await self._log.first(filters)
        left = 0 < first < sealed.sequence
        copy = await kept(self._log.archive, subject, sealed.seal)
        if copy.fault is None and left:
            if not await self._store(sealed, subject):
                self._let_go(sealed)
                return
            copy = await kept(self._log.archive, subject, sealed.seal)
        if (fault := copy.fault) is None:
            words = "the archive does not have what was stored" if left else "neither the log nor the archive has it"
            raise ValueError(words)
        if fault:
            raise ValueError(f"the archive differs from the seal: {fault}")
        if left:
            try:
                await self._copy_people(sealed, subject)
            except Transient as trouble:
                # It is there, so the archive is: one that an upgrade has not set up anew takes no names alone.
                raise ValueError(str(trouble)) from trouble
        sealed.kept, sealed.first, sealed.purged = True, copy.first, not left
        sealed.trouble, sealed.tries = "", 0

    async def _store(self, sealed: Sealed, subject: str) -> bool:
        """Store the history; False for a seal that a person disowned, since it does not fit: the history goes on."""
        packing, ends = Packing(), False

        def took(stored: Stored) -> None:
            nonlocal ends
            ends = ends or stored.sequence == sealed.sequence
            if not names_people(stored.subject):
                packing.add(line_of(stored))

        check = await check_of_log(self._log, sealed.key, sealed.sequence, took)
        if fault := check.fault(sealed.seal):
            if check.disowned:
                return False
            raise ValueError(f"the log differs from the seal: {fault}")
        if not ends:
            # A server that lags answered: a copy without the seal's own event is not the whole.
            raise Transient(f"the answer of the log ends before the seal at {sealed.sequence}")
        await self._log.archive.store(subject, sealed.seal, packing.bodies(), check.row(self._kinds))
        self._figures.done.add("archived")
        if self._grown is not None:
            self._grown.add(sealed.key.namespace)
        return True

    def _let_go(self, sealed: Sealed) -> None:
        """A later seal, if there is one, ends this history; this one leaves the log with that."""
        log.info("a seal counts for nothing", job=str(sealed.key), seal=sealed.sequence)
        sealed.purged = True
        self._leave(sealed)

    def _leave(self, sealed: Sealed) -> None:
        self.sealed.pop(sealed.sequence, None)
        self._open.pop(sealed.sequence, None)

    async def _copy_people(self, sealed: Sealed, subject: str) -> None:
        """Copy who made its changes, a day's together, each for the rest of the first one's time."""
        now, key = self._log.now() or 0.0, sealed.key
        days: dict[str, tuple[int, Packing]] = {}

        def took(stored: Stored) -> None:
            rest = int(datetime.fromisoformat(stored.logged).timestamp() + self._people - now) if self._people else 0
            if stored.sequence < sealed.sequence and (rest > 0 or not self._people):
                days.setdefault(stored.logged[:10], (rest, Packing()))[1].add(line_of(stored))

        await fold_to_end(self._log, took, (people(key.namespace, key.name, key.uid),))
        if days:
            bodies = ((body, rest) for rest, packing in days.values() for body in packing.bodies())
            await self._log.archive.store_people(subject, sealed.seal, bodies)

    async def _purge(self, sealed: Sealed, before: int) -> None:
        # The facts first: who reads decisions without a fact before them knows that they are being purged.
        for each in history_filters(sealed.key):
            self._figures.purged.add(by=await self._log.archive.purge(STREAM, each, before))

    async def _drop(self, sealed: Sealed, now: float) -> None:
        filters = history_filters(sealed.key)
        if (end := await self._log.end(filters)) > sealed.sequence:
            chain: list[int] = []

            def note(stored: Stored) -> None:
                if stored.sequence > sealed.sequence and not may_follow_a_seal(stored.subject):
                    chain.append(stored.sequence)

            await fold_to_end(self._log, note, filters)
            if chain:
                # Without the seal a later event would be the begin of a history.
                sealed.again = now + LONGEST_PAUSE_SECONDS
                return
        await self._purge(sealed, max(end, sealed.sequence) + 1)
        self._leave(sealed)

    async def _retain(self) -> None:
        try:
            await self.retain()
        except Refused as refusal:
            if refusal.reason not in _OF_ONE_HISTORY:
                raise
            log.warning("not archived", why=str(refusal))

    async def retain(self) -> None:
        """Remove from the archive what is too old, and what is too much, but nothing whose seal the log still has.

        Of a seal without a copy the next archiver could not tell that nothing was lost.  And from the log who made the
        changes that are too old.
        """
        if self._people and (now := self._log.now()) is not None:
            since = datetime.fromtimestamp(max(now - self._people, 0.0), UTC).isoformat()
            gone = await self._log.archive.purge_older(people(self._namespace or "*"), since)
            self._figures.purged.add(by=gone)
        if self._grown is None:
            # A number that was lowered counts where nothing ends, too.
            self._grown = await self._log.archive.namespaces(self._namespace) if self._most else set()
        for namespace in sorted(self._grown):
            if most := self._most.get(namespace, self._most.get("", 0)):
                subject, archive = archived_under(namespace), self._log.archive
                stay = [each.first for each in self.sealed.values() if each.first and each.key.namespace == namespace]
                # Behind the first of them there may be others, such as marks of forgotten histories.
                if (parts := await archive.count(subject, min(stay)) if stay else 0) < most:
                    removed = await archive.keep(subject, most)
                else:
                    removed = await archive.purge(ARCHIVE, subject, min(stay))
                async with aclosing(archive.parts(subject, foreign=self._foreign)) as rest:
                    async for part in rest:
                        if part.number <= 1:
                            # Who made the changes of a history was stored after it.
                            removed += await archive.purge(ARCHIVE, people_of(subject), part.sequence)
                            break
                        # The rest of a history whose first part is gone.
                        removed += await archive.purge(ARCHIVE, part.subject, part.sequence + 1)
                self._figures.done.add("removed", by=removed)
                if parts <= most:
                    # Only now: a store that failed before is asked again for the names.
                    self._grown.discard(namespace)
            else:
                self._grown.discard(namespace)
        for namespace, days in self._days.items():
            if days and (not self._namespace or namespace in ("", self._namespace)):
                await self._remove_old(namespace, days)

    def _foreign(self, refusal: Refused) -> None:
        """It is stepped over: it would keep all that comes behind it for ever."""
        if (why := str(refusal)) not in self._told:
            log.warning("not a part of the archive", why=why)
            self._told = {*self._told, why} if len(self._told) < MOST_TOLD else {why}

    async def _remove_old(self, namespace: str, days: int) -> None:
        if (now := self._log.now()) is None:
            return
        after, removed, seen = self._retained.get(namespace, 0), 0, True
        stay = {archived_as(each.key) for each in self.sealed.values()}
        subject = archived_under(self._namespace or namespace or "*")
        async with aclosing(self._log.archive.parts(subject, after, self._foreign)) as parts:
            async for part in parts:
                if datetime.fromisoformat(part.time).timestamp() > now - days * DAY_SECONDS or removed >= MOST_REMOVED:
                    break
                if part.subject in stay:
                    seen = False
                elif namespace or key_archived(part.subject).namespace not in self._days:
                    removed += await self._log.archive.remove(part.subject, part.sequence + 1)
                if seen:
                    self._retained[namespace] = part.sequence
        self._figures.done.add("removed", by=removed)
