"""Bytes to events: the one place that knows how old events looked.  Pure.

Old shapes become new ones here, at read time; so far there is only one version of each.
"""

import msgspec

from shared.job.events.catalog import AnyEvent


class UnknownEvent(Exception):  # noqa: N818  it names what was met, and the reader holds the job for it
    """A type that this release does not know; a newer one wrote it."""


class Malformed(Exception):  # noqa: N818  it names what was met, and the reader holds the job for it
    """A body that no release wrote."""


_decoder = msgspec.json.Decoder(AnyEvent)
_KNOWN = frozenset(kind.__struct_config__.tag for kind in AnyEvent.__args__)


def read_event(body: bytes, tag: str) -> AnyEvent:
    """The event in `body`; `tag` is the type that its subject names.

    Raises `UnknownEvent` when the tag is not known, `Malformed` when the body is not such an event.
    """
    try:
        event: AnyEvent = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if tag not in _KNOWN:
            raise UnknownEvent(tag) from error
        raise Malformed(f"{tag}: {error}") from error
    if event.__struct_config__.tag != tag:
        raise Malformed(f"the subject says {tag}, the body {event.__struct_config__.tag}")
    return event
