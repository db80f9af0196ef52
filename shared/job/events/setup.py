"""What an administrator writes, with credentials of its own."""

from shared.job.events.event import Event


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
