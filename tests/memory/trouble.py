"""Faults for a cluster in memory: calls that fail, watches that break."""

from collections.abc import Callable

import msgspec

from shared.errors import Transient, Trouble


class Fault(msgspec.Struct, frozen=True):
    error: Trouble
    verb: str
    plural: str
    applied: bool


class Faults:
    """The planned faults of calls."""

    def __init__(self) -> None:
        self._planned: list[Fault] = []

    def fail_next(self, verb: str, error: Trouble, *, plural: str = "", times: int = 1, applied: bool = False) -> None:
        """The next `times` calls of `verb` (on `plural`, or on anything) raise `error`.

        With `applied` the cluster carries the call out, and only the answer is lost.
        """
        self._planned += [Fault(error, verb, plural, applied)] * times

    def next(self, verb: str, plural: str) -> Fault | None:
        """The planned fault of this call, if any."""
        for at, fault in enumerate(self._planned):
            if fault.verb == verb and fault.plural in ("", plural):
                return self._planned.pop(at)
        return None


class Outage:
    """Faults of all clients at once."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.reason = ""
        """Not empty while the cluster cannot be reached."""
        self.cuts = 0
        self.bookmarks = 0
        self._wake = wake

    def begin(self, reason: str = "ConnectionRefused") -> None:
        """Make every call fail and every watch blind.  The store may still change."""
        self.reason = reason
        self._wake()

    def end(self) -> None:
        self.reason = ""
        self._wake()

    def cut_watches(self) -> None:
        """Break every watch once; it resumes at its version, or lists after `store.compact()`."""
        self.cuts += 1
        self._wake()

    def bookmark(self) -> None:
        """Send a bookmark to every watch, as an API server does about once a minute."""
        self.bookmarks += 1
        self._wake()

    def check(self, verb: str) -> None:
        if self.reason:
            raise Transient(f"{verb}: the cluster cannot be reached: {self.reason}")
