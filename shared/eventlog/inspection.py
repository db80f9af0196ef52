"""The state of the log, for the command line and the services: server, streams, room, the holders of leases.

Risks of a log that works are warnings: servers that acknowledge before their disk is synced, missing or lagging copies,
settings that differ from those of a new log, and a log that will soon be full, which takes no event and no lease.
`must_fit` in `setup.py` raises for settings that keep a service from working.

It needs the rights of a reader, for the copies of subscribers those of the administrator, and changes nothing.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

import aiohttp
import msgspec

from shared.errors import Transient, accepting
from shared.eventlog import api, wire
from shared.eventlog.account import (
    ADMIN,
    AUTHORS,
    COPIES,
    GET_MANY,
    LEASES,
    RELAY,
    STREAM,
    USERS,
    Copy,
    stream_of,
    subject_of,
)
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.streams import STREAMS, StreamInfo, differences
from shared.eventlog.subscribers import fed_copies, feeds_of, found_copy
from shared.untrusted import MALFORMED

_LESS = {*USERS} - {ADMIN}
"""The users that may not see the copies."""

FULL = 0.8
"""The share of the allowed bytes from which there is a warning."""

LEAST_BYTES = 4096
"""A room with less than this left, and than a hundredth, is full: an event with pods takes one to three KiB."""

PASSING_SECONDS = 1.5
"""Seconds before a free lease is read again: a standby takes a lease within two seconds."""

SOONEST_SECONDS = 10.0
"""Seconds between two checks once the reserve has begun: so much of the log's growth has to fit into the reserve."""

LATEST_SECONDS = 60.0
"""Seconds between two checks while there is plenty of room."""

SILENT_SECONDS = 300.0
"""How long the use of a disk counts after the last answer of its server's monitor."""


LOOKS = 32
"""Direct reads at once: any copy answers each, so that one of four answers none of them once in ten thousand times."""


class Room(msgspec.Struct, frozen=True):
    """The use of a stream, or of a server's disk, in bytes."""

    of: str
    """`JOBS`, or `NATS muster-nats-0`."""
    used: int
    most: int
    """The bound; 0 without one."""
    remedy: str
    server: bool = False
    """True for a server's disk, which holds all streams."""

    @property
    def short(self) -> bool:
        """True from `FULL` of the bound."""
        return self.most > 0 and self.used >= FULL * self.most

    @property
    def full(self) -> bool:
        """True if next to no event fits in any more."""
        return self.most > 0 and self.most - self.used < min(LEAST_BYTES, self.most / 100)

    @property
    def risk(self) -> str:
        """One sentence, which stays the same while the use grows."""
        return f"{self.of}: at least {FULL:.0%} of the {size(self.most)} that it may have are used; {self.remedy}"


def reserved(rooms: Iterable[Room], reserve: float) -> bool:
    """True if of the room for events no more than the share `reserve` is left."""
    return any(room.used >= (1 - reserve) * room.most for room in _for_events(rooms))


class Space(NamedTuple):
    """The bytes of all events."""

    most: int = 0
    """That they may have; 0 without a bound."""
    used: int = 0


def space(rooms: Collection[Room]) -> Space:
    """What the stream of events and the disks leave for it, and what it has."""
    most = min((room.most for room in _for_events(rooms)), default=0)
    return Space(most, sum(room.used for room in rooms if room.of == STREAM))


def seconds_to_next_check(rooms: Iterable[Room], reserve: float) -> float:
    """Seconds until the next check, if in `SOONEST_SECONDS` no more comes than the reserve holds: it begins then."""
    if not reserve:
        return LATEST_SECONDS
    left = min((1 - room.used / room.most for room in _for_events(rooms)), default=1.0)
    return min(max(SOONEST_SECONDS * (left - reserve) / reserve, SOONEST_SECONDS), LATEST_SECONDS)


def _for_events(rooms: Iterable[Room]) -> Iterator[Room]:
    """The bounded rooms that events need: their stream's and the servers' disks."""
    return (room for room in rooms if room.most > 0 and (room.server or room.of == STREAM))


class LastKnown:
    """The newest use of each stream and disk.  A server that does not answer once is as full as it was."""

    def __init__(self) -> None:
        self._disks: dict[str, tuple[Room, float]] = {}
        """Each server's disk, and when its monitor answered."""

    def rooms(self, found: Collection[Room], now: float) -> tuple[Room, ...]:
        """The rooms `found` now, and the disks of servers that have not answered for less than `SILENT_SECONDS`."""
        streams = [room for room in found if not room.server]
        self._disks |= {room.of: (room, now) for room in found if room.server}
        self._disks = {of: known for of, known in self._disks.items() if now - known[1] < SILENT_SECONDS}
        return (*streams, *(room for room, _ in self._disks.values()))


def of_stream(stream: StreamInfo) -> Room:
    remedy = f"raise max_bytes with `nats stream edit {stream.name}`: a full log takes no event"
    return Room(stream.name, stream.state.bytes, max(stream.config.get("max_bytes") or 0, 0), remedy)


def size(bytes_: float) -> str:
    """A number of bytes in words."""
    for unit in ("B", "KiB", "MiB"):
        if bytes_ < 1024:
            return f"{bytes_:.0f} {unit}"
        bytes_ /= 1024
    return f"{bytes_:.1f} GiB"


class Holding(msgspec.Struct, frozen=True):
    """A lease and its holder."""

    key: str
    """The service, with `.<namespace>` for an installation in one namespace."""
    holder: str
    renewed: datetime | None
    """The time of the last renewal, by the server's clock."""


async def copies(log: JetStreamEventLog) -> dict[str, StreamInfo | None] | None:
    """The copies for subscribers by the user of each, None in the place of one that is gone.

    None if this user may not see them: only the administrator may.  Raises `Trouble`.
    """
    if log.connection.user in _LESS:
        # A refused request is a line in the server's log, too.
        return None
    fed: list[Copy] | None = None
    with accepting("Forbidden"):
        feeds = await feeds_of(log.connection, api.API)
        fed = [RELAY, *await fed_copies(log.connection)] if COPIES in feeds else []
    if fed is None:
        return None
    found: dict[str, StreamInfo | None] = {}
    for copy in sorted(fed):
        found[copy.user] = None
        # Their server may be away.
        with suppress(Transient), accepting("NoAccount"):
            found[copy.user] = await found_copy(log.connection, copy)
    return found


async def stream(log: JetStreamEventLog, name: str) -> StreamInfo | None:
    """The stream; None if it does not exist.  Raises `Trouble`."""
    with accepting("NotSetUp"):
        return await api.stream_info(log.connection, name)
    return None


async def mirrors(log: JetStreamEventLog) -> list[str]:
    """Streams of the log's account that answer direct reads of the log, and may lack events.  Raises `Trouble`."""
    query = msgspec.json.encode({"seq": 1, "next_by_subj": ">", "batch": 1})
    asked = (log.connection.request(GET_MANY, query, timeout=api.TIMEOUT) for _ in range(LOOKS))
    places = [wire.place(answer.headers) for answer in await asyncio.gather(*asked)]
    return sorted({place.stream for place in places if place is not None} - {STREAM})


async def holdings(log: JetStreamEventLog) -> tuple[list[Holding], datetime | None]:
    """The leases that are held now, of all installations on this log, and the time by the server's clock."""
    name, every = stream_of(LEASES), subject_of(LEASES, ">")
    info = await api.stream_info(log.connection, name, every)
    found = []
    for subject in sorted(info.state.subjects or ()):
        lease = await api.message(log.connection, name, last_by_subj=subject)
        # One that expired meanwhile is gone, and a released one leaves an empty message until it expires.
        if lease is not None and lease.data:
            key = subject.removeprefix(every.removesuffix(">"))
            renewed = datetime.fromisoformat(lease.time) if lease.time else None
            found.append(Holding(key, lease.data.decode("utf-8", "replace"), renewed))
    return found, info.ts


async def standstill(log: JetStreamEventLog, namespace: str) -> str:
    """Why no service acts on the jobs of a namespace, or of all without one; empty while they do.  Raises `Trouble`."""
    jobs = await stream(log, STREAM)
    if jobs is not None and of_stream(jobs).full:
        return "the log is full: no service acts on any job until it has room; `muster doctor` says more"
    for seconds in (PASSING_SECONDS, 0):
        held, _ = await holdings(log)
        missing = without_holder([each.key for each in held], namespace)
        if not missing:
            return ""
        # A lease may be changing hands at this moment.
        await asyncio.sleep(seconds)
    return f"no replica of the {', '.join(missing)} acts: what it decides waits; `muster doctor` says more"


def without_holder(keys: Collection[str], namespace: str) -> list[str]:
    """The services of which no replica acts on the jobs of a namespace, or of any without one, by the held leases."""
    scopes = {tuple(key.split(".", 1)) for key in keys}
    held = {service for service, *scope in scopes if not scope or namespace in ("", *scope)}
    return [service for service in AUTHORS if service not in held]


_ANSWER_SECONDS = 3.0
"""The timeout of a server's monitor, which usually answers in milliseconds."""


class _Config(msgspec.Struct, frozen=True):
    sync_always: bool = False
    sync_interval: int = 0
    """Nanoseconds."""
    max_storage: int = 0


class JetStream(msgspec.Struct, frozen=True):
    """What a server's monitor serves at `/jsz?config=1`.

    Its `/varz` has the same, but a server that was asked once before its JetStream had started never says it there.
    """

    server_id: str
    disabled: bool = False
    config: _Config = _Config()
    storage: int = 0


class _Varz(msgspec.Struct, frozen=True):
    server_name: str


class Server(NamedTuple):
    """A server, as its monitor describes it."""

    name: str
    jetstream: JetStream

    @property
    def room(self) -> Room:
        """The use of the server's disk."""
        remedy = "give it a larger disk and raise max_file_store: a full one takes no event"
        most = max(self.jetstream.config.max_storage, 0)
        return Room(f"NATS {self.name}", self.jetstream.storage, most, remedy, server=True)


def fsync_trouble(server: Server) -> str:
    """The fault of this server; empty if a power cut costs no event."""
    name, known = server.name, server.jetstream.config
    if server.jetstream.disabled:
        return f"NATS {name} has no JetStream; enable it in the server's configuration (`jetstream {{}}`)"
    if known.sync_always:
        return ""
    seconds = known.sync_interval / 1_000_000_000
    return (
        f"NATS {name} acknowledges events up to {seconds:g} s before they are on the disk: a power cut loses them, "
        "or the whole log; set `jetstream { sync_interval: always }`"
    )


class CopiesTrouble(NamedTuple):
    """A fault of a stream's copies."""

    words: str
    remedy: str
    grave: bool
    """True if nothing can be appended, or a copy is gone."""


def copies_trouble(stream: StreamInfo) -> CopiesTrouble | None:
    """The fault of the stream's copies; None if all exist and are up to date."""
    name, wanted = stream.name, stream.config.get("num_replicas") or 1
    if wanted < 2:
        if not stream.cluster.name:
            return None
        words = f"{name}: one copy in a cluster of servers: without its server the log stops, without its disk "
        return CopiesTrouble(f"{words}history is lost", f"`nats stream edit {name} --replicas 3`", grave=False)
    if not stream.cluster.leader:
        words = f"{name}: no copy leads: nothing can be appended"
        return CopiesTrouble(words, "bring back the NATS servers that are down", grave=True)
    missing = wanted - 1 - len(stream.cluster.replicas)
    behind = [replica for replica in stream.cluster.replicas if replica.offline or not replica.current]
    if not (missing or behind):
        return None
    look = f"look at {', '.join(sorted(replica.name for replica in behind))}"
    return CopiesTrouble(
        f"{name}: {wanted - missing - len(behind)} of {wanted} copies are current",
        look if behind else "bring back the NATS servers that are missing",
        grave=missing > 0 or any(replica.offline for replica in behind),
    )


async def server_of(monitor: str) -> Server:
    """The server with this monitor.  Raises `Transient`."""
    url = monitor.rstrip("/")
    timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session:
            async with session.get(f"{url}/varz") as answer:
                name = msgspec.json.decode(await answer.read(), type=_Varz).server_name
            async with session.get(f"{url}/jsz?config=1") as answer:
                return Server(name, msgspec.json.decode(await answer.read(), type=JetStream))
    except (aiohttp.ClientError, TimeoutError, ValueError, *MALFORMED) as error:
        why = str(error) or "no answer"
        raise Transient(f"cannot ask {url} whether NATS syncs its disk: {why}; correct NATS_MONITOR") from error


class Look(NamedTuple):
    """The findings of one check of the log."""

    risks: list[str]
    """One sentence each."""
    rooms: list[Room]
    """The use of each stream, and of the disk of each server whose monitor answered."""


async def look(log: JetStreamEventLog, monitors: Iterable[str]) -> Look:
    """Check the log and its servers.  Raises `Trouble` if the log does not answer."""
    there = [found for name in STREAMS if (found := await stream(log, name))]
    said = await asyncio.gather(*map(_said, monitors))
    copies = next((copies_trouble(each) for each in there if each.name == STREAM), None)
    rooms = [*map(of_stream, there), *(known.room for known in said if isinstance(known, Server))]
    risks = [
        *filter(None, (fsync_trouble(each) if isinstance(each, Server) else str(each) for each in said)),
        *([f"{copies.words}; {copies.remedy}"] if copies else []),
        *(room.risk for room in rooms if room.short),
        *differences({each.name: each.config for each in there}),
    ]
    return Look(risks, rooms)


async def _said(monitor: str) -> Server | Transient:
    """The server, or why its monitor did not say."""
    try:
        return await server_of(monitor)
    except Transient as trouble:
        return trouble
