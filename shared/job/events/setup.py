"""What `muster setup` writes, with an administrator's credentials: one event a log."""

from shared.job.events.event import Event


class LogCreated(Event, frozen=True, tag="LogCreated"):
    """The log begins; this event's id is the log's identity."""
