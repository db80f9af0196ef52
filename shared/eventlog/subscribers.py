"""The copy of the log for subscribers: a mirror in an account of its own, on which they make consumers as they like.

A server takes a bounded number of consumers, and a push consumer sends to a subject of its maker's choice: from this
account it reaches inboxes, and of the log the request alone that resets the feed.

One durable consumer of the log, made here, feeds the mirror; it is acknowledged once the mirror has stored an event.
So the mirror has each event once, at the sequence that it has in the log.
"""

from typing import Any

from shared.errors import Refused
from shared.eventlog import api
from shared.eventlog.account import COPY, COPY_API, FED, FEED, LOG_API, STREAM
from shared.eventlog.connection import Connection
from shared.eventlog.streams import StreamInfo

NAME = f"{STREAM} of {COPY}"
"""The copy, in messages."""
INACTIVE_SECONDS = 7 * 24 * 3600
"""After so long without its subscriber a consumer is removed, also a durable one."""
_IN_FLIGHT = 1_000
_NANOSECONDS = 1_000_000_000


def _config(replicas: int, max_bytes: int) -> dict[str, Any]:
    return {
        "name": STREAM,
        "description": "the events of all jobs, for subscribers; written by the log alone",
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
            "consumer": {"name": FEED, "deliver_subject": FED},
        },
    }


_CONSUMER = {
    "durable_name": FEED,
    "description": "feeds the copy of the subscribers",
    "deliver_subject": FED,
    "deliver_policy": "all",
    "ack_policy": "flow_control",
    "flow_control": True,
    "idle_heartbeat": _NANOSECONDS,
    "max_ack_pending": _IN_FLIGHT,
}


async def subscribers_copy(connection: Connection) -> StreamInfo | None:
    """The copy as it is; None without one."""
    try:
        return await api.call(connection, f"STREAM.INFO.{STREAM}", None, StreamInfo, prefix=COPY_API)
    except Refused as error:
        if error.reason != "NotSetUp":
            raise
        return None


async def make_copy(connection: Connection, max_bytes: int) -> None:
    """Make the copy, with as many replicas as the log; `max_bytes` is its size, beyond which the oldest events leave.

    The log has to be there.  Safe to repeat.
    """
    log = await api.stream_info(connection, STREAM)
    config = _config(log.config["num_replicas"], max_bytes)
    request = {"stream_name": STREAM, "config": _CONSUMER}
    await api.call(connection, f"CONSUMER.DURABLE.CREATE.{STREAM}.{FEED}", request, dict)
    await api.call(connection, f"STREAM.CREATE.{STREAM}", config, StreamInfo, prefix=COPY_API, timeout=10)


async def follows(connection: Connection, copy: StreamInfo) -> bool:
    """True if the copy is of this log and is fed: a log that was made or restored anew has another feed, or none."""
    try:
        await api.call(connection, f"CONSUMER.INFO.{STREAM}.{FEED}", None, dict)
    except Refused as error:
        if error.reason not in ("NotFound", "NotSetUp"):
            raise
        return False
    last = copy.state.last_seq
    if last > await api.end(connection, STREAM):
        return False
    for sequence in (1, last) if last else ():
        theirs = await api.message(connection, STREAM, prefix=COPY_API, seq=sequence)
        ours = await api.message(connection, STREAM, seq=sequence)
        # An event that was purged in one of them tells nothing.
        if theirs is not None and ours is not None and theirs != ours:
            return False
    return True


async def remove_copy(connection: Connection) -> None:
    """Remove the copy and its feed, with the consumers of all subscribers."""
    await api.call(connection, f"STREAM.DELETE.{STREAM}", None, dict, prefix=COPY_API)
    try:
        await api.call(connection, f"CONSUMER.DELETE.{STREAM}.{FEED}", None, dict)
    except Refused as error:
        if error.reason != "NotFound":
            raise


async def resized(connection: Connection, copy: StreamInfo, max_bytes: int, *, check: bool) -> list[str]:
    """Give the copy this size, and as many replicas as the log; return what changed, in words."""
    log = await api.stream_info(connection, STREAM)
    wanted = {"max_bytes": max_bytes, "num_replicas": log.config["num_replicas"]}
    changes = {key: value for key, value in wanted.items() if copy.config.get(key) != value}
    if changes and not check:
        config = copy.config | changes
        await api.call(connection, f"STREAM.UPDATE.{STREAM}", config, StreamInfo, prefix=COPY_API, timeout=10)
    return [f"{NAME}: {key} is {value} now, and was {copy.config.get(key)}" for key, value in changes.items()]
