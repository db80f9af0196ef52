"""Every fact and every decision there is, and who may say it.

Facts are what was seen or happened, decisions what was decided.  Both are written once and read for ever: a new
field has a default; fields are never renamed, retyped or removed; tags are history.
Events carry keys, numbers and reasons (CamelCase words), never an object, an environment value, a script or a secret.
"""

from typing import Literal

import msgspec

from shared.job.naming import Uid
from shared.job.spec import JobSpec, Problem, ScaleKind, ScaleSpec
from shared.job.views import ChildView, Count, Member, PodView, Reached, Slots

Author = Literal["setup", "watcher", "scheduler", "scaler", "status"]


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", gc=False):
    """One line of a job's history.  The envelope (id, sequence, time, subject, basis) is kept apart.

    Events, and the values in them and in a job, hold no cycles: the garbage collector need not look at them.
    """


# Facts.


class LogCreated(Event, frozen=True, tag="LogCreated"):
    """The log begins; this event's id is the log's identity."""


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
    """A head that was kept outside is not in this log; nobody acts on the job until a person accepts that."""

    log: str
    sequence: int
    hash: str
    reason: str


class HeadForged(Event, frozen=True, tag="HeadForged"):
    """The head in the resource is wrong and the checkpoint says so too; status may write it anew."""

    log: str
    sequence: int
    hash: str


class HistoryAccepted(Event, frozen=True, tag="HistoryAccepted"):
    """A person accepted the loss that this head shows."""

    sequence: int
    hash: str


class EffectRefused(Event, frozen=True, tag="EffectRefused"):
    """What the author tried and was refused; the retry waits for the back-off."""

    effect: str
    reason: str
    slots: tuple[Slots, ...] = ()
    field: str = ""
    permanent: bool = False
    """True: the same thing will be refused again whatever the time (an invalid pod)."""


class ScriptFinished(Event, frozen=True, tag="ScriptFinished"):
    """A request's script ended, or its end cannot be known."""

    request: Uid
    exit_code: int | None = None
    reason: str = ""


class DrainChecked(Event, frozen=True, tag="DrainChecked"):
    """Which leaving members the launcher still uses, or why that cannot be known."""

    request: Uid
    in_use: tuple[int, ...] = ()
    reason: str = ""


# Decisions.


class SlotsAssigned(Event, frozen=True, tag="SlotsAssigned"):
    """These places exist from now on; the scheduler keeps one pod in each."""

    slots: tuple[Slots, ...]
    reason: str = ""
    replaces: tuple[Slots, ...] = ()
    """Spent worker slots whose place these take, in ascending order of their indices."""


class SlotsReleased(Event, frozen=True, tag="SlotsReleased"):
    """These places are no more; their pods go."""

    slots: tuple[Slots, ...]
    reason: str = ""


class JobRestarted(Event, frozen=True, tag="JobRestarted"):
    """A new attempt begins once the old pods are gone."""

    attempt: int
    counted: bool = True
    reason: str = ""


class JobExpired(Event, frozen=True, tag="JobExpired"):
    """Its time to live after the end ran out; the resource goes."""

    reason: str = "TTLExpired"


class ScaleAccepted(Event, frozen=True, tag="ScaleAccepted"):
    """A request is carried out from now on: these workers come, or these leave."""

    request: Uid
    kind: ScaleKind
    added: tuple[Slots, ...] = ()
    leaving: tuple[Member, ...] = ()
    deadline: int = 60
    """Seconds until waiting ends."""
    drain: int = 10
    """Seconds that leaving workers get after the hosts file changed, where nobody can look inside."""


class ScaleRejected(Event, frozen=True, tag="ScaleRejected"):
    """A request cannot be carried out; nothing was touched."""

    request: Uid
    reason: str


class HostsPublished(Event, frozen=True, tag="HostsPublished"):
    """The members are these; the hosts file follows.  Of a scale request it is the point of no return."""

    version: int
    members: tuple[tuple[int, int], ...]
    """Worker indices as inclusive ranges."""
    request: Uid = Uid("")
    reason: str = ""
    drain: int = 0
    """Seconds that workers get once these files are in place, who leave them because their node is about to go."""


class ScriptStarted(Event, frozen=True, tag="ScriptStarted"):
    """The request's script runs, this once."""

    request: Uid
    timeout: int


class WorkersReleased(Event, frozen=True, tag="WorkersReleased"):
    """Leaving workers are no longer used; their pods go."""

    request: Uid
    slots: tuple[Slots, ...]
    reason: str = ""


class ScaleSucceeded(Event, frozen=True, tag="ScaleSucceeded"):
    """The request is done."""

    request: Uid
    reason: str


class ScaleFailed(Event, frozen=True, tag="ScaleFailed"):
    """The request ended without what it asked for; `released` is what it gives back."""

    request: Uid
    reason: str
    released: tuple[Slots, ...] = ()


class ScaleCancelled(Event, frozen=True, tag="ScaleCancelled"):
    """The request ended because it, or its job, went; `released` is what it gives back."""

    request: Uid
    reason: str
    released: tuple[Slots, ...] = ()


class PhaseEntered(Event, frozen=True):
    """The decisions of the status service: one per phase."""

    reason: str
    message: str = ""


class JobCreated(PhaseEntered, frozen=True, tag="JobCreated"):
    """The job is taken on."""


class JobRunning(PhaseEntered, frozen=True, tag="JobRunning"):
    """The launcher runs."""


class JobScaling(PhaseEntered, frozen=True, tag="JobScaling"):
    """A scale request is being carried out."""


class JobRestarting(PhaseEntered, frozen=True, tag="JobRestarting"):
    """The attempt failed and another one is due."""


class JobSuspended(PhaseEntered, frozen=True, tag="JobSuspended"):
    """A person asked for a pause."""


class JobSucceeded(PhaseEntered, frozen=True, tag="JobSucceeded"):
    """The launcher ended well."""


class JobFailed(PhaseEntered, frozen=True, tag="JobFailed"):
    """The job is over and did not do what it should."""


Fact = (
    LogCreated
    | JobObserved
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
    | HeadForged
    | HistoryAccepted
    | EffectRefused
    | ScriptFinished
    | DrainChecked
)
Decision = (
    SlotsAssigned
    | SlotsReleased
    | JobRestarted
    | JobExpired
    | ScriptStarted
    | ScaleAccepted
    | ScaleRejected
    | HostsPublished
    | WorkersReleased
    | ScaleSucceeded
    | ScaleFailed
    | ScaleCancelled
    | JobCreated
    | JobRunning
    | JobScaling
    | JobRestarting
    | JobSuspended
    | JobSucceeded
    | JobFailed
)
AnyEvent = Fact | Decision

_BY_AUTHORS: tuple[tuple[tuple[Author, ...], tuple[type[Event], ...]], ...] = (
    (("setup",), (LogCreated,)),
    (
        ("watcher",),
        (
            JobObserved,
            JobDeleting,
            JobGone,
            JobOfAnother,
            JobAdopted,
            PodsObserved,
            PodsGone,
            LauncherLost,
            ChildrenObserved,
            ChildGone,
            ScaleRequested,
            ScaleRequestGone,
            DisruptionNoticed,
            TimePassed,
            HistoryBroken,
            HeadForged,
            HistoryAccepted,
        ),
    ),
    (("scheduler",), (SlotsAssigned, SlotsReleased, JobRestarted, JobExpired)),
    (
        ("scaler",),
        (
            ScriptFinished,
            DrainChecked,
            ScriptStarted,
            ScaleAccepted,
            ScaleRejected,
            HostsPublished,
            WorkersReleased,
            ScaleSucceeded,
            ScaleFailed,
            ScaleCancelled,
        ),
    ),
    (("status",), (JobCreated, JobRunning, JobScaling, JobRestarting, JobSuspended, JobSucceeded, JobFailed)),
    (("scheduler", "scaler", "status"), (EffectRefused,)),
)

AUTHORS: dict[type[Event], frozenset[Author]] = {
    kind: frozenset(authors) for authors, kinds in _BY_AUTHORS for kind in kinds
}
"""Who may write what: the bus enforces the author in the subject, the fold that this author may write this type."""

FACTS: frozenset[type[Event]] = frozenset(Fact.__args__)
"""The types that go under `facts.`; all others are decisions under `jobs.`."""
