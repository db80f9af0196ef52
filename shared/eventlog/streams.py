"""The server's answers about streams and consumers.  Pure."""

from datetime import datetime
from typing import Any

import msgspec


class StreamState(msgspec.Struct, frozen=True):
    first_seq: int = 0
    last_seq: int = 0
    messages: int = 0
    bytes: int = 0
    consumer_count: int = 0
    subjects: dict[str, int] | None = None
    """By subject, the number of messages; only if the request filters subjects."""


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
