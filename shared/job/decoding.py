"""Decodes events.  Pure.

Where a later release needs another shape of a type, the shape that is stored becomes that one here, and nowhere else.
"""

from collections.abc import Iterator

import msgspec

from shared.job.events.catalog import AnyEvent
from shared.job.views import Slots
from shared.untrusted import MALFORMED


class UnknownEvent(Exception):  # noqa: N818  it names a thing in the log, for which the reader holds the job
    """An event of a type that a newer release wrote."""


class Malformed(Exception):  # noqa: N818  it names a thing in the log, for which the reader holds the job
    """An event's body that no release wrote."""


_decoder = msgspec.json.Decoder(AnyEvent)
_KNOWN = frozenset(kind.__struct_config__.tag for kind in AnyEvent.__args__)

MOST_INDICES = 100_000
"""The most indices in one event: a forged range of a few bytes would fill the memory of every reader."""

_OF_RANGES = (tuple[Slots, ...], tuple[tuple[int, int], ...])
_RANGES = {
    kind.__struct_config__.tag: names
    for kind in AnyEvent.__args__
    if (names := tuple(field.name for field in msgspec.structs.fields(kind) if field.type in _OF_RANGES))
}
"""By type of event, the fields with ranges of indices."""


def read_event(body: bytes, tag: str) -> AnyEvent:
    """The event in `body`; `tag` is the type that its subject names.

    Raises `UnknownEvent` if the tag is not known, `Malformed` if the body is not such an event.
    """
    try:
        event: AnyEvent = _decoder.decode(body)
    except MALFORMED as error:
        if tag not in _KNOWN:
            raise UnknownEvent(tag) from error
        raise Malformed(f"{tag}: {error}") from error
    if event.__struct_config__.tag != tag:
        raise Malformed(f"the subject says {tag}, the body {event.__struct_config__.tag}")
    if tag in _RANGES and (found := sum(max(high - low + 1, 0) for low, high in _ranges(event))) > MOST_INDICES:
        raise Malformed(f"{tag}: {found} indices, at most {MOST_INDICES}")
    return event


def _ranges(event: AnyEvent) -> Iterator[tuple[int, int]]:
    for name in _RANGES[event.__struct_config__.tag]:
        for value in getattr(event, name):
            yield from value.ranges if isinstance(value, Slots) else (value,)
