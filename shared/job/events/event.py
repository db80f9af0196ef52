"""What every event is, who there is to write one, and where one stands."""

from typing import Literal

import msgspec

Author = Literal["setup", "watcher", "scheduler", "scaler", "status"]


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", gc=False):
    """One line of a job's history.  The envelope (id, sequence, time, subject, basis) is kept apart.

    Events, and the values in them and in a job, hold no cycles: the garbage collector need not look at them.
    """


class Decided(Event, frozen=True, kw_only=True):
    """A decision: an event that a service chose to write."""

    because: int = 0
    """The sequence of the earlier event of this job that made the decision (`shared.job.because`).

    0 where none is known, and in decisions that release 0.1 wrote.
    """


class At(msgspec.Struct, frozen=True, gc=False):
    """Where and when an event stands: what `evolve` needs of the envelope."""

    sequence: int
    time: str
