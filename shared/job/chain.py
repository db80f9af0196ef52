"""The proof that a history is whole: a rolling hash over a job's events, confirmed by every decision.  Pure.

h = SHA-256(h before | subject | event id | time | body as stored), over facts and decisions alike.
A decision carries its *basis*, `<sequence>:<hash>` of the last event folded when it was taken; a reader that
cannot confirm it has lost, changed or reordered something.
"""

from hashlib import sha256

import msgspec

START = b"\0" * 32
"""The hash of a history without events."""


class Head(msgspec.Struct, frozen=True):
    """Where a history stands: a sequence of the log and the hash over everything up to it."""

    sequence: int
    hash: str

    def __str__(self) -> str:
        return f"{self.sequence}:{self.hash}"


def link(before: bytes, subject: str, event_id: str, time: str, body: bytes) -> bytes:
    """The hash after one more event."""
    # The zero byte cannot stand in any of the parts before the body, so no two events read alike.
    return sha256(before + f"{subject}\0{event_id}\0{time}\0".encode() + body).digest()


def basis(sequence: int, digest: bytes) -> str:
    """How a decision names what it was taken on."""
    return f"{sequence}:{digest.hex()}"


def checkpoint_of(log: str, head: Head) -> str:
    """How a head is kept beside the log of this identity."""
    return f"{log}/{head}"


def checkpointed(text: str) -> tuple[str, Head | None]:
    """The log and the head that a checkpoint names; nothing for what is none."""
    log, _, head = text.partition("/")
    sequence, _, digest = head.partition(":")
    return (log, Head(int(sequence), digest)) if log and sequence.isdecimal() and digest else ("", None)
