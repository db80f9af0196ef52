"""Copies of the log for subscribers: mirrors in accounts of their own, on which they make consumers as they like.

One copy has all events, others have those of one namespace; each event is in it once, at its sequence in the log.
A server takes a bounded number of consumers, and a push consumer sends to a subject of its maker's choice: from the
account of a copy it reaches inboxes, and of the log the request alone that resets the copy's feed.

The feed is a durable consumer of the log, made here; it is acknowledged once the mirror has stored an event.
"""

from typing import Any

import msgspec

from shared.errors import Refused
from shared.eventlog import api, wire
from shared.eventlog.account import LOG_API, STREAM, Copy
from shared.eventlog.connection import Connection, NoResponder
from shared.eventlog.streams import ConsumerInfo, StreamInfo

INACTIVE_SECONDS = 7 * 24 * 3600
"""After so long without its subscriber a consumer is removed, also a durable one."""
_IN_FLIGHT = 100
"""The most events that the feed sends ahead of what the copy has stored, and so the most that a reset repeats."""
_NANOSECONDS = 1_000_000_000
_CREATE = 10.0


def _config(copy: Copy, replicas: int, max_bytes: int) -> dict[str, Any]:
    return {
        "name": STREAM,
        "description": f"the events of {copy.namespace or 'all jobs'}, for subscribers; written by the log alone",
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
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
    """The copy as it is; None without one.  Raises `Refused(reason="NoAccount")` without an account for it."""
    try:
        return await api.call(connection, f"STREAM.INFO.{STREAM}", None, StreamInfo, prefix=copy.api)
    except NoResponder as error:
        remedy = f"add {copy.namespace} to setup.subscriberNamespaces of the chart" if copy.namespace else "update them"
        raise Refused(
            f"look for the stream {copy.name}: the NATS server has no account {copy.account}, since its accounts are "
            f"those of another list or release; {remedy} (docs/events.md)",
            reason="NoAccount",
        ) from error
    except Refused as error:
        if error.reason != "NotSetUp":
            raise
        return None


async def fed_copies(connection: Connection) -> list[Copy]:
    """The copies that have a feed."""
    names = (await api.call(connection, f"CONSUMER.NAMES.{STREAM}", None, _Names)).consumers or []
    return [copy for copy in map(Copy.named, names) if copy is not None]


class _Names(msgspec.Struct, frozen=True):
    consumers: list[str] | None = None


async def make_copy(connection: Connection, copy: Copy, max_bytes: int) -> None:
    """Make the copy, with as many replicas as the log; `max_bytes` is its size, beyond which the oldest events leave.

    The log has to be there.  Safe to repeat.  Raises `Refused(reason="NoRoom")` if the size does not fit, and leaves
    nothing then.
    """
    log = await api.stream_info(connection, STREAM)
    config = _config(copy, log.config["num_replicas"], max_bytes)
    request = {"stream_name": STREAM, "config": _feed(copy)}
    await api.call(connection, f"CONSUMER.DURABLE.CREATE.{STREAM}.{copy.feed}", request, dict)
    try:
        await api.call(connection, f"STREAM.CREATE.{STREAM}", config, StreamInfo, prefix=copy.api, timeout=_CREATE)
    except api.NoRoom as error:
        await remove_feed(connection, copy)
        raise _no_room(copy, max_bytes) from error


def _no_room(copy: Copy, max_bytes: int) -> Refused:
    return Refused(
        f"make the stream {copy.name}: {max_bytes} bytes do not fit beside the log in what the NATS server may store; "
        "choose fewer, or raise `max_file_store` (nats.persistence.size in the chart)",
        reason="NoRoom",
    )


async def follows(connection: Connection, copy: Copy, found: StreamInfo) -> bool:
    """True if the copy is of this log and is fed: a log that was made or restored anew has another feed, or none."""
    if copy not in await fed_copies(connection):
        return False
    feed, wanted = await api.call(connection, f"CONSUMER.INFO.{STREAM}.{copy.feed}", None, ConsumerInfo), _feed(copy)
    if any(feed.config.get(key) != wanted.get(key) for key in ("deliver_subject", "filter_subjects")):
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
    try:
        if await found_copy(connection, copy) is not None:
            await api.call(connection, f"STREAM.DELETE.{STREAM}", None, dict, prefix=copy.api)
    except Refused as error:
        if error.reason != "NoAccount":
            raise
    await remove_feed(connection, copy)


async def remove_feed(connection: Connection, copy: Copy) -> None:
    try:
        await api.call(connection, f"CONSUMER.DELETE.{STREAM}.{copy.feed}", None, dict)
    except Refused as error:
        if error.reason != "NotFound":
            raise


async def resized(connection: Connection, copy: Copy, found: StreamInfo, max_bytes: int, *, check: bool) -> list[str]:
    """Give the copy this size, and as many replicas as the log; return what changed, in words."""
    log = await api.stream_info(connection, STREAM)
    wanted = {"max_bytes": max_bytes, "num_replicas": log.config["num_replicas"]}
    changes = {key: value for key, value in wanted.items() if found.config.get(key) != value}
    if changes and not check:
        config = found.config | changes
        try:
            await api.call(connection, f"STREAM.UPDATE.{STREAM}", config, StreamInfo, prefix=copy.api, timeout=_CREATE)
        except api.NoRoom as error:
            raise _no_room(copy, max_bytes) from error
    return [f"{copy.name}: {key} is {value} now, and was {found.config.get(key)}" for key, value in changes.items()]
