"""Copies of the log for subscribers: mirrors on a server of their own, on which they make consumers as they like.

One copy has all events, others have those of one namespace; each event is in it once, at its sequence in the log.
A push consumer sends to a subject of its maker's choice: from the account of a copy it reaches inboxes, and the request
that resets the copy's feed.  So a copy is fed by another one on its server, the relay, and the relay alone by the log.

A feed is a durable consumer, made here; it is acknowledged once the mirror has stored an event.
The administrator reaches the copies through the log's server.
"""

from contextlib import suppress
from typing import Any

import msgspec

from shared.errors import Refused, Transient, accepting
from shared.eventlog import api, wire
from shared.eventlog.account import COPIES, LOG_API, NAMES, RELAY, STREAM, STREAM_SUBJECTS, Copy
from shared.eventlog.connection import Connection, NoResponder
from shared.eventlog.streams import ConsumerInfo, StreamInfo

INACTIVE_SECONDS = 7 * 24 * 3600
"""After so long without its subscriber a consumer is removed, also a durable one."""
_IN_FLIGHT = 100
"""The most events that the feed sends ahead of what the copy has stored, and so the most that a reset repeats."""
_NANOSECONDS = 1_000_000_000
_CREATE = 10.0


def _config(copy: Copy, max_bytes: int) -> dict[str, Any]:
    return {
        "name": STREAM,
        "description": f"the events of {copy.namespace or 'all jobs'}, for subscribers; written by the log alone",
        "retention": "limits",
        "storage": "file",
        "num_replicas": 1,
        "max_bytes": max_bytes,
        "discard": "old",
        "deny_delete": True,
        "allow_direct": True,
        "consumer_limits": {"inactive_threshold": INACTIVE_SECONDS * _NANOSECONDS},
        "mirror": {
            "name": STREAM,
            "external": {"api": LOG_API, "deliver": ""},
            "consumer": {"name": copy.feed, "deliver_subject": copy.fed},
        },
    }


def _feed(copy: Copy) -> dict[str, Any]:
    return {
        "durable_name": copy.feed,
        "description": "feeds a copy of the subscribers",
        "deliver_subject": copy.fed,
        "deliver_policy": "all",
        "ack_policy": "flow_control",
        "flow_control": True,
        "idle_heartbeat": _NANOSECONDS,
        "max_ack_pending": _IN_FLIGHT,
    } | ({"filter_subjects": list(copy.filters)} if copy.filters else {})


async def found_copy(connection: Connection, copy: Copy) -> StreamInfo | None:
    """The copy as it is; None without one.

    Raises `Refused(reason="NoAccount")` without an account for it, and `Transient` while the copies' server is away.
    """
    try:
        return await api.call(connection, f"STREAM.INFO.{STREAM}", None, StreamInfo, prefix=copy.api)
    except NoResponder as error:
        if copy.relay:
            raise Transient(
                f"look for the stream {copy.name}: no server of the copies is connected to the log's; set "
                "setup.subscribers or setup.subscriberNamespaces of the chart, or start it (docs/events.md)"
            ) from error
        await found_copy(connection, RELAY)
        remedy = f"add {copy.namespace} to setup.subscriberNamespaces of the chart" if copy.namespace else "update them"
        raise Refused(
            f"look for the stream {copy.name}: the copies' server has no account {copy.account}, since its accounts "
            f"are those of another list or release; {remedy} (docs/events.md)",
            reason="NoAccount",
        ) from error
    except Refused as error:
        if error.reason != "NotSetUp":
            raise
        return None


async def fed_copies(connection: Connection) -> list[Copy]:
    """The copies that have a feed, without the relay; none without a server for them."""
    feeds: list[str] = []
    with suppress(NoResponder), accepting("NotSetUp"):
        feeds = await feeds_of(connection, RELAY.api)
    return [copy for copy in map(Copy.named, feeds) if copy is not None]


async def feeds_of(connection: Connection, prefix: str) -> list[str]:
    """The consumers of the stream of events in the account with this prefix of requests."""
    return (await api.call(connection, f"CONSUMER.NAMES.{STREAM}", None, _Names, prefix=prefix)).consumers or []


class _Names(msgspec.Struct, frozen=True):
    consumers: list[str] | None = None


async def make_copy(connection: Connection, copy: Copy, max_bytes: int) -> None:
    """Make the copy; `max_bytes` is its size, beyond which the oldest events leave.

    What it copies has to be there.  Safe to repeat.  Raises `Refused(reason="NoRoom")` if the size does not fit, and
    leaves nothing then.
    """
    config, request = _config(copy, max_bytes), {"stream_name": STREAM, "config": _feed(copy)}
    await api.call(connection, f"CONSUMER.DURABLE.CREATE.{STREAM}.{copy.feed}", request, dict, prefix=copy.source)
    try:
        await api.call(connection, f"STREAM.CREATE.{STREAM}", config, StreamInfo, prefix=copy.api, timeout=_CREATE)
    except api.NoRoom as error:
        await remove_feed(connection, copy)
        raise _no_room(copy, max_bytes) from error


async def make_names(connection: Connection) -> None:
    """Make the stream that says which stream has a subject.  Safe to repeat."""
    config = {"name": STREAM, "subjects": [*STREAM_SUBJECTS], "storage": "file", "max_bytes": 1024}
    prefix = f"$JS.{COPIES}.{NAMES}.API"
    await api.call(connection, f"STREAM.CREATE.{STREAM}", config, StreamInfo, prefix=prefix, timeout=_CREATE)


def _no_room(copy: Copy, max_bytes: int) -> Refused:
    return Refused(
        f"make the stream {copy.name}: {max_bytes} bytes do not fit in what the copies' server may store, beside a "
        "copy as large as the log; choose fewer, or raise `max_file_store` (nats.copies.size in the chart)",
        reason="NoRoom",
    )


async def follows(connection: Connection, copy: Copy, found: StreamInfo) -> bool:
    """True if the copy is of this log and is fed: a log that was made or restored anew has another feed, or none."""
    feed: ConsumerInfo | None = None
    with accepting("NotFound", "NotSetUp"):
        feed = await api.call(connection, f"CONSUMER.INFO.{STREAM}.{copy.feed}", None, ConsumerInfo, prefix=copy.source)
    wanted = _feed(copy)
    if feed is None or any(feed.config.get(key) != wanted.get(key) for key in ("deliver_subject", "filter_subjects")):
        # Another release sent it elsewhere.
        return False
    last = found.state.last_seq
    if last > await api.end(connection, STREAM):
        return False
    for sequence in (found.state.first_seq, last) if last else ():
        theirs = await api.message(connection, STREAM, prefix=copy.api, seq=sequence)
        ours = await api.message(connection, STREAM, seq=sequence)
        # An event that was purged in one of them tells nothing.
        if theirs is not None and ours is not None and _id(theirs) != _id(ours):
            return False
    return True


def _id(message: api.Message) -> str:
    """Its id: a mirror leaves out the headers of an append's guard."""
    return wire.header(message.hdrs, "ce-id")


async def remove_copy(connection: Connection, copy: Copy) -> None:
    """Remove the copy and its feed, with the consumers of its subscribers.

    Without its account the server offers the copy no more, and only the feed is left.
    """
    with accepting("NoAccount"):
        if await found_copy(connection, copy) is not None:
            await api.call(connection, f"STREAM.DELETE.{STREAM}", None, dict, prefix=copy.api)
    await remove_feed(connection, copy)


async def remove_feed(connection: Connection, copy: Copy) -> None:
    with accepting("NotFound", "NotSetUp"):
        await api.call(connection, f"CONSUMER.DELETE.{STREAM}.{copy.feed}", None, dict, prefix=copy.source)


async def resized(connection: Connection, copy: Copy, found: StreamInfo, max_bytes: int, *, check: bool) -> list[str]:
    """Give the copy this size; return what changed, in words."""
    now = found.config.get("max_bytes")
    if now == max_bytes:
        return []
    if not check:
        config = found.config | {"max_bytes": max_bytes}
        try:
            await api.call(connection, f"STREAM.UPDATE.{STREAM}", config, StreamInfo, prefix=copy.api, timeout=_CREATE)
        except api.NoRoom as error:
            raise _no_room(copy, max_bytes) from error
    return [f"{copy.name}: max_bytes is {max_bytes} now, and was {now}"]
