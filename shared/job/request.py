"""A ScaleIn or ScaleOut as the history knows it: what it asks for, how far it came, its script and its drain."""

from typing import Literal

import msgspec

from shared.job.conditions import Condition
from shared.job.naming import Slot, Uid
from shared.job.sorted_set import SortedSet
from shared.job.spec import Problem, ScaleKind, ScaleSpec
from shared.job.views import Member

RequestPhase = Literal["Pending", "Scaling", "Succeeded", "Failed"]

TIMED_OUT = "TimedOut"
"""The reason of a `ScriptFinished` or `DrainChecked` whose command did not answer in its time."""


class Script(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The one run of a request's script."""

    started: int
    """The sequence of the decision to run it."""
    timeout: int
    """Seconds."""
    ended: int = 0
    """The sequence at which its end became known; 0 before."""
    failure: str = ""
    """Why it did not end well; empty when it did."""
    exit_code: int | None = None


class DrainLook(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The newest look at whether the launcher still uses leaving workers."""

    at: int
    """Its sequence."""
    count: int
    """How many there were."""
    in_use: tuple[int, ...] = ()
    unknown: str = ""
    """Why nobody can know; empty when somebody does."""

    @property
    def again(self) -> bool:
        """Another look may bring another answer."""
        return bool(self.in_use) or self.unknown == TIMED_OUT


class Request(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A ScaleIn or ScaleOut.  Kept after its object is gone: its outcome is history."""

    uid: Uid
    name: str
    kind: ScaleKind
    order: int
    """The sequence at which this history first heard of it."""
    version: int = 0
    """Of the view that was recorded last."""
    owner: Uid = Uid("")
    spec: ScaleSpec | None = None
    problems: tuple[Problem, ...] = ()
    phase: RequestPhase = "Pending"
    reason: str = ""
    accepted: int = 0
    """The sequence of its acceptance; 0 before."""
    added: SortedSet[Slot] = SortedSet()
    leaving: tuple[Member, ...] = ()
    deadline: int = 0
    drain: int = 0
    published: int = 0
    """The version of the hosts files that carries its change; 0 before the point of no return."""
    seen: int = 0
    """The sequence at which that version was seen in the cluster; 0 before."""
    released: bool = False
    forced: int = 0
    """The sequence at which its workers were released although they were in use; 0 when they were not."""
    gone: int = 0
    """The sequence at which its object was deleted; 0 while it is there."""
    replaced: int = 0
    """How many of the workers that it brings were replaced before all were Ready."""
    resize: int | None = None
    """The size that an edit of the job itself asks for; no object stands behind such a request."""
    script: Script | None = None
    """None before its script ran, and when it has none."""
    look: DrainLook | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def waits_since(self) -> int:
        """What its deadline counts from: its script has a time of its own, and so have pods after a forced drain."""
        return max(self.accepted, self.script.ended if self.script is not None else 0, self.forced)

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def shown(self) -> bool:
        """There is an object that people can be told by."""
        return not self.gone and self.resize is None
