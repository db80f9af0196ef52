"""Reads the state of the log for `muster doctor`: its server, its streams, the holders of leases.

It needs the rights of a reader, for the copies of subscribers those of the administrator, and changes nothing.
"""

from datetime import datetime

import msgspec

from shared.errors import Refused
from shared.eventlog import api
from shared.eventlog.account import LEASES, stream_of, subject_of
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.streams import StreamInfo
from shared.eventlog.subscribers import fed_copies, found_copy
from shared.eventlog.tls import Life


class Server(msgspec.Struct, frozen=True):
    """The server of this connection."""

    name: str
    version: str
    certificate: Life | None = None
    """The validity of its certificate; None without TLS."""


class Holding(msgspec.Struct, frozen=True):
    """A lease and its holder."""

    key: str
    """The service, with `.<namespace>` for an installation in one namespace."""
    holder: str
    renewed: datetime | None
    """The time of the last renewal, by the server's clock."""


class _Kept(msgspec.Struct, frozen=True):
    data: bytes = b""
    hdrs: bytes | None = None
    time: datetime | None = None


class _Answer(msgspec.Struct, frozen=True):
    message: _Kept = msgspec.field(default_factory=_Kept)


def server(log: JetStreamEventLog) -> Server:
    """The server of this connection, by its INFO."""
    greeting = log.connection.greeting
    return Server(str(greeting.get("server_name", "")), str(greeting.get("version", "")), log.connection.certificate)


async def copies(log: JetStreamEventLog) -> dict[str, StreamInfo | None] | None:
    """The copies for subscribers by the user of each, None in the place of one that is gone.

    None if this user may not see them: only the administrator may.  Raises `Trouble`.
    """
    try:
        fed = await fed_copies(log.connection)
    except Refused as refusal:
        if refusal.reason != "Forbidden":
            raise
        return None
    found: dict[str, StreamInfo | None] = {}
    for copy in sorted(fed):
        try:
            found[copy.user] = await found_copy(log.connection, copy)
        except Refused as refusal:
            if refusal.reason != "NoAccount":
                raise
            found[copy.user] = None
    return found


async def stream(log: JetStreamEventLog, name: str) -> StreamInfo | None:
    """The stream; None if it does not exist.  Raises `Trouble`."""
    try:
        return await api.stream_info(log.connection, name)
    except Refused as refusal:
        if refusal.reason != "NotSetUp":
            raise
        return None


async def holdings(log: JetStreamEventLog) -> tuple[list[Holding], datetime | None]:
    """The leases that are held now, of all installations on this log, and the time by the server's clock."""
    name, every = stream_of(LEASES), subject_of(LEASES, ">")
    info = await api.call(log.connection, f"STREAM.INFO.{name}", {"subjects_filter": every}, StreamInfo)
    found = []
    for subject in sorted(info.state.subjects or ()):
        try:
            answer = await api.call(log.connection, f"STREAM.MSG.GET.{name}", {"last_by_subj": subject}, _Answer)
        except Refused as refusal:
            if refusal.reason != "NotFound":
                raise
            # The lease has expired meanwhile.
            continue
        # A released lease leaves an empty message until it expires.
        if answer.message.data:
            key = subject.removeprefix(every.removesuffix(">"))
            found.append(Holding(key, answer.message.data.decode("utf-8", "replace"), answer.message.time))
    return found, info.ts
