"""What the watcher sees of a job's resource, of scale requests and of nodes, reduced to what matters of it.  Pure."""

import msgspec

from shared.cluster.objects import Taint
from shared.frameworks.inheriting import Inherited
from shared.job.chain import Head
from shared.job.events.watcher import JobObserved
from shared.job.naming import JobKey, Uid
from shared.job.spec import Problem, ScaleKind, ScaleSpec


class ObservedJob(msgspec.Struct, frozen=True):
    """A job's resource as it is now."""

    key: JobKey
    observed: JobObserved
    deleting: bool
    orphan: bool
    log: str
    """The log that the head in its status names; empty without a head."""
    head: Head | None
    accept: str
    """The head whose loss a person accepted, `<sequence>:<hash>`."""
    reached: Inherited | None = None
    """What its status says, where that matters; None when it says nothing."""

    @property
    def inherited(self) -> Inherited | None:
        """The same where no head of ours is in it: another operator may have written it."""
        return self.reached if self.head is None else None


class ObservedRequest(msgspec.Struct, frozen=True):
    """A scale request as it is now."""

    kind: ScaleKind
    namespace: str
    name: str
    uid: Uid
    version: int
    created: str
    job: str
    """The job it names, or its own name when it names none that could be."""
    owner: Uid
    spec: ScaleSpec | None
    problems: tuple[Problem, ...]
    phase: str = ""
    """What its status says; believed only where the log that knew better was lost."""


class ObservedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it is now; one that stays is like any other."""

    reason: str = ""
    """Why it is about to go; empty when nothing says so."""
    fences: tuple[Taint, ...] = ()
    """What keeps pods off it that do not tolerate this."""
    gone: bool = False
    """It was deleted from under its pods."""
