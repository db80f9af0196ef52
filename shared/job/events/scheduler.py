"""The scheduler's decisions: which slots exist, when an attempt begins, when the resource expires."""

from shared.job.events.event import Decided
from shared.job.views import Slots


class SlotsAssigned(Decided, frozen=True, tag="SlotsAssigned"):
    """These slots exist from now on; the scheduler creates one pod in each."""

    slots: tuple[Slots, ...]
    reason: str = ""
    replaces: tuple[Slots, ...] = ()
    """Spent worker slots that these replace, in ascending order of their indices."""


class SlotsReleased(Decided, frozen=True, tag="SlotsReleased"):
    """These slots no longer exist; the scheduler deletes their pods."""

    slots: tuple[Slots, ...]
    reason: str = ""


class JobRestarted(Decided, frozen=True, tag="JobRestarted"):
    """A new attempt begins; it gets slots once the old pods are gone."""

    attempt: int
    counted: bool = True
    reason: str = ""


class JobExpired(Decided, frozen=True, tag="JobExpired"):
    """ttlSecondsAfterFinished is over; the scheduler deletes the resource."""

    reason: str = "TTLExpired"


Decision = SlotsAssigned | SlotsReleased | JobRestarted | JobExpired
"""All decisions of this author; `catalog` takes them from here."""
