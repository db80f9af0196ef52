"""What every event has: its base, the authors and its place in the log; and the events of several services, of an
administrator and of the audit service.
"""

from typing import Literal, NamedTuple

import msgspec

from shared.job.naming import Slot
from shared.job.reasons import REFUSALS
from shared.job.views import Slots

Author = Literal["setup", "watcher", "scheduler", "scaler", "status", "audit"]


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", gc=False):
    """One event of a job's history.  The envelope (id, sequence, time, subject, basis) is separate.

    Events, their values and jobs have no reference cycles, so the garbage collector skips them (`gc=False`).
    """


class Decided(Event, frozen=True, kw_only=True):
    """A decision of a service."""

    because: int = 0
    """The sequence of the event of this job that made the decision; 0 if none is known."""
    slot: Slot | None = None
    """Of an event about several pods, the slot of the one that counts."""
    release: str = ""
    """The release of the service, and its settings that decide and are not at their default: `0.1.0 MUSTER_DRAIN=5`."""


class Cause(NamedTuple):
    """An earlier event of a job, which made a decision; for an event about pods, the slot of the pod that counts."""

    sequence: int
    slot: Slot | None = None


UNKNOWN = Cause(0)


class At(msgspec.Struct, frozen=True, gc=False):
    """The sequence and the time of an event: the part of the envelope that `evolve` needs."""

    sequence: int
    time: str
    """By its author's clock, for people."""
    logged: str = ""
    """When the log stored it, by its server's clock, by which promises are measured; empty where it is not known."""

    @property
    def clock(self) -> str:
        """Its time of day, for people: `12:00:05 UTC`."""
        return f"{self.time[11:19]} UTC"


PERMANENT = tuple(word for word, reason in REFUSALS.items() if reason.final)
"""The reasons that no retry cures; a refusal for any other may pass."""


class EffectRefused(Event, frozen=True, tag="EffectRefused"):
    """What the author tried and was refused; the retry waits for the back-off."""

    effect: str
    reason: str
    slots: tuple[Slots, ...] = ()
    field: str = ""
    permanent: bool = False
    """True: its reason is one of `PERMANENT` (an invalid pod), or no status can be made of the job."""
    message: str = ""
    """The API server's own words about the first slot, at most 1 KiB, without the values of the pod's environment."""


class LogCreated(Event, frozen=True, tag="LogCreated"):
    """The log begins; this event's id is the log's identity."""


class EventDisowned(Event, frozen=True, tag="EventDisowned"):
    """An event that holds its job counts for nothing: none of Muster's services wrote it, or wrote it well.

    Where the event at `sequence` holds nothing, the job is held: readers of two releases would differ.  The hash of the
    event stays in the chain.
    """

    sequence: int
    reason: str
    """The administrator's words, at most 1 KiB."""


class ChangeAttributed(Event, frozen=True, tag="ChangeAttributed"):
    """The API server's audit names who made a change that the watcher recorded."""

    of: int
    """The sequence of the watcher's event: a `JobObserved`, `ScaleRequested`, `JobDeleting` or `JobGone`."""
    user: str
    """The user whom the API server authenticated."""
    write: int = 0
    """Of a `JobObserved` one of its `writes`: several may be recorded together.  0 for a creation and a deletion."""
    groups: tuple[str, ...] = ()
    """The user's groups, the first 50."""
    acting_as: str = ""
    """The user whom this user impersonated; empty without."""
    agent: str = ""
    """The `User-Agent` of the request, which the client chose itself."""
    audit: str = ""
    """The id of the request in the API server's audit, cut; a client can choose it with the header `Audit-ID`."""
