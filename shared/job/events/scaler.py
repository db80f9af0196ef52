"""What the scaler decides about scale requests and hosts files, and what it alone can know of a launcher."""

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
    """The request's script runs, this once."""

    request: Uid
    timeout: int


class ScaleAccepted(Decided, frozen=True, tag="ScaleAccepted"):
    """A request is carried out from now on: these workers come, or these leave."""

    request: Uid
    kind: ScaleKind
    added: tuple[Slots, ...] = ()
    leaving: tuple[Member, ...] = ()
    deadline: int = 60
    """Seconds until waiting ends."""
    drain: int = 10
    """Seconds that leaving workers get after the hosts file changed, where nobody can look inside."""


class ScaleRejected(Decided, frozen=True, tag="ScaleRejected"):
    """A request cannot be carried out; nothing was touched."""

    request: Uid
    reason: str


class HostsPublished(Decided, frozen=True, tag="HostsPublished"):
    """The members are these; the hosts file follows.  Of a scale request it is the point of no return."""

    version: int
    members: tuple[tuple[int, int], ...]
    """Worker indices as inclusive ranges."""
    request: Uid = Uid("")
    reason: str = ""
    drain: int = 0
    """Seconds that workers get once these files are in place, who leave them because their node is about to go."""


class WorkersReleased(Decided, frozen=True, tag="WorkersReleased"):
    """Leaving workers are no longer used; their pods go."""

    request: Uid
    slots: tuple[Slots, ...]
    reason: str = ""


class ScaleSucceeded(Decided, frozen=True, tag="ScaleSucceeded"):
    """The request is done."""

    request: Uid
    reason: str


class ScaleFailed(Decided, frozen=True, tag="ScaleFailed"):
    """The request ended without what it asked for; `released` is what it gives back."""

    request: Uid
    reason: str
    released: tuple[Slots, ...] = ()


class ScaleCancelled(Decided, frozen=True, tag="ScaleCancelled"):
    """The request ended because it, or its job, went; `released` is what it gives back."""

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
