"""One look at the log from outside, for whoever checks an installation: its server, its streams, who holds leases.

It reads what a reader may read, changes nothing, and judges nothing.
"""

from datetime import datetime
from typing import Any

import msgspec

from shared.errors import Refused
from shared.eventlog import api
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.subjects import LEASES, stream_of, subject_of
from shared.eventlog.tls import Life


class Server(msgspec.Struct, frozen=True):
    """The one that we are connected to."""

    name: str
    version: str
    certificate: Life | None = None
    """How long its certificate is good; None without TLS."""


class Replica(msgspec.Struct, frozen=True):
    """A copy of a stream beside that of its leader."""

    name: str
    current: bool = False
    """It has all that the leader has."""
    offline: bool = False
    lag: int = 0


class _Cluster(msgspec.Struct, frozen=True):
    name: str = ""
    leader: str = ""
    replicas: tuple[Replica, ...] = ()


class _State(msgspec.Struct, frozen=True):
    last_seq: int = 0
    bytes: int = 0
    subjects: dict[str, int] | None = None


class _Info(msgspec.Struct, frozen=True):
    config: dict[str, Any]
    state: _State
    cluster: _Cluster = msgspec.field(default_factory=_Cluster)
    ts: datetime | None = None


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as its leader knows it."""

    name: str
    config: dict[str, Any]
    bytes: int = 0
    last: int = 0
    """The last sequence."""
    cluster: str = ""
    """Of servers; empty for one on its own."""
    leader: str = ""
    """Empty while there is none."""
    replicas: tuple[Replica, ...] = ()
    time: datetime | None = None
    """What the server's clock said."""


class Holding(msgspec.Struct, frozen=True):
    """A lease that somebody holds."""

    key: str
    """The service, with `.<namespace>` of an installation for one."""
    holder: str
    renewed: datetime | None
    """When, by the clock of the server."""


class _Kept(msgspec.Struct, frozen=True):
    data: bytes = b""
    hdrs: bytes | None = None
    time: datetime | None = None


class _Answer(msgspec.Struct, frozen=True):
    message: _Kept = msgspec.field(default_factory=_Kept)


def server(log: JetStreamEventLog) -> Server:
    """By what it said when we connected."""
    greeting = log.connection.greeting
    return Server(str(greeting.get("server_name", "")), str(greeting.get("version", "")), log.connection.certificate)


async def stream(log: JetStreamEventLog, name: str) -> Stream | None:
    """None when it is not there.  Raises `Trouble`."""
    try:
        info = await api.call(log.connection, f"STREAM.INFO.{name}", None, _Info)
    except Refused as refusal:
        if refusal.reason != "NotSetUp":
            raise
        return None
    return Stream(
        name=name,
        config=info.config,
        bytes=info.state.bytes,
        last=info.state.last_seq,
        cluster=info.cluster.name,
        leader=info.cluster.leader,
        replicas=info.cluster.replicas,
        time=info.ts,
    )


async def holdings(log: JetStreamEventLog) -> tuple[list[Holding], datetime | None]:
    """The leases that are held now, of all installations that share the log, and what the server's clock said then."""
    name, every = stream_of(LEASES), subject_of(LEASES, ">")
    info = await api.call(log.connection, f"STREAM.INFO.{name}", {"subjects_filter": every}, _Info)
    found = []
    for subject in sorted(info.state.subjects or ()):
        try:
            answer = await api.call(log.connection, f"STREAM.MSG.GET.{name}", {"last_by_subj": subject}, _Answer)
        except Refused as refusal:
            if refusal.reason != "NotFound":
                raise
            # It ran out in between.
            continue
        # What was given up leaves an empty message, which runs out as any other.
        if answer.message.data:
            key = subject.removeprefix(every.removesuffix(">"))
            found.append(Holding(key, answer.message.data.decode("utf-8", "replace"), answer.message.time))
    return found, info.ts
