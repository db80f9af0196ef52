"""The size of streams and disks against their bounds: a full log takes no event and no lease.  Pure."""

from collections.abc import Collection, Iterable, Iterator

import msgspec

from shared.eventlog.account import STREAM
from shared.eventlog.streams import StreamInfo

FULL = 0.8
"""The share of the allowed bytes from which there is a warning."""

SOONEST_SECONDS = 10.0
"""Seconds between two checks once the reserve has begun: so much of the log's growth has to fit into the reserve."""

LATEST_SECONDS = 60.0
"""Seconds between two checks while there is plenty of room."""

SILENT_SECONDS = 300.0
"""How long the use of a disk counts after the last answer of its server's monitor."""


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
    def risk(self) -> str:
        """One sentence, which stays the same while the use grows."""
        return f"{self.of}: at least {FULL:.0%} of the {size(self.most)} that it may have are used; {self.remedy}"


def reserved(rooms: Iterable[Room], reserve: float) -> bool:
    """True if of the room for events no more than the share `reserve` is left."""
    return any(room.used >= (1 - reserve) * room.most for room in _for_events(rooms))


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
