"""The wanted size of a job, and the queue of requests that change it: what each asks for, and its progress.  Pure."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from shared.job.conditions import Condition
from shared.job.naming import Slot, Uid
from shared.job.sorted_set import SortedSet
from shared.job.spec import Problem, ScaleKind, ScaleSpec
from shared.job.text import counted, in_a_row
from shared.job.views import Actor, Member

RequestPhase = Literal["Pending", "Scaling", "Succeeded", "Failed"]

TIMED_OUT = "TimedOut"
"""The reason of a `ScriptFinished` or `DrainChecked` whose command timed out."""


MOST_FINISHED = 32
"""As many requests stay in a job's state that are over and have no object any more: a job may live for years."""


class Script(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The one run of a request's script."""

    started: int
    """The sequence of the decision to run it."""
    timeout: int
    """Seconds."""
    ended: int = 0
    """The sequence at which its end became known; 0 before."""
    failure: str = ""
    """The reason of its failure; empty if it succeeded."""
    exit_code: int | None = None


class DrainLook(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The newest check of whether the launcher still uses leaving workers."""

    at: int
    """The sequence of its `DrainChecked`."""
    count: int
    """The number of checks so far."""
    in_use: tuple[int, ...] = ()
    unknown: str = ""
    """Why the check has no result; empty if it has one."""

    @property
    def again(self) -> bool:
        """True if another check may have another result."""
        return bool(self.in_use) or self.unknown == TIMED_OUT


class Request(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A ScaleIn or ScaleOut, or an edit of the job's size.  It outlives its object."""

    uid: Uid
    name: str
    kind: ScaleKind
    order: int
    """The sequence of the request's first event in this history."""
    version: int = 0
    """The resourceVersion in its newest event."""
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
    """The version of the hosts files with its change; 0 before the point of no return."""
    seen: int = 0
    """The sequence at which that version was seen in the cluster; 0 before."""
    released: bool = False
    forced: int = 0
    """The sequence at which workers in use were released; 0 if that did not happen."""
    gone: int = 0
    """The sequence at which its object was deleted; 0 while it exists."""
    before: int = 0
    """The number of workers when the request was accepted."""
    after: int = 0
    """The number of workers that it asks for; 0 before its acceptance."""
    replaced: int = 0
    """The number of added workers that were replaced before all were Ready."""
    resize: int | None = None
    """The size that an edit of the job asks for; an edit has no object of its own."""
    script: Script | None = None
    """None before its script starts, and for a request without one."""
    look: DrainLook | None = None
    by: tuple[Actor, ...] = ()
    """The clients that asked for it; empty if they are not known for certain."""
    conditions: tuple[Condition, ...] = ()

    @property
    def waits_since(self) -> int:
        """The sequence that its deadline counts from: anew after its script, and after a forced drain."""
        return max(self.accepted, self.script.ended if self.script is not None else 0, self.forced)

    @property
    def sizes(self) -> str:
        """`2 -> 4 workers`; empty before its acceptance."""
        return f"{self.before} -> {counted(self.after, 'worker')}" if self.after else ""

    @property
    def wish(self) -> str:
        """`2 -> 4 workers, by kubectl-edit`: the sizes and who asked for them, if that is known."""
        names = in_a_row([*map(str, self.by)])
        return f"{self.sizes}, by {names}" if self.sizes and names else self.sizes

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def finished(self) -> bool:
        """True if no rule asks for the request any more, and no object shows it."""
        leaves = self.kind == "ScaleIn" and self.published and not self.released
        return self.over and not self.shown and not leaves

    @property
    def shown(self) -> bool:
        """True if the request has an object whose status people can read."""
        return not self.gone and self.resize is None


class Scaling(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The scale requests of a job; at most one is carried out at a time."""

    size: int = 0
    """The wanted number of workers, with which a restart begins.  Requests change it, losses do not."""
    least: int = 0
    """The minimum of a job that names none, while its resource has the size that requests led to; 0 otherwise."""
    requests: Mapping[Uid, Request] = {}
    """In the order first seen."""
    open: Uid = Uid("")
    """The request that is being carried out; empty if there is none."""

    @property
    def open_request(self) -> Request | None:
        """The request that is being carried out, if any."""
        return self.requests.get(self.open)

    @property
    def next_request(self) -> Request | None:
        """The first waiting request in the order of the log."""
        return next((request for request in self.requests.values() if request.phase == "Pending"), None)

    @property
    def arriving(self) -> SortedSet[Slot]:
        """The workers that the open request adds, until its point of no return."""
        request = self.open_request
        return request.added if request is not None and not request.published else SortedSet()
