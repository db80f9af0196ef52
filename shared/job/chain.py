"""Proves that a history is complete: each decision confirms a hash chain over the job's events.  Pure.

h = SHA-256(previous h | all that an event is: sequence, subject, id, time, basis, optional, type, source, body), over
facts and decisions alike, without those for people alone: who made a change may be removed, and the chain holds.
A decision has a *basis*: `<sequence>:<hash>` of the last event that its author had folded.  If a reader's own hash
differs, an event was lost, changed or reordered.
"""

from hashlib import sha256

import msgspec

from shared.eventlog import Stored
from shared.untrusted import whole_number

START = b"\0" * 32
"""The hash of a history without events."""


class Head(msgspec.Struct, frozen=True):
    """The end of a history: the sequence of its last event and the hash after it."""

    sequence: int
    hash: str

    def __str__(self) -> str:
        return f"{self.sequence}:{self.hash}"


def link(before: bytes, event: Stored) -> bytes:
    """The hash after one more event."""
    envelope = (
        f"{event.sequence}\0{event.subject}\0{event.event_id}\0{event.time}\0{event.basis}\0{event.optional:d}\0"
        f"{event.type}\0{event.source}\0"
    )
    # No part before the body can contain a zero byte, so different events give different input.
    return sha256(before + envelope.encode() + event.body).digest()


def checkpoint_of(log: str, head: Head) -> str:
    """The value of a checkpoint: the identity of the log and the head."""
    return f"{log}/{head}"


def checkpointed(text: str) -> tuple[str, Head | None]:
    """The log and the head that a checkpoint names; `("", None)` for a malformed one."""
    log, _, head = text.partition("/")
    sequence, _, digest = head.partition(":")
    at = whole_number(sequence)
    return (log, Head(at, digest)) if log and at is not None and digest else ("", None)


def shown_in(status: object) -> tuple[str, Head | None]:
    """The log and the head that a resource's status shows; `("", None)` if it shows none that can be read."""
    match status:
        case {"history": {"log": str(log), "sequence": int(sequence), "hash": str(digest)}}:
            return log, Head(sequence, digest)
        case _:
            return "", None
