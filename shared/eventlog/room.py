"""The size of streams and disks against their bounds: a full log takes no event and no lease.  Pure."""

from collections.abc import Iterable

import msgspec

from shared.eventlog.account import STREAM
from shared.eventlog.streams import StreamInfo

FULL = 0.8
"""The share of the allowed bytes from which there is a warning."""


SERVER = "NATS "
"""Before the name of a server, whose disk holds all streams."""


class Room(msgspec.Struct, frozen=True):
    """The use of a stream, or of a server's disk, in bytes."""

    of: str
    """`JOBS`, or `NATS muster-nats-0`."""
    used: int
    most: int
    """The bound; 0 without one."""
    remedy: str

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
    return any(
        room.most > 0 and room.used >= (1 - reserve) * room.most
        for room in rooms
        if room.of == STREAM or room.of.startswith(SERVER)
    )


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
