"""Integrity: whether the heads in a job's resource and checkpoint agree with its log.  Pure.

The watcher compares them and records the result.  Every service holds a job whose history is in doubt, until a person
accepts the head that raised the doubt.
"""

from typing import ClassVar, Literal

import msgspec

from shared.job.chain import Head, checkpoint_of, shown_in
from shared.job.events.event import At
from shared.job.events.watcher import HistoryAccepted, HistoryBroken, HistoryDisputed

replace = msgspec.structs.replace


class Broken(msgspec.Struct, frozen=True, gc=False):
    """The resource or the checkpoint names an event that this log lacks."""

    word: ClassVar[Literal["HistoryBroken"]] = "HistoryBroken"

    log: str
    """The identity of the head's log."""
    head: Head
    reason: str

    @property
    def sentence(self) -> str:
        """The doubt as a sentence for people."""
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
        """The doubt as a sentence for people."""
        return f"the resource shows the head {self.head}, the log and the checkpoint have {self.ours}"


class Integrity(msgspec.Struct, frozen=True, gc=False):
    """The doubt about a history, and the heads that a person accepted."""

    doubt: Broken | Disputed | None = None
    """Why every service holds the job; None while the history is whole."""
    accepted: tuple[Head, ...] = ()
    """Accepted heads, in the order of their acceptance: none of them raises a doubt again."""
    repair: int = 0
    """The sequence at which a foreign head was accepted; the status service replaces it in the resource."""

    @property
    def word(self) -> Literal["HistoryBroken", "HistoryDisputed"] | None:
        """The doubt's reason; None while there is no doubt."""
        return self.doubt.word if self.doubt is not None else None

    @property
    def sentence(self) -> str:
        """Why every service holds the job, for people; empty while there is no doubt."""
        return self.doubt.sentence if self.doubt is not None else ""

    def leads_to(self, status: object, own: Head) -> bool:
        """True unless a resource's status shows a newer head than this fold's `own`, which no person accepted.

        Otherwise this fold lags, or a restored log lost events: the status may show an end that the log lacks.
        """
        _, shown = shown_in(status)
        return shown is None or shown == own or shown.sequence < own.sequence or shown in self.accepted


def evolved(known: Integrity, event: HistoryBroken | HistoryDisputed | HistoryAccepted, at: At) -> Integrity:
    """The integrity after one more event about it."""
    match event:
        case HistoryBroken():
            return _doubted(known, Broken(event.log, Head(event.sequence, event.hash), event.reason))
        case HistoryDisputed():
            return _doubted(known, Disputed(event.theirs, event.ours))
        case HistoryAccepted():
            head = Head(event.sequence, event.hash)
            settled = known.doubt is not None and known.doubt.head == head
            return Integrity(
                doubt=None if settled else known.doubt,
                accepted=known.accepted if head in known.accepted else (*known.accepted, head),
                # The accepted head is in the resource, and its sequence may be above this log's.
                repair=at.sequence,
            )


def _doubted(known: Integrity, doubt: Broken | Disputed) -> Integrity:
    return known if doubt.head in known.accepted else replace(known, doubt=doubt)
