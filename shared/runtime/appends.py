"""The appends of a service: decisions, one at a time per job; and facts that only it knows, repeated until stored.

Each append is guarded by the last event of its scope.  After an append the work queue gets the job's key again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from shared.errors import Conflict, Refused, Transient
from shared.eventlog import Entry, EventLog, Stored
from shared.eventlog.retry import backoff
from shared.eventlog.subject import Subject
from shared.flow import Turns
from shared.job.events.catalog import FACTS, AnyEvent
from shared.job.events.event import Author
from shared.job.events.status import JobSealed
from shared.job.fold import History
from shared.job.naming import JobKey, subject_of
from shared.runtime import log_lines
from shared.runtime.queue import WorkQueue
from shared.telemetry.metrics import seconds_between
from shared.telemetry.process_metrics import ProcessMetrics

APPENDS_IN_FLIGHT = 64
"""Appends of one service at a time, each of another scope; the namespaces of those that wait take turns.

More gain no throughput on one server nor on three, and each waits longer.
"""

REFUSED_SECONDS = 5.0
"""Seconds until a refused append is tried again: a person has to mend the cause, and each try logs a line."""

CONFLICTS = 5
"""After so many conflicts of a job in a row, a second apart, the log is asked whether it has what was read of it."""

ANSWERS = 3
"""So many answers, a second apart, tell a log that lost an event from a leader that lags."""

READ_ON_SECONDS = 0.1
"""Until a fact is made anew after a newer one that came before it."""

MOST_UNCERTAIN = 1_000
"""The most appends without an answer that are remembered; the newest are kept."""


class _UnderWay:
    """The appends under way for one job."""

    def __init__(self) -> None:
        self.appending = False
        self.awaited = 0
        """The sequence of our last append; the next decision waits until the fold has reached it."""
        self.conflicts = 0
        """The number of conflicts in a row."""
        self.used = 0
        """The last sequence that an effect used (`use_once`)."""
        self.waiting_facts = 0
        """How many facts wait to be stored, one after the other."""
        self.facts = asyncio.Lock()


class Appends:
    def __init__(
        self,
        author: Author,
        eventlog: EventLog,
        queue: WorkQueue[JobKey],
        *,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        chance: Callable[[], float],
        metrics: ProcessMetrics,
    ) -> None:
        self.trouble = ""
        """What keeps this service from appending; empty when all is well."""
        self._troubled: JobKey | None = None
        """The job whose decision could not be appended; None if it was a fact."""
        self.seconds = 0.0
        """Duration of the last append, its wait for a turn included: the watcher slows down by it."""
        self._author = author
        self._log = eventlog
        self._queue = queue
        self._now = now
        self._new_id = new_id
        self._chance = chance
        self._metrics = metrics
        self._under_way: defaultdict[JobKey, _UnderWay] = defaultdict(_UnderWay)
        self.uncertain: dict[str, tuple[AnyEvent, str]] = {}
        """Decisions whose append has no answer yet, by event id, each with its basis."""
        self._turns = Turns(APPENDS_IN_FLIGHT)

    def record(self, history: History, event: AnyEvent) -> Coroutine[None, None, None] | None:
        """The append of a decision, to be run; None until the job's last append was read back, which wakes the job."""
        if self.busy(history):
            return None
        self._under_way[history.job.key].appending = True
        return self._append(history, event, self._expected(history, event), history.basis, history.time)

    def nothing_to_record(self, history: History) -> None:
        """Clear the trouble of this job's last append: the job needs no decision any more."""
        if self._troubled == history.job.key:
            self.trouble = ""

    def busy(self, history: History) -> bool:
        """True while the job's last append is under way or was not read back."""
        known = self._under_way.get(history.job.key)
        return known is not None and (known.appending or history.sequence < known.awaited)

    def forget(self, history: History) -> None:
        """Drop the state of a job that is gone, unless an append is under way, whose end wakes the job again."""
        known = self._under_way.get(history.job.key)
        if known is not None and not known.waiting_facts and not self.busy(history):
            del self._under_way[history.job.key]

    def use_once(self, key: JobKey, sequence: int) -> bool:
        """True, once, if this process recorded that decision and it is the job's newest.

        For effects that must not happen twice.  An earlier decision was used before the next one could be appended.
        """
        known = self._under_way.get(key)
        if known is None or known.awaited != sequence or known.used == sequence:
            return False
        known.used = sequence
        return True

    def read_back(self, history: History, stored: Stored) -> None:
        """Note that a decision without an answer is in the log."""
        if stored.event_id in self.uncertain:
            self._under_way[history.job.key].awaited = stored.sequence
            self._tell(history, stored.event_id, stored.sequence)

    async def append_until_stored(
        self, history: History, event: AnyEvent, still: Callable[[], AnyEvent | None] | None = None
    ) -> int:
        """Append a fact that only this service can know, until it is stored; return its sequence.

        One that depends on the history is what `still` makes of it; if that is None at last, the sequence is 0.
        Raises `Refused` with reason `TooLarge` if the log can never store it.
        """
        known, begun = self._under_way[history.job.key], asyncio.get_running_loop().time()
        known.waiting_facts += 1
        try:
            async with known.facts:
                # Others may have stored theirs while this one waited.
                made = event if still is None else still()
                sequence = await self._append_until_stored(history, made, still) if made is not None else 0
        finally:
            known.waiting_facts -= 1
        if sequence:
            self._stored(history, event, sequence, asyncio.get_running_loop().time() - begun)
        return sequence

    async def _append_until_stored(
        self, history: History, event: AnyEvent, still: Callable[[], AnyEvent | None] | None
    ) -> int:
        entry = self._entry(history.job.key, event, "")
        expect: int | None = self._expected(history, event)
        tries = 0
        while True:
            try:
                async with self._turns.turn(history.job.key.namespace, history.job.key):
                    if expect is None:
                        newest = await self._log.last(Subject.parse(entry.subject).scope)
                        if newest is not None and (newest.subject, newest.body) == (entry.subject, entry.body):
                            # Another replica stored the same fact first.
                            return newest.sequence
                        expect = newest.sequence if newest is not None else 0
                    sequence = await self._log.append(entry, expect=expect)
            except Conflict:
                self._metrics.append("Conflict")
                self.trouble = ""
                expect = None
                if still is not None:
                    await asyncio.sleep(READ_ON_SECONDS + backoff(tries, chance=self._chance))
                    tries += 1
                    if (made := still()) is None:
                        return 0
                    entry, expect = self._entry(history.job.key, made, ""), self._expected(history, made)
            except Transient as trouble:
                self._metrics.append("Retried")
                self.trouble, self._troubled = str(trouble), None
                await asyncio.sleep(trouble.retry_after or backoff(tries, chance=self._chance))
                tries += 1
            except Refused as refusal:
                self._metrics.append("Refused")
                if refusal.reason == "TooLarge":
                    # The log works; the trouble is this job's alone.
                    self.trouble = ""
                    raise
                log_lines.append_refused(history.job, event, refusal)
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
            async with self._turns.turn(key.namespace, key):
                self._note_uncertain(entry, event)
                known.awaited = await self._log.append(entry, expect=expect)
            self.seconds = loop.time() - begun
        except Conflict:
            self._metrics.append("Conflict")
            self.uncertain.pop(entry.event_id, None)
            known.conflicts += 1
            if known.conflicts % CONFLICTS == 0:
                await self._must_still_have(expect, Subject.parse(entry.subject).scope)
            # The newer event wakes the job when it is read; the timer does so in case that wake-up is lost.
            self.trouble = ""
            self._queue.add_after(key, 1.0)
        except Transient as trouble:
            self._metrics.append("Retried")
            self.trouble, self._troubled = str(trouble), key
            self._queue.add_after(key, trouble.retry_after or 1.0)
        except Refused as refusal:
            self._metrics.append("Refused")
            self.uncertain.pop(entry.event_id, None)
            log_lines.append_refused(history.job, event, refusal)
            if refusal.reason == "TooLarge":
                # The log works; the trouble is this job's alone.
                self.trouble = ""
                history.hold("TooLarge", f"{type(event).__name__} is too large for the log")
                log_lines.held(history, history.sequence)
            else:
                self.trouble, self._troubled = str(refusal), key
                self._queue.add_after(key, REFUSED_SECONDS)
        else:
            self.trouble, known.conflicts = "", 0
            self._stored(history, event, known.awaited, self.seconds, since)
            self._tell(history, entry.event_id, known.awaited)
        finally:
            known.appending = False
        if history.sealed:
            self.forget(history)
        elif self._expected(history, event) > expect:
            # The event was read before the answer came, so that no further event wakes the job.
            self._queue.add(key)

    async def _must_still_have(self, expect: int, scope: str) -> None:
        """Raise `Refused` if the log lost the event on which an append builds: the next process folds what is left."""
        with suppress(Transient):
            for answer in range(ANSWERS):
                if answer:
                    await asyncio.sleep(1.0)
                newest = await self._log.last(scope)
                if newest is not None and newest.sequence >= expect:
                    return
            what = f"append after {expect} of {scope}: the log no longer has the event {expect}"
            raise Refused(f"{what}, which this service has read", reason="LogTruncated") from None

    def _entry(self, key: JobKey, event: AnyEvent, basis: str) -> Entry:
        tag = str(event.__struct_config__.tag)
        fact = type(event) in FACTS
        subject = subject_of(key, "facts" if fact else "jobs", self._author, tag)
        return Entry(
            subject=subject,
            event_id=self._new_id(),
            time=stamp(self._now()),
            body=msgspec.json.encode(event),
            basis="" if fact else basis,
        )

    def _expected(self, history: History, event: AnyEvent) -> int:
        if isinstance(event, JobSealed):
            return history.newest
        if type(event) in FACTS:
            return history.facts.get(self._author, 0)
        return history.last_decision

    def _note_uncertain(self, entry: Entry, event: AnyEvent) -> None:
        """Remember the decision until an answer or the log confirms it: its line is logged at the first of the two."""
        if type(event) not in FACTS:
            if len(self.uncertain) >= MOST_UNCERTAIN:
                del self.uncertain[next(iter(self.uncertain))]
            self.uncertain[entry.event_id] = event, entry.basis

    def _tell(self, history: History, event_id: str, sequence: int) -> None:
        if (found := self.uncertain.pop(event_id, None)) is not None:
            log_lines.decided(history.job, found[0], sequence, found[1])

    def _stored(self, history: History, event: AnyEvent, sequence: int, seconds: float, since: str = "") -> None:
        """Count a stored append; `since` is the time of the event that a decision's `basis` names."""
        self._metrics.append("Stored", seconds)
        if type(event) in FACTS:
            log_lines.recorded(history.job, event, sequence)
        else:
            self._metrics.decided(seconds_between(since, stamp(self._now())))


def stamp(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds, as events carry it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
