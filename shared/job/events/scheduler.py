"""The scheduler's decisions on slots, attempts and expiry, and its facts about Secrets, which no watch shows."""

from shared.job.events.event import Decided, Event
from shared.job.naming import Uid
from shared.job.views import Slots


class SecretMade(Event, frozen=True, tag="SecretMade"):
    """The Secret with the ssh keys of an attempt exists."""

    attempt: int
    uid: Uid


class SecretGone(Event, frozen=True, tag="SecretGone"):
    """The Secret with the ssh keys of an attempt was deleted."""

    attempt: int


class AutoscalerMade(Event, frozen=True, tag="AutoscalerMade"):
    """The HorizontalPodAutoscaler with the metrics of the job exists."""

    uid: Uid


class AutoscalerGone(Event, frozen=True, tag="AutoscalerGone"):
    """The HorizontalPodAutoscaler of the job was deleted."""


class SlotsAssigned(Decided, frozen=True, tag="SlotsAssigned"):
    """These slots exist from now on; the scheduler creates one pod in each."""

    slots: tuple[Slots, ...]
    reason: str = ""
    replaces: tuple[Slots, ...] = ()
    """Spent worker slots that these replace, in ascending order of their indices."""
    gang: int = 0
    """How many of the first pods of an attempt have to find places together; 0 if each may alone."""


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


Fact = SecretMade | SecretGone | AutoscalerMade | AutoscalerGone
Decision = SlotsAssigned | SlotsReleased | JobRestarted | JobExpired
"""All decisions of this author; `catalog` takes them from here."""
