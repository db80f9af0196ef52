"""Trouble on demand for a cluster in memory: calls that fail, watches that break."""

from collections.abc import Callable

import msgspec

from shared.errors import Transient, Trouble


class Fault(msgspec.Struct, frozen=True):
    error: Trouble
    verb: str
    plural: str
    applied: bool


class Faults:
    """Calls that will fail."""

    def __init__(self) -> None:
        self._planned: list[Fault] = []

    def fail_next(self, verb: str, error: Trouble, *, plural: str = "", times: int = 1, applied: bool = False) -> None:
        """The next `times` calls of `verb` (on `plural`, or on anything) raise `error`.

        `applied` means that the cluster does what was asked and only the answer is lost.
        """
        self._planned += [Fault(error, verb, plural, applied)] * times

    def next(self, verb: str, plural: str) -> Fault | None:
        """The fault of this call, if one was planned."""
        for at, fault in enumerate(self._planned):
            if fault.verb == verb and fault.plural in ("", plural):
                return self._planned.pop(at)
        return None


class Outage:
    """What concerns all clients at once."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.reason = ""
        """Not empty while the cluster cannot be reached."""
        self.cuts = 0
        self.bookmarks = 0
        self._wake = wake

    def begin(self, reason: str = "ConnectionRefused") -> None:
        """Nobody reaches the cluster: calls fail, watches are blind.  What the cluster holds may go on changing."""
        self.reason = reason
        self._wake()

    def end(self) -> None:
        self.reason = ""
        self._wake()

    def cut_watches(self) -> None:
        """Every watch breaks once, and goes on where it was (or lists again, after `store.compact()`)."""
        self.cuts += 1
        self._wake()

    def bookmark(self) -> None:
        """Every watch says that it is alive, as it would about once a minute."""
        self.bookmarks += 1
        self._wake()

    def check(self, verb: str) -> None:
        if self.reason:
            raise Transient(f"{verb}: the cluster cannot be reached: {self.reason}")
