"""The one event that several services write, each under its own author: its effect was refused."""

from shared.job.events.event import Event
from shared.job.reasons import REFUSALS
from shared.job.views import Slots

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
