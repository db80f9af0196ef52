"""The base of every event, the authors, and an event's place in the log."""

from typing import Literal

import msgspec

Author = Literal["setup", "watcher", "scheduler", "scaler", "status", "audit"]


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", gc=False):
    """One event of a job's history.  The envelope (id, sequence, time, subject, basis) is separate.

    Events, their values and jobs have no reference cycles, so the garbage collector skips them (`gc=False`).
    """


class Decided(Event, frozen=True, kw_only=True):
    """A decision of a service."""

    because: int = 0
    """The sequence of the event of this job that made the decision (`shared.job.because`); 0 if none is known."""


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
