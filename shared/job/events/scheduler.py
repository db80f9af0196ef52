"""What the scheduler decides: which places exist, when a job begins again and when its resource goes."""

from shared.job.events.event import Decided
from shared.job.views import Slots


class SlotsAssigned(Decided, frozen=True, tag="SlotsAssigned"):
    """These places exist from now on; the scheduler keeps one pod in each."""

    slots: tuple[Slots, ...]
    reason: str = ""
    replaces: tuple[Slots, ...] = ()
    """Spent worker slots whose place these take, in ascending order of their indices."""


class SlotsReleased(Decided, frozen=True, tag="SlotsReleased"):
    """These places are no more; their pods go."""

    slots: tuple[Slots, ...]
    reason: str = ""


class JobRestarted(Decided, frozen=True, tag="JobRestarted"):
    """A new attempt begins once the old pods are gone."""

    attempt: int
    counted: bool = True
    reason: str = ""


class JobExpired(Decided, frozen=True, tag="JobExpired"):
    """Its time to live after the end ran out; the resource goes."""

    reason: str = "TTLExpired"


Decision = SlotsAssigned | SlotsReleased | JobRestarted | JobExpired
