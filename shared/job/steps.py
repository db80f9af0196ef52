"""What `decide` answers with: decisions to record and effects to carry out, as plain data.  Pure."""

from typing import ClassVar

import msgspec

from shared.job.events.catalog import AnyEvent


class Record(msgspec.Struct, frozen=True):
    """Append this to the log; act on it when it was read back."""

    event: AnyEvent


class Effect(msgspec.Struct, frozen=True):
    """A wish, safe to repeat: what is so already counts as done."""

    settle: ClassVar[float] = 5.0
    """Seconds after its success before the same wish is carried out again, should it still be there.

    The outcome is usually seen within a tenth of a second; a lost one is noticed by the repetition.
    """

    rests: ClassVar[bool] = False
    """Whether its target is left alone for a moment afterwards, and only then changed again.

    For what changes often and is written whole: a busy API server gets fewer, newer versions of it.
    """

    apart: ClassVar[bool] = False
    """Whether it may take as long as somebody else likes, so that no other effect waits for its place or its end.

    Whoever carries it out bounds it.
    """

    @property
    def once(self) -> int:
        """The sequence of the decision that it follows, of an effect that must not happen twice; 0 of all others.

        Only the process that recorded this decision carries it out, and never again: after a crash nobody does.
        """
        return 0

    def urgent(self, last: "Effect") -> bool:
        """Whether it disturbs the rest of its target after `last`."""
        return False

    @property
    def target(self) -> str:
        """What it changes: one effect at a time per job and target."""
        # A Struct cannot be an abstract class; every effect says its own.
        raise NotImplementedError


Step = Record | Effect
