"""The links of causal chains: an event, what it means in plain words, and the earlier one that caused it.  Pure."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from shared.job.fold import History
from shared.job.naming import JobKey, Slot, Uid
from shared.job.request import Request
from shared.job.state import Job

_DOUBTS = ("HistoryBroken", "HistoryDisputed", "HistoryAccepted")


class Link(msgspec.Struct, frozen=True, eq=False):
    """Compared by identity: one event may have a part in several chains, with other words in each."""

    sequence: int
    time: str
    type: str
    author: str
    text: str
    cause: "Link | None" = None
    unknown: str = ""
    """What would come next and is not in the log."""

    def says(self, text: str, cause: "Link | None" = None, *, unknown: str = "") -> "Link":
        """The same event with these words."""
        assert cause is None or cause.sequence < self.sequence, f"{cause} cannot have caused {self}"
        return Link(self.sequence, self.time, self.type, self.author, text, cause, unknown)

    def chain(self) -> Iterator["Link"]:
        """This one, its cause, the cause of that, ... to the first."""
        link: Link | None = self
        while link is not None:
            yield link
            link = link.cause

    def as_json(self) -> dict[str, Any]:
        """As `muster why --json` prints it."""
        return {
            "sequence": self.sequence,
            "time": self.time,
            "type": self.type,
            "author": self.author,
            "text": self.text,
            "cause": self.cause.sequence if self.cause else None,
            "unknown": self.unknown,
        }


def newest(links: Iterable[Link | None]) -> Link | None:
    """The newest of them; of those that one event tells of, the last."""
    known = [link for link in links if link is not None]
    return max(reversed(known), key=lambda link: link.sequence, default=None)


class Links:
    """One job's fold, and a link for each event that says something about the job, a pod or a request."""

    def __init__(self, key: JobKey) -> None:
        self.history = History(key)
        self.at: dict[int, Link] = {}
        """By sequence; of an event about several pods that of the last."""
        self.newest: dict[str, Link] = {}
        """By type of event."""
        self.lives: dict[Slot, list[Link]] = {}
        """Everything about a slot, in log order."""
        self.last: dict[Slot, Link] = {}
        """What happened to a slot or its pod last: the cause of what happens next."""
        self.requests: dict[Uid, list[Link]] = {}
        """What each request came to, in log order."""
        self.known: dict[Uid, Request] = {}
        """Every request there ever was, as it was last: one that left before its turn is in the job no more."""
        self.phase: Link | None = None

    @property
    def job(self) -> Job:
        return self.history.job

    @property
    def doubt(self) -> Link | None:
        """The newest word on whether the log is whole."""
        return newest(self.newest.get(kind) for kind in _DOUBTS)
