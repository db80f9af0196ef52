"""Reads the log up to its end, or a saved history; and the events of one history, up to a sequence or a time."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence, Set
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import msgspec

from shared.errors import Refused, Transient
from shared.eventlog import EventLog, Stored
from shared.eventlog.subject import FAMILIES, SEALED, Subject, of_type, split
from shared.job.events.catalog import Malformed, UnknownEvent, read_event
from shared.job.events.watcher import ScaleRequested
from shared.job.fold import Histories
from shared.job.naming import JobKey, history_filters, key_of, subject_of
from shared.telling.targets import Asked, find, subjects_of
from shared.untrusted import MALFORMED, whole_number

PATIENCE_SECONDS = 10.0
"""Seconds without an event after which a reader gives up."""
AT_ONCE = 50
"""Events that are folded before the loop runs its other callbacks."""

REQUESTED = "ScaleRequested"
MOST_JOBS_OF_A_REQUEST = 16
"""The most jobs of requests of one name that are read one by one; with more the whole namespace is read."""


async def fold_to_end(
    log: EventLog,
    fold: Callable[[Stored], object],
    subjects: tuple[str, ...] = (),
    *,
    after: int = 0,
    enough: Callable[[], bool] = lambda: False,
) -> int:
    """Call `fold` with each event that the log has now after a sequence, in order, or until `enough`; return the end.

    `subjects` are filters, as for `EventLog.read`.  Raises `Transient` if the log's end is not reached.
    """
    end = await log.end(subjects)
    async with aclosing(batches_up_to(log, end, subjects, after=after)) as batches:
        async for batch in batches:
            for number, stored in enumerate(batch):
                if not number % AT_ONCE:
                    await asyncio.sleep(0)
                fold(stored)
            if enough():
                break
    return end


async def batches_up_to(
    log: EventLog, end: int, subjects: tuple[str, ...] = (), *, after: int = 0
) -> AsyncGenerator[list[Stored], None]:
    """The events after a sequence and up to `end`, in order.  Raises `Transient` if that is not reached."""
    position = after
    async with aclosing(log.read(after=after, subjects=subjects)) as batches:
        while position < end:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    batch = await anext(batches, None)
            except TimeoutError as silence:
                words = f"read the log: it ends at {end}, and after {position} nothing came"
                raise Transient(f"{words} for {PATIENCE_SECONDS:g} s; is a NATS server behind?") from silence
            if batch is None:
                raise Transient(f"read the log: it ends at {end}, and the connection was closed after {position}")
            if found := [stored for stored in batch.events if stored.sequence <= end]:
                position = found[-1].sequence
                yield found
            if not batch.pending:
                break


async def everything(log: EventLog, subjects: tuple[str, ...] = ()) -> tuple[Histories, list[Stored]]:
    """The histories and the events under `subjects`, or of the whole log without them."""
    histories, events = Histories(), list[Stored]()

    def fold(stored: Stored) -> None:
        # Of a sealed job, too, which services forget at its seal.
        if is_seal(stored) or histories.fold(stored) is not None:
            events.append(stored)

    await fold_to_end(log, fold, subjects)
    return histories, events


class Fold(Protocol):
    """What is kept of the events of one job."""

    def fold(self, stored: Stored) -> object:
        """Take the next event."""


F = TypeVar("F", bound=Fold)


def fold_all(fold: F, events: Iterable[Stored], *, seal: bool = False) -> F:
    """The fold after these events; without `seal` as if the history had not been sealed."""
    for stored in events:
        if seal or not is_seal(stored):
            fold.fold(stored)
    return fold


async def folded(
    batches: AsyncGenerator[Sequence[Stored], None], make: Callable[[JobKey], F], *, seal: bool = False
) -> F:
    """The fold of a job's events, as they are read; `seal` as for `fold_all`."""
    found: F | None = None
    async with aclosing(batches):
        async for batch in batches:
            if batch:
                # In a thread: a program may have others to answer meanwhile.
                found = found or make(key_of(Subject.parse(batch[0].subject)))
                await asyncio.to_thread(fold_all, found, batch, seal=seal)
    assert found is not None
    return found


def is_seal(stored: Stored) -> bool:
    return stored.subject.endswith(f".{SEALED}")


async def found_subjects(log: EventLog, asked: Asked, namespace: str, *, uid: str = "") -> tuple[str, ...]:
    """The filters of all events about these objects: of a request those of the jobs that it names.

    Raises `Refused` if the log has no such request, or for a word that cannot be a name in the log.
    """
    subjects = subjects_of(asked, namespace, uid=uid)
    if not asked.is_request:
        return subjects
    meant, kinds = dict[JobKey, None](), {target.resource.kind for target in asked.targets}

    def note(stored: Stored) -> None:
        with suppress(ValueError, UnknownEvent, Malformed):
            subject, event = Subject.parse(stored.subject), read_event(stored.body, REQUESTED)
            if subject.author != "watcher":
                return
            if isinstance(event, ScaleRequested) and (event.name, event.kind) in {(asked.name, kind) for kind in kinds}:
                meant.setdefault(key_of(subject))

    await fold_to_end(log, note, (of_type(namespace, REQUESTED),))
    if not meant:
        find((), asked, namespace)
    if len(meant) > MOST_JOBS_OF_A_REQUEST:
        return subjects
    return tuple(subject for key in meant for subject in history_filters(key))


def of_history(stored: Stored, key: JobKey) -> bool:
    """True if the event is a fact or a decision of this job."""
    return stored.subject.rpartition(".")[0].rpartition(".")[0] in _prefixes(key)


@lru_cache
def _prefixes(key: JobKey) -> frozenset[str]:
    return frozenset(split(subject_of(key, family, "", ""))[0] for family in FAMILIES)


def until(at: str) -> Callable[[Stored], bool]:
    """A predicate for events up to a sequence or a time; an event without a time that can be read is not early.

    Raises `Refused` for words that are neither.
    """
    if (sequence := whole_number(at)) is not None:
        return lambda stored: stored.sequence <= sequence
    moment = moment_of(at, f"--at {at!r} is neither a sequence (306) nor a time (2030-01-31T12:00:00Z)")

    def early(stored: Stored) -> bool:
        with suppress(Refused):
            return moment_of(stored.time, "no time") <= moment
        return False

    return early


def moment_of(words: str, otherwise: str) -> datetime:
    """A time in RFC 3339; one without a zone is UTC, as histories print it.  Raises `Refused` with these words."""
    try:
        moment = datetime.fromisoformat(words)
    except ValueError as error:
        raise Refused(otherwise, reason="Invalid") from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def unknown_then(first: Stored) -> Refused:
    """What is told of a time before a history's first event."""
    words = f"nothing of it was known then; it begins at {first.sequence}, {first.time}"
    return Refused(words, reason="NotFound")


def as_json_text(state: Any) -> str:
    """A folded state as indented JSON, the same for the same state."""
    return msgspec.json.format(msgspec.json.encode(_plain(state), order="sorted")).decode()


def _plain(value: Any) -> Any:
    """A value in the types of JSON: lists instead of sets, and strings as keys."""
    if isinstance(value, msgspec.Struct):
        # When the log stored an event is no part of it: a copy of the log or a saved one does not know it.
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__ if name != "logged"}
    if isinstance(value, Mapping):
        return {_key(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (Set, list, tuple)):
        return [_plain(inner) for inner in value]
    return value


def _key(key: Any) -> str:
    """`ConfigMap/resnet-config` of a pair, `0/worker/3` of a slot."""
    if isinstance(key, msgspec.Struct):
        key = msgspec.structs.astuple(key)
    return "/".join(map(_key, key)) if isinstance(key, tuple) else str(key)


class SavedEvent(msgspec.Struct):
    """A line: an event of the log, with its body as JSON."""

    sequence: int
    subject: str
    event_id: str
    time: str
    body: msgspec.Raw
    """The stored bytes, because the chain's hashes cover them; a string if the body is not an object on one line."""
    basis: str = ""
    optional: bool = False
    source: str = ""
    type: str = ""


def line_of(stored: Stored) -> str:
    """An event as a line, without a newline."""
    body = msgspec.Raw(stored.body if _fits(stored.body) else msgspec.json.encode(stored.body.decode(errors="replace")))
    fields = {name: value for name, value in msgspec.structs.asdict(stored).items() if name != "logged"}
    return msgspec.json.encode(SavedEvent(**{**fields, "body": body})).decode()


def event_of(line: bytes) -> Stored:
    """The event of a line.  Raises `ValueError` if the line is none."""
    try:
        known = msgspec.json.decode(line, type=SavedEvent)
    except RecursionError as error:
        raise ValueError(str(error)) from error
    Subject.parse(known.subject)
    body = bytes(known.body)
    match body[:1]:
        case b'"':
            body = msgspec.json.decode(body, type=str).encode()
        case b"{":
            pass
        case _:
            raise ValueError("its body is neither an object nor a string")
    return Stored(**{**msgspec.structs.asdict(known), "body": body})


def _fits(body: bytes) -> bool:
    """True if the body can be a part of a JSON line unchanged."""
    if not (body.startswith(b"{") and body.endswith(b"}")) or b"\n" in body:
        return False
    try:
        msgspec.json.decode(body)
    except MALFORMED:
        return False
    return True
