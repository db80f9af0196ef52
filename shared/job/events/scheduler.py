"""What the scheduler decides: which places exist, when a job begins again and when its resource goes."""

from shared.job.events.event import Event
from shared.job.views import Slots


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


Decision = SlotsAssigned | SlotsReleased | JobRestarted | JobExpired
