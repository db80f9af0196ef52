"""Decodes events, and turns old shapes of them into new ones.  Pure.

So far every event has only one version.
"""

import msgspec

from shared.job.events.catalog import AnyEvent
from shared.untrusted import MALFORMED


class UnknownEvent(Exception):  # noqa: N818  it names a thing in the log, for which the reader holds the job
    """An event of a type that a newer release wrote."""


class Malformed(Exception):  # noqa: N818  it names a thing in the log, for which the reader holds the job
    """An event's body that no release wrote."""


_decoder = msgspec.json.Decoder(AnyEvent)
_KNOWN = frozenset(kind.__struct_config__.tag for kind in AnyEvent.__args__)


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
    return event
