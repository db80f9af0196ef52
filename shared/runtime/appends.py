"""The appends of a service: decisions, one at a time per job, and facts that only it knows, until they are stored.

Each append is guarded by the last event of its scope.  The runtime says what to append; the work queue gets the job's
key when there may be more.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime

import msgspec

from shared.errors import Conflict, Refused, Transient
from shared.eventlog import Entry, EventLog, Stored, scope_of
from shared.eventlog.retry import backoff
from shared.job.events.catalog import FACTS, AnyEvent
from shared.job.events.event import Author
from shared.job.fold import History
from shared.job.naming import JobKey, decision_subject, fact_subject
from shared.runtime import telling
from shared.runtime.queue import WorkQueue
from shared.telemetry.figures import seconds_between
from shared.telemetry.meters import Meters

APPENDS_IN_FLIGHT = 256
"""Appends of one service at a time, each of another scope."""

REFUSED_SECONDS = 5.0
"""How soon a refused append is tried again: a person mends that, and each try is a line."""

MOST_UNCERTAIN = 1_000
"""Appends remembered until they are read back, the newest of them; without an answer most never were stored."""


class _UnderWay:
    """What is under way for one job."""

    def __init__(self) -> None:
        self.appending = False
        self.awaited = 0
        """The sequence of our last append, as answered or read; nothing more is recorded until it was read back."""
        self.claimed = 0
        """The last of those sequences that was claimed."""
        self.insisting = 0
        """Facts that are to be stored, one after the other."""
        self.facts = asyncio.Lock()


class Appends:
    """The appends of one service."""

    def __init__(
        self,
        author: Author,
        eventlog: EventLog,
        queue: WorkQueue[JobKey],
        *,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        chance: Callable[[], float],
        meters: Meters,
    ) -> None:
        self.trouble = ""
        """What keeps this service from appending; empty when all is well."""
        self._troubled: JobKey | None = None
        """Whose decision was the last that could not be appended; None when it was a fact, which is tried until it is
        stored."""
        self.seconds = 0.0
        """How long the last one took, its turn included: what the log can bear."""
        self._author = author
        self._log = eventlog
        self._queue = queue
        self._now = now
        self._new_id = new_id
        self._chance = chance
        self._meters = meters
        self._under_way: defaultdict[JobKey, _UnderWay] = defaultdict(_UnderWay)
        self.uncertain: dict[str, tuple[AnyEvent, str]] = {}
        """Decisions, by event id, that may be in the log by now, and what they were taken on."""
        self._slots = asyncio.Semaphore(APPENDS_IN_FLIGHT)

    def record(self, history: History, event: AnyEvent) -> Coroutine[None, None, None] | None:
        """The append of what was just decided, to be run; None while the last one of that job is not read back."""
        if self.busy(history):
            # It comes back first, and wakes us.
            return None
        self._under_way[history.job.key].appending = True
        return self._append(history, event, self._expected(history, event), history.basis, history.time)

    def nothing_to_record(self, history: History) -> None:
        """The job needs no decision any more: an append of it that was in trouble is not tried again."""
        if self._troubled == history.job.key:
            self.trouble = ""

    def busy(self, history: History) -> bool:
        """Whether the last append of that job is under way, or not read back."""
        known = self._under_way.get(history.job.key)
        return known is not None and (known.appending or history.sequence < known.awaited)

    def forget(self, history: History) -> None:
        """The job is gone: keep nothing of it, unless something is under way still, which wakes it again."""
        known = self._under_way.get(history.job.key)
        if known is not None and not known.insisting and not self.busy(history):
            del self._under_way[history.job.key]

    def claim(self, key: JobKey, sequence: int) -> bool:
        """Whether this process recorded that decision, as its newest of the job, and it was not claimed before.

        For what must not happen twice.  The newest is enough: the turn that reads a decision back claims it before
        the next one can be appended.
        """
        known = self._under_way.get(key)
        if known is None or known.awaited != sequence or known.claimed == sequence:
            return False
        known.claimed = sequence
        return True

    def read_back(self, history: History, stored: Stored) -> None:
        """An uncertain decision, perhaps: it is in the log, whatever the answer to its append was or will be."""
        if stored.event_id in self.uncertain:
            self._under_way[history.job.key].awaited = stored.sequence
            self._tell(history, stored.event_id, stored.sequence)

    async def insist(self, history: History, event: AnyEvent) -> int:
        """A fact that only we can know: try until it is stored; return its sequence.

        Raises `Refused` with reason `TooLarge` when it never can be.
        """
        known, begun = self._under_way[history.job.key], asyncio.get_running_loop().time()
        known.insisting += 1
        try:
            async with known.facts:
                sequence = await self._insist(history, event)
        finally:
            known.insisting -= 1
        self._stored(history, event, sequence, asyncio.get_running_loop().time() - begun)
        return sequence

    async def _insist(self, history: History, event: AnyEvent) -> int:
        entry = self._entry(history.job.key, event, "")
        expect: int | None = self._expected(history, event)
        tries = 0
        while True:
            try:
                async with self._slots:
                    if expect is None:
                        newest = await self._log.last(scope_of(entry.subject))
                        if newest is not None and (newest.subject, newest.body) == (entry.subject, entry.body):
                            # The other replica, which was or is the owner, saw the same, and was quicker to say so.
                            return newest.sequence
                        expect = newest.sequence if newest is not None else 0
                    sequence = await self._log.append(entry, expect=expect)
            except Conflict:
                self._meters.append("Conflict")
                self.trouble = ""
                expect = None
            except Transient as trouble:
                self._meters.append("Retried")
                self.trouble, self._troubled = str(trouble), None
                await asyncio.sleep(trouble.retry_after or backoff(tries, chance=self._chance))
                tries += 1
            except Refused as refusal:
                self._meters.append("Refused")
                if refusal.reason == "TooLarge":
                    # This job's story, and an answer all the same.
                    self.trouble = ""
                    raise
                telling.append_refused(history.job, event, refusal)
                self.trouble, self._troubled = str(refusal), None
                await asyncio.sleep(REFUSED_SECONDS)
            else:
                self.trouble = ""
                return sequence

    async def _append(self, history: History, event: AnyEvent, expect: int, basis: str, since: str) -> None:
        key = history.job.key
        known, loop = self._under_way[key], asyncio.get_running_loop()
        entry = self._entry(key, event, basis)
        try:
            begun = loop.time()
            async with self._slots:
                self._note_uncertain(entry, event)
                known.awaited = await self._log.append(entry, expect=expect)
            self.seconds = loop.time() - begun
        except Conflict:
            self._meters.append("Conflict")
            self.uncertain.pop(entry.event_id, None)
            # Something newer is on its way and wakes us; should it be lost, so does this.
            self.trouble = ""
            self._queue.add_after(key, 1.0)
        except Transient as trouble:
            self._meters.append("Retried")
            self.trouble, self._troubled = str(trouble), key
            self._queue.add_after(key, trouble.retry_after or 1.0)
        except Refused as refusal:
            self._meters.append("Refused")
            self.uncertain.pop(entry.event_id, None)
            telling.append_refused(history.job, event, refusal)
            if refusal.reason == "TooLarge":
                # This job's story, and an answer all the same.
                self.trouble = ""
                history.hold("TooLarge", f"{type(event).__name__} is too large for the log")
                telling.held(history, history.sequence)
            else:
                self.trouble, self._troubled = str(refusal), key
                self._queue.add_after(key, REFUSED_SECONDS)
        else:
            self.trouble = ""
            self._stored(history, event, known.awaited, self.seconds, since)
            self._tell(history, entry.event_id, known.awaited)
        finally:
            known.appending = False
        if self._expected(history, event) > expect:
            # It, or what it conflicted with, was read before the answer came: nothing else will wake us soon.
            self._queue.add(key)

    def _entry(self, key: JobKey, event: AnyEvent, basis: str) -> Entry:
        tag = str(event.__struct_config__.tag)
        fact = type(event) in FACTS
        subject = (fact_subject if fact else decision_subject)(key, self._author, tag)
        return Entry(
            subject=subject,
            event_id=self._new_id(),
            time=stamp(self._now()),
            body=msgspec.json.encode(event),
            basis="" if fact else basis,
        )

    def _expected(self, history: History, event: AnyEvent) -> int:
        if type(event) in FACTS:
            return history.facts.get(self._author, 0)
        return history.last_decision

    def _note_uncertain(self, entry: Entry, event: AnyEvent) -> None:
        """The append may be stored whatever its answer, and read back first: its line is logged at the first sign."""
        if type(event) not in FACTS:
            if len(self.uncertain) >= MOST_UNCERTAIN:
                del self.uncertain[next(iter(self.uncertain))]
            self.uncertain[entry.event_id] = event, entry.basis

    def _tell(self, history: History, event_id: str, sequence: int) -> None:
        if (found := self.uncertain.pop(event_id, None)) is not None:
            telling.decided(history.job, found[0], sequence, found[1])

    def _stored(self, history: History, event: AnyEvent, sequence: int, seconds: float, since: str = "") -> None:
        """The figures, and a fact's line; `since` is the time of the event that a decision's `basis` names."""
        self._meters.append("Stored", seconds)
        if type(event) in FACTS:
            telling.recorded(history.job, event, sequence)
        else:
            self._meters.decided(seconds_between(since, stamp(self._now())))


def stamp(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds, as events carry it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
