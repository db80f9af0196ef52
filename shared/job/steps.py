"""The steps that `decide` returns: decisions to record and effects to carry out, as data.  Pure."""

from math import inf
from typing import ClassVar

import msgspec

from shared.job.events.catalog import AnyEvent
from shared.job.events.event import UNKNOWN, Cause, Decided


class Record(msgspec.Struct, frozen=True, eq=False):
    """Append a decision to the log; its effects follow once the service has read it back."""

    event: AnyEvent
    because: Cause = UNKNOWN
    """What made the decision; the same decision for another cause is the same step."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.event == other.event

    def __hash__(self) -> int:
        return hash(self.event)

    def explained(self, release: str = "") -> AnyEvent:
        """The event with what made it and who decided, as it is appended."""
        if not isinstance(self.event, Decided):
            return self.event
        because, slot = self.because
        return msgspec.structs.replace(self.event, because=because, slot=slot, release=release)


class Effect(msgspec.Struct, frozen=True):
    """A change of the cluster that is safe to repeat: if it is there already, the effect succeeds."""

    settle: ClassVar[float] = 5.0
    """Seconds after its success before `decide` returning the same effect repeats it.

    The watcher usually sees the outcome within a tenth of a second; the repetition covers a lost one.
    """

    latest: ClassVar[float] = inf
    """Seconds after which its target, if it is still to be changed, is late, and the service says so."""

    bulk: ClassVar[bool] = False
    """True if many of its kind may be wanted at once: these then leave the API server room for everything else."""

    apart: ClassVar[bool] = False
    """True if another program decides how long it takes: it does not use one of the places for effects in flight.

    The shell bounds its time.
    """

    @property
    def once(self) -> int:
        """The sequence of the decision behind an effect that must not happen twice; 0 for all others.

        Only the process that recorded the decision carries it out, once; after a crash it does not happen.
        """
        return 0

    def can_wait(self, last: "Effect") -> bool:
        """True if nobody acts upon what it changes after `last`, so that a later effect on its target may include it.

        It is for documents that change often and are written whole: the API server gets fewer, newer versions.
        """
        return False

    @property
    def lasting(self) -> bool:
        """True if it makes an object that lasts as long as its job: one that vanishes is made again, but not in a loop.

        The same effect is then `settle` seconds apart, even if `decide` did not return it in between.
        """
        return False

    changes: ClassVar[str]
    """The object that it changes, with fields of the effect in it, such as `pod/{0.uid}`."""

    @property
    def target(self) -> str:
        """The object that it changes: a job has one effect in flight for each target."""
        return self.changes.format(self)


Step = Record | Effect
