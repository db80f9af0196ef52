"""The watcher's facts: what it saw in Kubernetes, and which timers expired."""

from typing import Literal

from shared.job.chain import Head
from shared.job.events.event import Event
from shared.job.naming import Uid
from shared.job.spec import JobSpec, Problem, ScaleKind, ScaleSpec
from shared.job.views import Actor, ChildView, Count, PodView, Reached, Slots


class JobObserved(Event, frozen=True, tag="JobObserved"):
    """The resource exists in this generation, with a spec or the problems of an invalid one."""

    kind: str
    api_version: str
    generation: int
    version: int
    epoch: int = 0
    spec: JobSpec | None = None
    problems: tuple[Problem, ...] = ()
    by: tuple[Actor, ...] = ()
    """Who changed it since the last record; empty if that cannot be told for certain."""
    writes: tuple[int, ...] = ()
    """The resource versions that these changes made, 0 for the creation; empty if one of them is not known."""
    blank: bool = False
    """The resource of this version has no status."""
    labels: tuple[tuple[str, str], ...] | None = None
    """The resource's labels, by name; those beyond 32 of them and 2 KiB are left out.  None: not recorded yet."""


class JobRelabelled(Event, frozen=True, tag="JobRelabelled"):
    """The resource's labels changed, and nothing else; once a minute at most."""

    version: int
    labels: tuple[tuple[str, str], ...] | None = None
    """As those of `JobObserved`."""
    by: tuple[Actor, ...] = ()
    """Who changed them since the last record; empty if that cannot be told for certain."""


class JobDeleting(Event, frozen=True, tag="JobDeleting"):
    """The resource has a deletion timestamp and waits for a finalizer or a grace period."""

    version: int
    orphan: bool = False
    """True if the deletion leaves the children alone (`--cascade=orphan`)."""
    finalizers: tuple[str, ...] = ()
    """The finalizers that it waited for when it was first seen."""


class JobGone(Event, frozen=True, tag="JobGone"):
    """The API server answered that no resource with this uid exists."""

    version: int = 0
    reason: str = "Deleted"


class JobOfAnother(Event, frozen=True, tag="JobOfAnother"):
    """Another operator began this job; Muster waits until a person confirms that this operator is gone."""

    phase: str
    """The phase in that operator's status."""
    reason: str = "BegunByAnother"
    obstacle: str = ""
    """Why the job cannot be taken over as it is, for the user; empty if nothing hinders."""
    kind: str = ""
    """The kind of a job of which the log has no other event."""
    api_version: str = ""


class JobAdopted(Event, frozen=True, tag="JobAdopted"):
    """A history begins, or goes on, with a job that already runs: after an accepted loss, or taken over from another
    operator.
    """

    source: str
    """`AcceptedLoss`, or `AnotherOperator`."""
    attempt: int = 0
    restarts: int = 0
    slots: tuple[Slots, ...] = ()
    """Slots that have a pod, running or ended, or will get one."""
    next_index: int = 0
    """The highest worker index that is there or lost, plus one."""
    reason: str = "Adopted"
    lost: tuple[Slots, ...] = ()
    """Slots whose pod vanished while the watcher was down."""
    size: int = 0
    """The wanted number of workers; 0 means as many as `slots` has."""
    members: tuple[tuple[int, int], ...] = ()
    """Worker indices that were in use, as inclusive ranges."""
    phase: Literal["", "Succeeded", "Failed"] = ""
    """The phase of a job that had ended; empty for a job that goes on."""
    start_time: str = ""
    completion_time: str = ""
    conditions: tuple[Reached, ...] = ()
    counts: tuple[Count, ...] = ()
    """The numbers of pods of a job that had ended: its pods may be gone."""


class PodsObserved(Event, frozen=True, tag="PodsObserved"):
    """The present state of these pods."""

    pods: tuple[PodView, ...]
    epoch: int = 0


class PodsGone(Event, frozen=True, tag="PodsGone"):
    """Pods with these uids no longer exist."""

    uids: tuple[Uid, ...]


class LauncherLost(Event, frozen=True, tag="LauncherLost"):
    """The launcher vanished before its end was seen."""

    uid: Uid
    reason: str = "LauncherLost"


class ChildrenObserved(Event, frozen=True, tag="ChildrenObserved"):
    """The present state of these objects."""

    children: tuple[ChildView, ...]
    epoch: int = 0


class ChildGone(Event, frozen=True, tag="ChildGone"):
    """An object no longer exists."""

    kind: str
    name: str
    uid: Uid


class ScaleRequested(Event, frozen=True, tag="ScaleRequested"):
    """A scale request exists.

    The watcher repeats the event with the owner's uid once it has one: without what the log has, the spec or the
    problems.
    """

    kind: ScaleKind
    name: str
    uid: Uid
    version: int = 0
    owner: Uid = Uid("")
    spec: ScaleSpec | None = None
    problems: tuple[Problem, ...] = ()
    by: tuple[Actor, ...] = ()
    """Who created it; empty if that cannot be told for certain."""


class ScaleRequestGone(Event, frozen=True, tag="ScaleRequestGone"):
    """A request was deleted, moved to the history of the job that it waited for (`Bound`), or ran in a history that
    was lost (`HistoryLost`).
    """

    uid: Uid
    reason: str = "Deleted"


class DisruptionNoticed(Event, frozen=True, tag="DisruptionNoticed"):
    """The node of these pods will be removed."""

    node: str
    uids: tuple[Uid, ...]
    reason: str
    seconds: int = 0
    """Seconds until the node goes; 0 if it may go at any moment."""


class NodeLost(Event, frozen=True, tag="NodeLost"):
    """The node of these pods is not Ready or unreachable; it may come back."""

    node: str
    uids: tuple[Uid, ...]
    reason: str
    """`NodeUnreachable` or `NodeNotReady`."""
    since: str = ""
    """Since when it is so, by the API server; empty if only the pods show it."""
    force_after: int | None = None
    """The setting: seconds after its grace period when a terminating pod is deleted by force; None for never."""


class NodeBack(Event, frozen=True, tag="NodeBack"):
    """The node of these pods is Ready again, or is no longer about to go."""

    node: str
    uids: tuple[Uid, ...]
    stays: bool = False
    """True if the notice that it goes was withdrawn."""


class ProgressReported(Event, frozen=True, tag="ProgressReported"):
    """A process of the training said how far it is; where it is silent, what it said before still holds."""

    pod: Uid
    """The pod whose token the report came with."""
    attempt: int
    step: int | None = None
    """The last step that is done."""
    total: int | None = None
    """The number of steps that the training has."""
    percentage: int | None = None
    """0 to 100."""
    remaining: int | None = None
    """Seconds to its end, as the training estimates them."""
    metrics: tuple[tuple[str, str], ...] = ()
    """Names and values as the training wrote them, the first `MOST_METRICS`."""
    waited: int = 0
    """Whole seconds since the report came: reports between two of these events are merged."""
    backwards: bool = False
    """True for a report that was refused: the step is done already, and the group has not changed since."""


class CheckpointTaken(Event, frozen=True, tag="CheckpointTaken"):
    """The training can begin again behind this step."""

    step: int
    pod: Uid
    source: str
    """`Report`, or `TerminationMessage`."""


class TimePassed(Event, frozen=True, tag="TimePassed"):
    """A timer of `timing.next_due` expired."""

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
    """`OtherLog`, `BeyondTheEnd`, `HashMismatch`, or `HistoryLost`: the log lacks a job that began earlier."""
    kind: str = ""
    """The kind of a job of which the log has no other event."""
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


class HistoryAccepted(Event, frozen=True, tag="HistoryAccepted"):
    """A person accepted that the log does not lead to this head; the services act on the job again."""

    sequence: int
    hash: str


Fact = (
    JobObserved
    | JobRelabelled
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
    | NodeLost
    | NodeBack
    | ProgressReported
    | CheckpointTaken
    | TimePassed
    | HistoryBroken
    | HistoryDisputed
    | HistoryAccepted
)
"""All facts of this author; `catalog` takes them from here."""
