"""The scaler's decisions on scale requests and hosts files, and its facts about commands in launchers."""

from shared.job.events.event import Decided, Event
from shared.job.naming import Uid
from shared.job.spec import ScaleKind
from shared.job.views import Member, Slots


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


class ScriptStarted(Decided, frozen=True, tag="ScriptStarted"):
    """The scaler runs the request's script, once."""

    request: Uid
    timeout: int


class ScaleAccepted(Decided, frozen=True, tag="ScaleAccepted"):
    """A request is carried out from now on, with these workers added or leaving."""

    request: Uid
    kind: ScaleKind
    added: tuple[Slots, ...] = ()
    leaving: tuple[Member, ...] = ()
    deadline: int = 60
    """Seconds until the request fails."""
    drain: int = 10
    """Seconds that leaving workers get after the hosts files changed, if the launcher cannot be checked."""


class ScaleRejected(Decided, frozen=True, tag="ScaleRejected"):
    """A request is not carried out; the job is unchanged."""

    request: Uid
    reason: str
    message: str = ""
    """The reason's sentence with its values; empty if the reason alone says it."""


class HostsPublished(Decided, frozen=True, tag="HostsPublished"):
    """The members of the next hosts files.  It is the point of no return of a scale request."""

    version: int
    members: tuple[tuple[int, int], ...]
    """Worker indices as inclusive ranges."""
    request: Uid = Uid("")
    reason: str = ""
    drain: int = 0
    """Seconds that disrupted workers get once hosts files without them are in place."""


class WorkersReleased(Decided, frozen=True, tag="WorkersReleased"):
    """The launcher no longer uses these workers; the scheduler deletes their pods."""

    request: Uid
    slots: tuple[Slots, ...]
    reason: str = ""


class ScaleSucceeded(Decided, frozen=True, tag="ScaleSucceeded"):
    """The request was carried out."""

    request: Uid
    reason: str


class ScaleFailed(Decided, frozen=True, tag="ScaleFailed"):
    """The request ended without its result; `released` has the slots that it added."""

    request: Uid
    reason: str
    released: tuple[Slots, ...] = ()
    remains: str = ""
    """What stays of it, as the rest of a sentence; empty if nothing does."""
    awaited: str = ""
    """Which pod it waited for until its time was over, and why that was not Ready; empty for any other failure."""


class ScaleCancelled(Decided, frozen=True, tag="ScaleCancelled"):
    """The request ended with its deletion or with its job's end; `released` has the slots that it added."""

    request: Uid
    reason: str
    released: tuple[Slots, ...] = ()


Fact = ScriptFinished | DrainChecked
Decision = (
    ScriptStarted
    | ScaleAccepted
    | ScaleRejected
    | HostsPublished
    | WorkersReleased
    | ScaleSucceeded
    | ScaleFailed
    | ScaleCancelled
)
"""All decisions of this author; `catalog` takes them from here."""
