"""A history in the archive: its seal, and gzip of JSON Lines in one message, or in a few in order.  Pure.

The lines are those of `muster history --json`, the seal's is the last; `shared.telling.sealed` reads them.
"""

import gzip
import zlib
from collections.abc import Iterator
from io import BytesIO

import msgspec

from shared.eventlog.account import ARCHIVE
from shared.untrusted import MALFORMED

PART_BYTES = 512 * 1024
"""About the most compressed bytes of one message."""
_LINES_BYTES = 4 * 1024 * 1024
"""The most bytes of lines of one message."""
_MOST_BYTES = 2 * _LINES_BYTES
_LEVEL = 6


class Seal(msgspec.Struct, frozen=True):
    """What a `JobSealed` says: the history up to it is whole, and nothing follows."""

    first: int
    last: int
    count: int
    hash: str
    outcome: str = ""
    reason: str = ""


class Part(msgspec.Struct, frozen=True):
    """A message of the archive."""

    subject: str
    sequence: int
    """In the stream of the archive."""
    seal: Seal
    number: int
    """From one."""
    of: int
    row: bytes
    """The job as lists show it, as JSON."""
    body: bytes
    time: str
    """When it was stored."""
    forgotten: str = ""
    """Why a person had the history removed; empty if it is there."""

    @property
    def lines(self) -> list[bytes]:
        """Raises `ValueError` for bytes that are no lines."""
        try:
            return lines_in(self.body)
        except ValueError as error:
            raise ValueError(f"the message {self.sequence} of {ARCHIVE} is damaged: {error}") from error


def lines_in(body: bytes) -> list[bytes]:
    """The lines of a message.  Raises `ValueError` for bytes that are none."""
    try:
        with gzip.GzipFile(fileobj=BytesIO(body)) as packed:
            lines = packed.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(str(error)) from error
    if len(lines) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES} bytes")
    return lines.splitlines()


class Packing:
    """Lines on their way into bodies of messages: no more of them than one message has is in memory."""

    def __init__(self) -> None:
        self._bodies: list[bytes] = []
        self._lines: list[str] = []
        self._bytes = 0

    def add(self, line: str) -> None:
        size = len(line.encode())
        if self._lines and self._bytes + size > _LINES_BYTES:
            self._pack()
        self._lines.append(line)
        self._bytes += size

    def bodies(self) -> list[bytes]:
        """Those of all lines."""
        self._pack()
        return self._bodies

    def _pack(self) -> None:
        if self._lines:
            self._bodies += _compressed(self._lines)
        self._lines, self._bytes = [], 0


def _compressed(lines: list[str]) -> Iterator[bytes]:
    body = gzip.compress("".join(f"{line}\n" for line in lines).encode(), _LEVEL, mtime=0)
    if len(body) <= PART_BYTES or len(lines) == 1:
        yield body
    else:
        middle = len(lines) // 2
        yield from _compressed(lines[:middle])
        yield from _compressed(lines[middle:])


def seal_of(body: bytes) -> Seal:
    """The seal that an event's body has.  Raises `ValueError`."""
    try:
        return msgspec.json.decode(body, type=Seal)
    except MALFORMED as error:
        raise ValueError(f"no seal: {error}") from error
