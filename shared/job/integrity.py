"""Integrity: whether the log of a job is the one that its resource and its checkpoint tell of.  Pure.

The watcher compares them and records what it finds; every service holds a job whose history is in doubt, until a
person accepts the head that raised the doubt.  Called by `evolve`.
"""

from typing import ClassVar, Literal

import msgspec

from shared.job.chain import Head, checkpoint_of
from shared.job.events.event import At
from shared.job.events.watcher import HeadForged, HistoryAccepted, HistoryBroken, HistoryDisputed

replace = msgspec.structs.replace


class Broken(msgspec.Struct, frozen=True, gc=False):
    """The resource or the checkpoint names an event that this log lacks."""

    word: ClassVar[Literal["HistoryBroken"]] = "HistoryBroken"

    log: str
    """The log that the head is of."""
    head: Head
    reason: str

    @property
    def sentence(self) -> str:
        """What people read."""
        return f"this log does not lead to {checkpoint_of(self.log, self.head)} ({self.reason})"


class Disputed(msgspec.Struct, frozen=True, gc=False):
    """The log and the checkpoint agree with each other, and the resource shows another head."""

    word: ClassVar[Literal["HistoryDisputed"]] = "HistoryDisputed"

    head: Head
    """The head in the resource."""
    ours: Head
    """The head in the checkpoint, to which the log leads."""

    @property
    def sentence(self) -> str:
        """What people read."""
        return f"the resource shows the head {self.head}, the log and the checkpoint have {self.ours}"


class Integrity(msgspec.Struct, frozen=True, gc=False):
    """What is known of a history besides its events."""

    doubt: Broken | Disputed | None = None
    """Why every service holds the job; None while the history is whole."""
    accepted: tuple[Head, ...] = ()
    """Heads that a person accepted, in that order: none of them raises a doubt again."""
    repair: int = 0
    """The sequence at which a head was noticed, or accepted, that has to leave the resource before ours can come."""

    @property
    def word(self) -> Literal["HistoryBroken", "HistoryDisputed"] | None:
        """The doubt in one word; None while the history is whole."""
        return self.doubt.word if self.doubt is not None else None

    @property
    def sentence(self) -> str:
        """Why every service holds the job, for people; empty while the history is whole."""
        return self.doubt.sentence if self.doubt is not None else ""


def judged(
    known: Integrity, event: HistoryBroken | HistoryDisputed | HeadForged | HistoryAccepted, at: At
) -> Integrity:
    """The integrity of a history after one more word on it."""
    match event:
        case HistoryBroken():
            return _doubted(known, Broken(event.log, Head(event.sequence, event.hash), event.reason))
        case HistoryDisputed():
            return _doubted(known, Disputed(event.theirs, event.ours))
        case HeadForged():
            return replace(known, repair=at.sequence)
        case HistoryAccepted():
            head = Head(event.sequence, event.hash)
            settled = known.doubt is not None and known.doubt.head == head
            return Integrity(
                doubt=None if settled else known.doubt,
                accepted=known.accepted if head in known.accepted else (*known.accepted, head),
                # It stands in the resource, and may be further than this log will be for long.
                repair=at.sequence,
            )


def _doubted(known: Integrity, doubt: Broken | Disputed) -> Integrity:
    return known if doubt.head in known.accepted else replace(known, doubt=doubt)
