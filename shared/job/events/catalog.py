"""The catalogue of events: facts, decisions, and who may write which; and how a stored one is read.  Pure.

Where a later release needs another shape of a type, the shape that is stored becomes that one here, and nowhere else.
"""

from typing import get_args

import msgspec

from shared.job.events import scaler, scheduler, status, watcher
from shared.job.events.event import Author, ChangeAttributed, EffectRefused, Event, EventDisowned, LogCreated
from shared.job.views import Slots
from shared.untrusted import MALFORMED

Fact = LogCreated | EventDisowned | watcher.Fact | scheduler.Fact | scaler.Fact | ChangeAttributed | EffectRefused
Decision = scheduler.Decision | scaler.Decision | status.Decision
AnyEvent = Fact | Decision

_BY_AUTHOR: dict[Author, tuple[type[Event], ...]] = {
    "setup": (LogCreated, EventDisowned),
    "watcher": get_args(watcher.Fact),
    "scheduler": (*get_args(scheduler.Fact | scheduler.Decision), EffectRefused),
    "scaler": (*get_args(scaler.Fact | scaler.Decision), EffectRefused),
    "status": (*get_args(status.Decision), EffectRefused),
    "audit": (ChangeAttributed,),
}

AUTHORS: dict[type[Event], frozenset[Author]] = {
    kind: frozenset(author for author, kinds in _BY_AUTHOR.items() if kind in kinds) for kind in get_args(AnyEvent)
}
"""The authors of each type.  NATS enforces the author in the subject, the fold that this author may write the type."""

FACTS: frozenset[type[Event]] = frozenset(get_args(Fact))
"""The types with subjects under `facts.`; all others are decisions, under `jobs.`"""

FOR_PEOPLE = frozenset({str(ChangeAttributed.__struct_config__.tag)})
"""The types by which no service acts: one that cannot be read holds no job."""


def for_people(author: str, tag: str) -> bool:
    """True for what people alone are told: it is in no chain and no decision's basis, so that it may be removed."""
    return author == "audit" and tag in FOR_PEOPLE


class UnknownEvent(Exception):  # noqa: N818  it names a thing in the log, for which the reader holds the job
    """An event of a type, or with a value, that a newer release wrote."""


class Malformed(Exception):  # noqa: N818  it names a thing in the log, for which the reader holds the job
    """An event's body that no release wrote."""


_decoder = msgspec.json.Decoder(AnyEvent)
_TAGS = {kind: str(kind.__struct_config__.tag) for kind in get_args(AnyEvent)}
_KNOWN = frozenset(_TAGS.values())

MOST_INDICES = 100_000
"""The most indices in one event: a forged range of a few bytes would fill the memory of every reader."""

_OF_RANGES = (tuple[Slots, ...], tuple[tuple[int, int], ...])
_RANGES = {
    tag: names
    for kind, tag in _TAGS.items()
    if (names := tuple(field.name for field in msgspec.structs.fields(kind) if field.type in _OF_RANGES))
}
"""By type of event, the fields with ranges of indices."""


def read_event(body: bytes, tag: str) -> AnyEvent:
    """The event in `body`; `tag` is the type that its subject names.

    Raises `UnknownEvent` if the tag is not known or a value is none of its list, `Malformed` for any other body that is
    not such an event.
    """
    try:
        event: AnyEvent = _decoder.decode(body)
    except MALFORMED as error:
        if tag not in _KNOWN:
            raise UnknownEvent(tag) from error
        # msgspec has no type of its own for this.
        if str(error).startswith("Invalid enum value"):
            raise UnknownEvent(f"{tag} ({error})") from error
        raise Malformed(f"{tag}: {error}") from error
    if (told := _TAGS[type(event)]) != tag:
        raise Malformed(f"the subject says {tag}, the body {told}")
    found = 0
    for name in _RANGES.get(tag, ()):
        for value in getattr(event, name):
            for low, high in value.ranges if isinstance(value, Slots) else (value,):
                found += max(high - low + 1, 0)
    if found > MOST_INDICES:
        raise Malformed(f"{tag}: {found} indices, at most {MOST_INDICES}")
    return event
