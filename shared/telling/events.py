"""The events of one history, up to a sequence or a time, and the state after them.  Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime
from typing import Any

import msgspec

from shared.errors import Refused
from shared.eventlog import Stored
from shared.eventlog.subject import Subject
from shared.job.fold import History
from shared.job.naming import JobKey, key_of
from shared.untrusted import whole_number


def of_history(stored: Stored, key: JobKey) -> bool:
    """True if the event is a fact or a decision of this job."""
    try:
        return key_of(Subject.parse(stored.subject)) == key
    except ValueError:
        return False


def until(at: str) -> Callable[[Stored], bool]:
    """A predicate for events up to a sequence or a time; an event without a time that can be read is not early.

    Raises `ValueError` for words that are neither.
    """
    if (sequence := whole_number(at)) is not None:
        return lambda stored: stored.sequence <= sequence
    moment = moment_of(at, f"--at {at!r} is neither a sequence (306) nor a time (2030-01-31T12:00:00Z)")

    def early(stored: Stored) -> bool:
        try:
            return moment_of(stored.time, "no time") <= moment
        except ValueError:
            return False

    return early


def moment_of(words: str, otherwise: str) -> datetime:
    """A time in RFC 3339; one without a zone is UTC, as histories print it.  Raises `ValueError` with these words."""
    try:
        moment = datetime.fromisoformat(words)
    except ValueError as error:
        raise ValueError(otherwise) from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def up_to(early: Callable[[Stored], bool], events: Sequence[Stored]) -> list[Stored]:
    """The events of a history that are early enough.  Raises `Refused` if there is none."""
    found = [stored for stored in events if early(stored)]
    if not found:
        words = f"nothing of it was known then; it begins at {events[0].sequence}, {events[0].time}"
        raise Refused(words, reason="NotFound")
    return found


def state_after(key: JobKey, events: Iterable[Stored]) -> str:
    """The state of the job after these events, as JSON."""
    then = History(key)
    for stored in events:
        then.fold(stored)
    return as_json_text(then.job)


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
