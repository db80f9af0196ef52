"""The status service's effects on the cluster, as data."""

from collections.abc import Mapping
from math import inf
from typing import ClassVar

import msgspec

from shared.job.attempt import Tally
from shared.job.conditions import Condition
from shared.job.naming import Uid
from shared.job.sorted_set import SortedSet
from shared.job.steps import Effect


class News(msgspec.Struct, frozen=True):
    """What people and programs act upon in a status; the rest of it are counts that move."""

    phase: str = ""
    generation: int = 0
    conditions: tuple[Condition, ...] = ()
    members: SortedSet[int] = SortedSet()
    tallies: Mapping[str, Tally] = {}
    waits_for: str = ""
    """Why a request waits; the reason of what a job waits for."""


class PatchStatus(Effect, frozen=True):
    """Write the whole status of one object; the shell adds the head of the history."""

    changes: ClassVar[str] = "status/{0.uid}"
    settle: ClassVar[float] = inf
    """Never repeated: only the status service writes it, and the next document replaces it."""

    latest: ClassVar[float] = 12.0
    """What can wait waits for 10 seconds at the most, and a slow API server takes its time for the write."""

    api_version: str
    kind: str
    name: str
    uid: Uid
    document: bytes
    """Canonical JSON; null marks fields to remove."""
    repair: int = 0
    """The sequence at which a foreign head was accepted, which is overwritten; 0 if there is none."""
    over: bool = False
    """True if the job or the request has ended: this document usually is its last."""
    news: News = News()

    def can_wait(self, last: Effect) -> bool:
        return isinstance(last, PatchStatus) and last.news == self.news and last.repair == self.repair


class Announce(Effect, frozen=True):
    """Create a Kubernetes Event, named after its log event: a repetition finds that it exists."""

    changes: ClassVar[str] = "event/{0.uid}/{0.sequence}/{0.reason}"
    settle: ClassVar[float] = inf
    bulk: ClassVar[bool] = True

    api_version: str
    kind: str
    name: str
    uid: Uid
    sequence: int
    time: str
    reason: str
    message: str
    warning: bool = False
    logged: str = ""
    """When the log stored it: its age does not depend on its author's clock."""
