"""Risks of a log that works: servers that acknowledge before their disk is synced, missing or lagging copies, settings
that differ from those of a new log, and a log that will soon be full.

A risk is a warning; `must_fit` in `setup.py` raises for settings that keep a service from working.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

import aiohttp
import msgspec

from shared.errors import Transient
from shared.eventlog import inspection
from shared.eventlog.account import STREAM
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.room import Room, of_stream
from shared.eventlog.setup import STREAMS, differences
from shared.eventlog.streams import StreamInfo
from shared.untrusted import MALFORMED

_ANSWER_SECONDS = 3.0
"""The timeout of a server's monitor, which usually answers in milliseconds."""


class _Disk(msgspec.Struct, frozen=True):
    sync_always: bool = False
    sync_interval: int = 0
    """Nanoseconds."""
    max_storage: int = 0


class _Used(msgspec.Struct, frozen=True):
    storage: int = 0


class _JetStream(msgspec.Struct, frozen=True):
    config: _Disk | None = None
    stats: _Used = _Used()


class Varz(msgspec.Struct, frozen=True):
    """The settings and usage of a server, as its monitor serves them at `/varz`."""

    server_name: str
    jetstream: _JetStream = _JetStream()

    @property
    def room(self) -> Room:
        """The use of the server's disk."""
        most = self.jetstream.config.max_storage if self.jetstream.config else 0
        remedy = "give it a larger disk and raise max_file_store: a full one takes no event"
        return Room(f"NATS {self.server_name}", self.jetstream.stats.storage, max(most, 0), remedy, server=True)


def fsync_trouble(varz: Varz) -> str:
    """The fault of a server with this `/varz`; empty if a power cut costs no event."""
    name, known = varz.server_name, varz.jetstream.config
    if not known:
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


async def varz(monitor: str) -> Varz:
    """The `/varz` of the server with this monitor.  Raises `Transient`."""
    url = f"{monitor.rstrip('/')}/varz"
    timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, raise_for_status=True) as answer:
            return msgspec.json.decode(await answer.read(), type=Varz)
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
    there = [stream for name in STREAMS if (stream := await inspection.stream(log, name))]
    said = await asyncio.gather(*map(_said, monitors))
    copies = next((copies_trouble(stream) for stream in there if stream.name == STREAM), None)
    rooms = [*map(of_stream, there), *(known.room for known in said if isinstance(known, Varz))]
    risks = [
        *filter(None, (fsync_trouble(each) if isinstance(each, Varz) else str(each) for each in said)),
        *([f"{copies.words}; {copies.remedy}"] if copies else []),
        *(room.risk for room in rooms if room.short),
        *differences({stream.name: stream.config for stream in there}),
    ]
    return Look(risks, rooms)


async def _said(monitor: str) -> Varz | Transient:
    """The `/varz` of the server, or why there is none."""
    try:
        return await varz(monitor)
    except Transient as trouble:
        return trouble
