"""The log server's clock as a reader knows it.  Pure: this process' monotonic clock is an argument.

Nodes' clocks may be hours apart, and both ends of a promise may be written on different nodes.  The server's clock
stamps every event and every answer, so that it alone measures them.
"""


class ServerClock:
    def __init__(self) -> None:
        self._ahead: float | None = None
        """By how much the server's clock is ahead of the monotonic one, at least."""

    def note(self, stamped: float, monotonic: float) -> None:
        """An answer arrived that the server had stamped; the newest counts, because its clock may be set."""
        self._ahead = stamped - monotonic

    def now(self, monotonic: float) -> float | None:
        """Seconds since 1970 by the server's clock, late by the way of its newest answer; None before the first."""
        return None if self._ahead is None else self._ahead + monotonic
