"""What the watcher saw in Kubernetes, and that time passed: facts alone; it decides nothing."""

from typing import Literal

from shared.job.chain import Head
from shared.job.events.event import Event
from shared.job.naming import Uid
from shared.job.spec import JobSpec, Problem, ScaleKind, ScaleSpec
from shared.job.views import ChildView, Count, PodView, Reached, Slots


class JobObserved(Event, frozen=True, tag="JobObserved"):
    """The resource is there in this generation: what it asks for, or why that cannot be acted upon."""

    kind: str
    api_version: str
    generation: int
    version: int
    epoch: int = 0
    spec: JobSpec | None = None
    problems: tuple[Problem, ...] = ()


class JobDeleting(Event, frozen=True, tag="JobDeleting"):
    """Somebody deleted the resource and it waits for a finalizer or a grace period."""

    version: int
    orphan: bool = False
    """True: its children shall stay."""


class JobGone(Event, frozen=True, tag="JobGone"):
    """The resource with this uid is no more: its own GET said so."""

    version: int = 0
    reason: str = "Deleted"


class JobOfAnother(Event, frozen=True, tag="JobOfAnother"):
    """Another operator began this job; nothing is done for it before a person says that this operator is gone."""

    phase: str
    """What that operator's status says of it."""
    reason: str = "BegunByAnother"


class JobAdopted(Event, frozen=True, tag="JobAdopted"):
    """A history begins in the middle: after an accepted loss, or taken over from another operator."""

    source: str
    """`AcceptedLoss`, or `AnotherOperator`."""
    attempt: int = 0
    restarts: int = 0
    slots: tuple[Slots, ...] = ()
    """Where pods are, whether they ended or not, or shall be made."""
    next_index: int = 0
    reason: str = "Adopted"
    lost: tuple[Slots, ...] = ()
    """Where a pod should be that is not there: it was lost while nobody looked."""
    size: int = 0
    """How many workers it shall have; 0 is as many as `slots` has."""
    members: tuple[tuple[int, int], ...] = ()
    """Worker indices that were in use, as inclusive ranges."""
    phase: Literal["", "Succeeded", "Failed"] = ""
    """The end that it had reached; empty while it goes on."""
    start_time: str = ""
    completion_time: str = ""
    conditions: tuple[Reached, ...] = ()
    counts: tuple[Count, ...] = ()
    """Of a job that had ended: its pods may be gone."""


class PodsObserved(Event, frozen=True, tag="PodsObserved"):
    """These pods are now so."""

    pods: tuple[PodView, ...]
    epoch: int = 0


class PodsGone(Event, frozen=True, tag="PodsGone"):
    """Pods with these uids are no more."""

    uids: tuple[Uid, ...]


class LauncherLost(Event, frozen=True, tag="LauncherLost"):
    """The launcher vanished before its end was seen."""

    uid: Uid
    reason: str = "LauncherLost"


class ChildrenObserved(Event, frozen=True, tag="ChildrenObserved"):
    """These objects are now so."""

    children: tuple[ChildView, ...]
    epoch: int = 0


class ChildGone(Event, frozen=True, tag="ChildGone"):
    """An object is no more."""

    kind: str
    name: str
    uid: Uid


class ScaleRequested(Event, frozen=True, tag="ScaleRequested"):
    """A scale request is there; repeated with the owner's uid once it has one."""

    kind: ScaleKind
    name: str
    uid: Uid
    version: int = 0
    owner: Uid = Uid("")
    spec: ScaleSpec | None = None
    problems: tuple[Problem, ...] = ()


class ScaleRequestGone(Event, frozen=True, tag="ScaleRequestGone"):
    """A request was deleted, or left this history for that of the job it waited for (`Bound`)."""

    uid: Uid
    reason: str = "Deleted"


class DisruptionNoticed(Event, frozen=True, tag="DisruptionNoticed"):
    """The node of these pods is about to go."""

    node: str
    uids: tuple[Uid, ...]
    reason: str


class TimePassed(Event, frozen=True, tag="TimePassed"):
    """A timer of `timing.next_due` ran out."""

    anchor: int
    timer: str


class HistoryBroken(Event, frozen=True, tag="HistoryBroken"):
    """The resource or the checkpoint names an event that this log lacks.

    Every service holds the job until `muster history accept`.
    """

    log: str
    sequence: int
    hash: str
    reason: str
    """`OtherLog`, `BeyondTheEnd`, `HashMismatch`, or `HistoryLost`: the log has no event of a job that has a past."""
    kind: str = ""
    """Of a job of which the log has nothing else, so that people can name it."""
    api_version: str = ""


class HistoryDisputed(Event, frozen=True, tag="HistoryDisputed"):
    """The log and the checkpoint agree with each other, and the resource shows another head.

    Every service holds the job, and no side is overwritten, until `muster history accept`.
    """

    theirs: Head
    """The head in the resource."""
    ours: Head
    """The head in the checkpoint, to which the log leads."""
    reason: str = "HistoryDisputed"


class HeadForged(Event, frozen=True, tag="HeadForged"):
    """The head in the resource was taken for a forgery, and status wrote it anew.

    Release 0.1 recorded it; since then such a head is `HistoryDisputed`.
    """

    log: str
    sequence: int
    hash: str


class HistoryAccepted(Event, frozen=True, tag="HistoryAccepted"):
    """A person accepted that this head, which raised the doubt, is not in the log: the log goes on without it."""

    sequence: int
    hash: str


Fact = (
    JobObserved
    | JobDeleting
    | JobGone
    | JobOfAnother
    | JobAdopted
    | PodsObserved
    | PodsGone
    | LauncherLost
    | ChildrenObserved
    | ChildGone
    | ScaleRequested
    | ScaleRequestGone
    | DisruptionNoticed
    | TimePassed
    | HistoryBroken
    | HistoryDisputed
    | HeadForged
    | HistoryAccepted
)
