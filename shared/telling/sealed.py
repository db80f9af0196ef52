"""Sealed histories: whether lines are what the seal says, how lists show them, and one job read from the archive."""

import json
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, timedelta
from math import inf

import msgspec

from shared.errors import Refused, Transient, accepting
from shared.eventlog import EventLog, ReadableArchive, Stored
from shared.eventlog.parts import Part, Seal, seal_of
from shared.eventlog.subject import SEALED, archived_under, people, people_of, split
from shared.frameworks.kinds import Kinds
from shared.job.events.catalog import AUTHORS, Malformed, UnknownEvent, read_event
from shared.job.events.event import EventDisowned
from shared.job.fold import Histories, History, closed
from shared.job.naming import JobKey, history_filters, key_archived, subject_of
from shared.telling.reading import (
    batches_up_to,
    event_of,
    fold_to_end,
    found_subjects,
    is_seal,
    moment_of,
    of_history,
)
from shared.telling.shown import Shown
from shared.telling.targets import Asked, Target, find
from shared.untrusted import MALFORMED

OF_PODS = ("PodsObserved", "ProgressReported")
"""Most of a long history, and nothing of which job has a name."""


class Row(Shown, frozen=True, rename="camel", kw_only=True):
    """A history as lists show it, without its status."""

    time: str
    """When its last event was recorded."""


class Check:
    """The fold of a sealed history, event by event, beside what its seal says."""

    def __init__(self, key: JobKey) -> None:
        self._history = History(key)
        self.disowned = False
        """True once an administrator disowned the seal, which may be one that does not fit."""

    @property
    def begun(self) -> bool:
        return bool(self._history.count)

    def fold(self, stored: Stored) -> None:
        self._history.fold(stored)

    def fault(self, seal: Seal) -> str:
        """What differs from the seal; empty if nothing does."""
        head, known = self._history.head, self._history
        found = {"first": known.first, "last": head.sequence, "count": known.count, "hash": head.hash}
        wrong = [
            f"{name} is {now} and not {then}" for name, now in found.items() if now != (then := getattr(seal, name))
        ]
        return ", ".join(wrong if closed(known.job) else [*wrong, "its job is not over"])

    def row(self, kinds: Kinds) -> str:
        """The job as lists show it, as JSON in ASCII, which a header can have."""
        shown = msgspec.structs.asdict(Shown.of(self._history, kinds))
        return json.dumps(msgspec.to_builtins(Row(**{**shown, "status": {}}, time=self._history.time)))


def row_of(line: bytes) -> Row | None:
    """The job as lists show it, of the line that the last part of a history has; None for that of another part."""
    try:
        return msgspec.json.decode(line, type=Row)
    except MALFORMED:
        return None


def shown_of(row: Row) -> Shown:
    return Shown(**{name: getattr(row, name) for name in Shown.__struct_fields__})


def events_in(part: Part) -> list[Stored]:
    """The events of a message.  Raises `ValueError` for one that has something else."""
    try:
        return [event_of(line) for line in part.lines]
    except MALFORMED as error:
        raise ValueError(f"the message {part.sequence} of the archive has something else: {error}") from error


class Copy:
    """What the archive has of a sealed history, part by part."""

    def __init__(self, subject: str, seal: Seal) -> None:
        self.subject, self.seal = subject, seal
        self.forgotten = ""
        self._check = Check(key_archived(subject))
        self.first = 0
        """The sequence of its first message."""
        self.parts = self._of = 0
        """How many messages it has so far, and how many it should have."""
        self._ends = False
        """True once the event with its seal was there."""
        self._fault = ""

    def add(self, part: Part) -> None:
        self.first = self.first or part.sequence
        self.parts, self._of = self.parts + 1, part.of
        self.forgotten = self.forgotten or part.forgotten
        if part.number != self.parts:
            self._fault = self._fault or f"part {part.number} is where part {self.parts} should be"
        try:
            for stored in () if part.forgotten else events_in(part):
                if is_seal(stored) and stored.sequence > self.seal.last:
                    self._ends = seal_of(stored.body) == self.seal
                else:
                    self._check.fold(stored)
        except ValueError as error:
            self._fault = self._fault or str(error)

    @property
    def fault(self) -> str | None:
        """Empty if it is what the seal says, or a person had it forgotten; None if parts are missing."""
        if self.forgotten or self._fault:
            return "" if self.forgotten else self._fault
        if not self._of or self.parts != self._of:
            return None
        return self._check.fault(self.seal) or ("" if self._ends else "its last event is not its seal")


async def kept(archive: ReadableArchive, subject: str, seal: Seal) -> Copy:
    """What the archive has of a sealed history."""
    copy = Copy(subject, seal)
    async with aclosing(archive.parts(subject)) as parts:
        async for part in parts:
            if part.seal == seal:
                copy.add(part)
    return copy


async def check_of_log(
    log: EventLog, key: JobKey, sequence: int, took: Callable[[Stored], object] = lambda _: None
) -> Check:
    """The fold of what the log has up to the seal at `sequence`, the seal not included; `took` is called with both."""
    check = Check(key)

    def fold(stored: Stored) -> None:
        if stored.sequence > sequence:
            check.disowned = check.disowned or disowns(stored) == sequence
        elif check.begun or not is_seal(stored):
            # An earlier seal with its events before it is one that does not fit: the history goes on behind it.
            took(stored)
            if stored.sequence < sequence:
                check.fold(stored)

    await fold_to_end(log, fold, history_filters(key))
    return check


def together(older: Sequence[Stored], events: Sequence[Stored]) -> list[Stored]:
    """The events of the archive and those of the log, each once."""
    return [known for _, known in sorted({stored.sequence: stored for stored in (*older, *events)}.items())]


async def events_of(
    log: EventLog, asked: Asked, namespace: str, *, uid: str = "", waiting: bool = False
) -> AsyncGenerator[list[Stored], None]:
    """The events of one job until now, in order and in bounded memory: a long history is read twice.

    `waiting` is as for `find`.
    Raises `Refused` if neither the log nor the archive has it, `Transient` if it left the log meanwhile.
    """
    known, seen = Histories(), set[str]()

    def note(stored: Stored) -> None:
        prefix, _, tag = split(stored.subject)
        if tag != SEALED and (asked.is_request or tag not in OF_PODS or prefix not in seen):
            seen.add(prefix)
            known.fold(stored)

    end = await fold_to_end(log, note, await found_subjects(log, asked, namespace, uid=uid))
    there = in_log(known, asked, namespace, uid, waiting=waiting)
    newest = None if asked.is_request else await lacking(log, asked, namespace, uid, there)
    if newest is not None:
        async with aclosing(_archived(log, newest)) as batches:
            async for batch in batches:
                yield batch
        return
    if there is None:
        # As for every other question about a job.
        find(known, asked, namespace, uid=uid)
        raise AssertionError(asked)
    filters, position = history_filters(there.key), 0
    async with aclosing(batches_up_to(log, end, filters)) as batches:
        while position < end:
            batch = await anext(batches, [])
            # Of what the archiver purges the first event leaves first: what came before that lacks nothing.
            if not 0 < await log.first(filters) <= (there.first or inf):
                raise Transient(f"{namespace}/{asked.name} left the log for the archive while it was read: ask again")
            position = batch[-1].sequence if batch else end
            yield [stored for stored in batch if of_history(stored, there.key)]


async def _archived(log: EventLog, newest: Part) -> AsyncGenerator[list[Stored], None]:
    """The events of a history in the archive, with those that the log still has."""
    key, rest = key_archived(newest.subject), list[Stored]()
    async with aclosing(batches_of(log.archive, newest, people_of(newest.subject))) as batches:
        async for batch in batches:
            rest += batch
    await fold_to_end(log, rest.append, (people(key.namespace, key.name, key.uid),))
    await fold_to_end(log, rest.append, history_filters(key), after=newest.seal.last)
    rest = together((), [stored for stored in rest if of_history(stored, key)])
    async with aclosing(batches_of(log.archive, newest, newest.subject)) as batches:
        async for batch in batches:
            at = bisect_right(rest, batch[-1].sequence, key=lambda stored: stored.sequence) if batch else 0
            yield together(batch, rest[:at])
            del rest[:at]
    yield rest


def disowns(stored: Stored) -> int:
    """The sequence of the event that this one says counts for nothing; 0 if it is another fact."""
    _, author, tag = split(stored.subject)
    with suppress(UnknownEvent, Malformed):
        if author in AUTHORS[EventDisowned] and isinstance(event := read_event(stored.body, tag), EventDisowned):
            return event.sequence
    return 0


class InLog(msgspec.Struct, frozen=True):
    """What the log has of a job."""

    key: JobKey
    first: int
    """The sequence of its first event there."""
    gone: bool


def in_log(known: Histories, asked: Asked, namespace: str, uid: str, *, waiting: bool = False) -> InLog | None:
    with accepting("NotFound"):
        _, found = find(known, asked, namespace, uid=uid, waiting=waiting)
        return InLog(found.job.key, found.first, bool(found.job.resource.gone))
    return None


async def of_archive(
    log: EventLog, asked: Asked, namespace: str, uid: str, known: Histories, most: float = inf
) -> Sequence[Stored]:
    """The events of a job that the log lacks and the archive has, by what is `known` of the log; none if it suffices.

    Without a uid it is the newest job of the name.  Raises `Refused` for a history that was forgotten, is damaged, or
    has more than `most` bytes.
    """
    if asked.is_request:
        return ()
    there = in_log(known, asked, namespace, uid)
    if (newest := await lacking(log, asked, namespace, uid, there)) is None:
        return ()
    events: list[Stored] = []
    for subject in subjects_in_archive(newest):
        async with aclosing(batches_of(log.archive, newest, subject)) as batches:
            async for batch in batches:
                events += batch
                if sum(len(stored.body) for stored in events) > most:
                    words = f"{namespace}/{asked.name} has more events than one answer may have"
                    raise Refused(words, reason="TooLarge")
    return events


async def lacking(log: EventLog, asked: Asked, namespace: str, uid: str, there: InLog | None) -> Part | None:
    """The last message of the archive's history of a job that has what the log lacks; None if the log suffices.

    Without a uid it is the newest job of the name, by what is `there` in the log.  Raises `Refused` for a history that
    was forgotten.
    """
    try:
        newest = await newest_of(
            log, asked, namespace, uid or (there.key.uid if there is not None and not there.gone else "*")
        )
    except Refused as refusal:
        if refusal.reason != "Forbidden" or there is None:
            raise
        # The services read no archive; what the log has of the job they may tell.
        return None
    if newest is None or (there is not None and await _is_whole(log, there, newest)):
        return None
    if newest.forgotten:
        if there is not None:
            return None
        raise forgotten(newest)
    return newest


def subjects_in_archive(newest: Part) -> tuple[str, str]:
    """Those of a history in the archive: of its events, and of those that say who made a change."""
    return newest.subject, people_of(newest.subject)


async def batches_of(
    archive: ReadableArchive, newest: Part, subject: str, after: int = 0
) -> AsyncGenerator[list[Stored], None]:
    """The events of a history's messages under a subject; none of messages that end before the sequence `after`.

    Raises `Refused` for a damaged one.
    """
    async with aclosing(parts_of(archive, newest, subject)) as parts:
        try:
            async for part in parts:
                if not after or ((lines := part.lines) and event_of(lines[-1]).sequence > after):
                    yield events_in(part)
        except (*MALFORMED, ValueError) as error:
            key = key_archived(newest.subject)
            raise Refused(f"read {key.namespace}/{key.name}: {error}", reason="Invalid") from error


def forgotten(newest: Part) -> Refused:
    """What a person is told of a history that was removed."""
    key = key_archived(newest.subject)
    words = f"the history {key.namespace}/{key.name} with the hash {newest.seal.hash} was removed on {newest.time[:19]}"
    return Refused(f"{words}: {newest.forgotten}", reason="NotFound")


async def parts_of(archive: ReadableArchive, newest: Part, subject: str = "") -> AsyncGenerator[Part, None]:
    """The messages of a history, in order, of which this one is the last; or those of it under another subject.

    A log that was restored from a backup goes on from there: what had come after it is another history.
    Raises `ValueError` if one is missing: it may have been removed while the others were read.
    """
    there, numbered = 0, subject in ("", newest.subject)
    async with aclosing(archive.parts(subject or newest.subject)) as parts:
        async for part in parts:
            if part.seal == newest.seal:
                there += 1
                if numbered and part.number != there:
                    raise _missing(there, newest)
                yield part
            elif part.seal.last < newest.seal.first:
                yield part
    if numbered and there != newest.of:
        raise _missing(there + 1, newest)


def _missing(number: int, newest: Part) -> ValueError:
    return ValueError(f"part {number} of {newest.of} is missing in the archive; it may have been removed just now")


async def _is_whole(log: EventLog, there: InLog, newest: Part) -> bool:
    """True if the archive's newest history is an earlier job, or what a restored log no longer leads to."""
    if key_archived(newest.subject) != there.key:
        return newest.seal.first < there.first
    if not 0 < there.first <= newest.seal.first:
        # Of what the archiver purges the first event leaves first.
        return False
    sealed = await log.last(subject_of(there.key, "jobs", "status", SEALED))
    with suppress(ValueError):
        return sealed is None or seal_of(sealed.body) != newest.seal
    return True


async def newest_of(log: EventLog, asked: Asked, namespace: str, uid: str) -> Part | None:
    """The last message of the job of this name, or of this uid, that began last; None without one."""
    subject = archived_under(namespace, asked.name, uid)
    newest = await log.archive.newest(subject)
    known = newest is not None and not newest.forgotten and _means(newest, asked.targets)
    if newest is None or (uid != "*" and known):
        return newest
    # A former life may be archived, or forgotten, after all of a newer one: that was archived after the former began.
    found, since = (newest, _a_day_before(row_of(newest.row))) if known else (None, "")
    async with aclosing(log.archive.scan(subject=subject, since=since)) as parts:
        async for part in parts:
            if _means(part, asked.targets) and (found is None or part.seal.first >= found.seal.first):
                found = part
    return found


def _a_day_before(row: Row | None) -> str:
    """The begin of a job by the clock of its service, which the server's may differ from; empty if it is not known."""
    with suppress(Refused, OverflowError):
        begin = moment_of(row.began if row is not None else "", "no time") - timedelta(days=1)
        return begin.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return ""


def _means(part: Part, targets: Sequence[Target]) -> bool:
    """True if the job in this message is of one of these kinds; a forgotten one has none."""
    if (row := row_of(part.row)) is None:
        return bool(part.forgotten)
    of = row.api_version.partition("/")[0], row.kind
    return any((target.resource.group, target.resource.kind) == of for target in targets)
