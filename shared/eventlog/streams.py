"""Streams: what the server says about them and their consumers, the settings of ours, and what may be changed in them.

Pure.  A stream never gets fewer copies, nor less room than it uses.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from shared.eventlog import MAX_BODY
from shared.eventlog.account import (
    ARCHIVE,
    HEADS,
    IN_ARCHIVE,
    LEASES,
    STORED,
    STREAM,
    STREAM_SUBJECTS,
    stream_of,
    subject_of,
)


class StreamState(msgspec.Struct, frozen=True):
    first_seq: int = 0
    last_seq: int = 0
    messages: int = 0
    bytes: int = 0
    consumer_count: int = 0
    subjects: dict[str, int] | None = None
    """By subject, the number of messages; only if the request filters subjects."""
    deleted: list[int] = []
    """The sequences behind the first that it has no message of; only if the request asks for them."""


class Replica(msgspec.Struct, frozen=True):
    """A follower's copy of a stream."""

    name: str
    current: bool = False
    """True if it has all events of the leader."""
    offline: bool = False
    lag: int = 0


class StreamCluster(msgspec.Struct, frozen=True):
    name: str = ""
    """Empty for a single server."""
    leader: str = ""
    """Empty without a leader."""
    replicas: tuple[Replica, ...] = ()


class Mirror(msgspec.Struct, frozen=True):
    """How a stream that copies another one is fed."""

    lag: int = 0
    """How many events it lacks."""
    active: int = -1
    """Nanoseconds since it was last told anything, which is each second; -1 if it never was."""


class StreamInfo(msgspec.Struct, frozen=True):
    """A stream as its leader knows it."""

    config: dict[str, Any]
    state: StreamState
    cluster: StreamCluster = StreamCluster()
    ts: datetime | None = None
    """The time by the server's clock."""
    total: int = 0
    """How many subjects match the filter; an answer has 100,000 of them at the most."""
    created: str = ""
    mirror: Mirror | None = None

    @property
    def name(self) -> str:
        return str(self.config["name"])


class Position(msgspec.Struct, frozen=True):
    stream_seq: int = 0


class ConsumerInfo(msgspec.Struct, frozen=True):
    config: dict[str, Any]
    ack_floor: Position = Position()
    """All of its messages up to this one are acknowledged."""
    delivered: Position = Position()
    """All of its messages up to this one were sent."""
    num_pending: int = 0
    """Messages that are in the stream and were not sent."""


Config = Mapping[str, Any]

CHOSEN = ("num_replicas", "max_bytes")
"""The number of copies and the size are the owner's choice: they count as no difference, and may grow."""

_CHANGEABLE = ("republish", "max_msg_size", "allow_msg_ttl")

COSTS = {"compression": "a copy may be lost when its server was killed and later stopped"}
"""What a different setting may cost; other settings cost no event."""

_NO_BOUND = float("inf")


class Growth(NamedTuple):
    """The sizes to raise, and those that are not raised."""

    changes: dict[str, int]
    kept: tuple[str, ...]
    """The sizes that are not granted, a sentence each."""


def growth(found: Config, asked: Mapping[str, int], used: int = 0) -> Growth:
    """What to do for the sizes in `asked`, which are some of `CHOSEN`; `used` are the bytes that the stream has."""
    changes: dict[str, int] = {}
    kept: list[str] = []
    for name, wanted in asked.items():
        now = found.get(name, -1)
        if _size(wanted) > _size(now) or (_size(wanted) < _size(now) and name == "max_bytes" and used < wanted):
            changes[name] = wanted
        elif _size(wanted) < _size(now):
            why = f"it holds {used} bytes" if name == "max_bytes" else "a stream never has fewer copies"
            kept.append(f"{name} stays {now}, {wanted} was asked for: {why}")
    return Growth(changes, tuple(kept))


def _size(value: int) -> float:
    return value if value > 0 else _NO_BOUND


def compare(found: Config, wanted: Config) -> list[str]:
    """The differences of a stream from the settings of a new one, one sentence each."""
    return [
        f"{wanted['name']}: {key} is {found.get(key, False)!r}, and would be made {value!r} today"
        + (f": {COSTS[key]}" if key in COSTS else "")
        for key, value in unlike(found, wanted)
        if key not in CHOSEN
    ]


def unlike(found: Config, wanted: Config) -> list[tuple[str, Any]]:
    """The settings that differ, and what was wanted."""
    # The server omits settings that are off.
    return [(key, value) for key, value in wanted.items() if (found.get(key) or False) != (value or False)]


def changeable(found: Config, wanted: Config) -> dict[str, Any]:
    """What `muster setup` turns on in an existing stream, with subjects that it lacks: new messages alone."""
    known = {*found.get("subjects", ())}
    names = _CHANGEABLE if not known or not known.issubset(wanted["subjects"]) else (*_CHANGEABLE, "subjects")
    return {key: value for key, value in unlike(found, wanted) if value and key in names}


_NANOSECONDS = 1_000_000_000
_DUPLICATES = 600
"""Seconds for which the server recognises a repeated event id; the guard does so for ever."""
_HEADERS = 16 * 1024
"""The most bytes of an event's subject and headers, in which each name and id comes a few times."""
_LEASES_BYTES = 1024 * 1024
"""The room of the leases: some thousand of them; an installation has four."""
_HEADS_BYTES = 64 * 1024 * 1024
"""The room of the heads: of some 200,000 jobs that are still there."""
_PART_BYTES = 1024 * 1024
"""The most bytes of a message of the archive."""
STREAMS = (STREAM, stream_of(LEASES), stream_of(HEADS))
"""The streams without which no service works; the archive may be away."""


def _config(name: str, subjects: Collection[str]) -> dict[str, Any]:
    """The settings that all streams have in common."""
    return {
        "name": name,
        "subjects": [*subjects],
        "retention": "limits",
        "storage": "file",
        "num_replicas": 1,
        "max_age": 0,
        "max_msgs": -1,
        "max_bytes": -1,
        "discard": "new",
        "deny_delete": True,
        # An administrator may purge archived events; services have no right to.  `True` could never be undone.
        "deny_purge": False,
        # With rollup, a user who may write one key may delete all keys.
        "allow_rollup_hdrs": False,
        "allow_direct": True,
    }


LOG_CONFIG = _config(STREAM, STREAM_SUBJECTS) | {
    # With s2 a server that was killed, started and stopped in order may append plain data to a compressed block, which
    # can then not be read (NATS 2.15.1).
    "compression": "none",
    "max_msgs_per_subject": -1,
    "allow_msg_ttl": False,
    "duplicate_window": _DUPLICATES * _NANOSECONDS,
    "max_msg_size": MAX_BODY + _HEADERS,
    # Readers hear of new events by it.
    "republish": {"src": ">", "dest": f"{STORED}.>"},
}
# With a longer history for each key the server raises lifetimes silently.
_BUCKET = {"max_msgs_per_subject": 1, "max_msg_size": 4 * 1024, "allow_msg_ttl": True}
CONFIGS = (
    LOG_CONFIG,
    # The server sets these rooms aside: a `JOBS` with a bound leaves them to leases and heads when it is full.
    _config(stream_of(LEASES), [subject_of(LEASES, ">")]) | _BUCKET | {"max_bytes": _LEASES_BYTES},
    _config(stream_of(HEADS), [subject_of(HEADS, ">")]) | _BUCKET | {"max_bytes": _HEADS_BYTES},
    # Its messages are compressed already.
    _config(ARCHIVE, IN_ARCHIVE)
    | {
        "compression": "none",
        "max_msgs_per_subject": -1,
        # Who made changes leaves it by itself.
        "allow_msg_ttl": True,
        # The guard of a part recognises a repeated one for ever, and each id costs the server 170 bytes.
        "duplicate_window": _NANOSECONDS,
        "max_msg_size": _PART_BYTES,
    },
)
"""The settings of new streams."""


def differences(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The settings of these streams, by name, that differ from those of a new log, one sentence each.

    The number of copies and the size are the owner's choice.
    """
    there = [config for config in CONFIGS if config["name"] in found]
    return [sentence for config in there for sentence in compare(found[config["name"]], config)]
