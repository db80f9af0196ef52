"""The links of causal chains: an event, its plain words, and the earlier event that caused it.  Pure."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from shared.job.fold import History
from shared.job.naming import JobKey, Slot, Uid
from shared.job.scaling import Request
from shared.job.state import Job

_DOUBTS = ("HistoryBroken", "HistoryDisputed", "HistoryAccepted")


class Link(msgspec.Struct, frozen=True, eq=False):
    """One event in a chain; compared by identity, because an event may be in several chains with different words."""

    sequence: int
    time: str
    type: str
    author: str
    text: str
    cause: "Link | None" = None
    unknown: str = ""
    """The cause that must exist and is not in the log."""

    def says(self, text: str, cause: "Link | None" = None, *, unknown: str = "") -> "Link":
        """A link of the same event with these words."""
        assert cause is None or cause.sequence < self.sequence, f"{cause} cannot have caused {self}"
        return Link(self.sequence, self.time, self.type, self.author, text, cause, unknown)

    def chain(self) -> Iterator["Link"]:
        """This link, its cause, the cause of that, and so on."""
        link: Link | None = self
        while link is not None:
            yield link
            link = link.cause

    def as_json(self) -> dict[str, Any]:
        """The link as `muster why --json` prints it."""
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
    """The newest link; of several of one event, the last."""
    known = [link for link in links if link is not None]
    return max(reversed(known), key=lambda link: link.sequence, default=None)


class Links:
    """One job's fold, and a link for each event with news of the job, a pod or a request."""

    def __init__(self, key: JobKey) -> None:
        self.history = History(key)
        self.at: dict[int, Link] = {}
        """By sequence; for an event about several pods, the link of the last pod."""
        self.newest: dict[str, Link] = {}
        """The newest link of each type of event."""
        self.lives: dict[Slot, list[Link]] = {}
        """All links of a slot, in log order."""
        self.last: dict[Slot, Link] = {}
        """The newest link of a slot or its pod, which is the cause of its next one."""
        self.successors: dict[Slot, Slot] = {}
        """The slots that took the place of others."""
        self.requests: dict[Uid, list[Link]] = {}
        """All links of a request, in log order."""
        self.known: dict[Uid, Request] = {}
        """The last state of every request: the job forgets one that was deleted before its turn."""
        self.phase: Link | None = None
        self.times: dict[int, str] = {}
        """The time of each event."""
        self.deletion = ""
        """That the resource was deleted, and by whom if that is known; empty before."""

    @property
    def job(self) -> Job:
        return self.history.job

    @property
    def doubt(self) -> Link | None:
        """The newest link about the integrity of the history."""
        return newest(self.newest.get(kind) for kind in _DOUBTS)
