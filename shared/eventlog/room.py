"""How far the log may grow, and how near it is to that: a full one takes no event, and no lease either.  Pure."""

import msgspec

from shared.eventlog.inspection import Stream

FULL = 0.8
"""Of the bytes that there may be: so much is worth a warning."""


class Room(msgspec.Struct, frozen=True):
    """What a stream, or the disk of a server, holds and may hold."""

    of: str
    """`JOBS`, or `NATS muster-nats-0`."""
    used: int
    """Bytes."""
    most: int
    """How many there may be; 0 without a bound."""
    remedy: str

    @property
    def short(self) -> bool:
        """Whether it is time to make more."""
        return self.most > 0 and self.used >= FULL * self.most

    @property
    def risk(self) -> str:
        """One sentence that stays the same while more is used."""
        return f"{self.of}: at least {FULL:.0%} of the {size(self.most)} that it may have are used; {self.remedy}"


def of_stream(stream: Stream) -> Room:
    remedy = f"raise max_bytes with `nats stream edit {stream.name}`: a full log takes no event"
    return Room(stream.name, stream.bytes, max(stream.config.get("max_bytes") or 0, 0), remedy)


def size(bytes_: float) -> str:
    """For people."""
    for unit in ("B", "KiB", "MiB"):
        if bytes_ < 1024:
            return f"{bytes_:.0f} {unit}"
        bytes_ /= 1024
    return f"{bytes_:.1f} GiB"
