"""What could cost acknowledged events although the log works: servers that acknowledge before the disk has it, copies
that are too few or behind, settings that are not as they would be made today.

Nothing here keeps anybody from working; `must_fit` in `setup.py` says what does.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

import aiohttp
import msgspec

from shared.errors import Transient
from shared.eventlog import inspection
from shared.eventlog.inspection import Stream
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.setup import STREAMS, differences
from shared.eventlog.subjects import STREAM

_ANSWER_SECONDS = 3.0
"""How long a server's monitor may take; it answers in milliseconds or is not there."""


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
    """What a server says of itself at `/varz`."""

    server_name: str
    jetstream: _JetStream = _JetStream()

    @property
    def used(self) -> int:
        """Bytes on its disk."""
        return self.jetstream.stats.storage

    @property
    def room(self) -> int:
        """How many they may be; 0 when it has no JetStream."""
        return self.jetstream.config.max_storage if self.jetstream.config else 0


def fsync_trouble(varz: Varz) -> str:
    """What is wrong with a server that says this of itself; empty when a power cut costs nothing."""
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
    """What is wrong with where a stream is kept."""

    words: str
    remedy: str
    grave: bool
    """Whether nothing can be appended, or a copy is gone."""


def copies_trouble(stream: Stream) -> CopiesTrouble | None:
    """None when it has as many copies as were asked for, and all are up to date."""
    name, wanted = stream.name, stream.config.get("num_replicas") or 1
    if wanted < 2:
        if not stream.cluster:
            return None
        words = f"{name}: one copy in a cluster of servers: with its server the log stands still, and with its disk "
        return CopiesTrouble(f"{words}history is lost", f"`nats stream edit {name} --replicas 3`", grave=False)
    if not stream.leader:
        words = f"{name}: no copy leads: nothing can be appended"
        return CopiesTrouble(words, "bring back the NATS servers that are down", grave=True)
    missing = wanted - 1 - len(stream.replicas)
    behind = [replica for replica in stream.replicas if replica.offline or not replica.current]
    if not (missing or behind):
        return None
    look = f"look at {', '.join(sorted(replica.name for replica in behind))}"
    return CopiesTrouble(
        f"{name}: {wanted - missing - len(behind)} of {wanted} copies are current",
        look if behind else "bring back the NATS servers that are missing",
        grave=missing > 0 or any(replica.offline for replica in behind),
    )


async def fsync_troubles(monitors: Iterable[str]) -> list[str]:
    """One sentence for each server whose `/varz` says, or does not say, what it should."""
    said = await asyncio.gather(*(_fsync_trouble(url) for url in monitors))
    return [trouble for trouble in said if trouble]


async def varz(monitor: str) -> Varz:
    """What the server whose monitor this is says of itself.  Raises `Transient`."""
    url = f"{monitor.rstrip('/')}/varz"
    timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, raise_for_status=True) as answer:
            return msgspec.json.decode(await answer.read(), type=Varz)
    except (aiohttp.ClientError, TimeoutError, ValueError, msgspec.MsgspecError) as error:
        why = str(error) or "no answer"
        raise Transient(f"cannot ask {url} whether NATS syncs its disk: {why}; correct NATS_MONITOR") from error


async def risks(log: JetStreamEventLog, monitors: Iterable[str]) -> list[str]:
    """One sentence for each.  Raises `Trouble` when the log itself cannot be asked."""
    there = [stream for name in STREAMS if (stream := await inspection.stream(log, name))]
    copies = next((copies_trouble(stream) for stream in there if stream.name == STREAM), None)
    told = [f"{copies.words}; {copies.remedy}"] if copies else []
    return [*await fsync_troubles(monitors), *told, *differences({stream.name: stream.config for stream in there})]


async def _fsync_trouble(monitor: str) -> str:
    try:
        return fsync_trouble(await varz(monitor))
    except Transient as trouble:
        return str(trouble)
