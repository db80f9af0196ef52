"""Exponential back-off: the wait after a failure, doubled each time up to a longest one.  Pure."""

from collections.abc import Callable
from typing import TypeVar

RESET_AFTER_SECONDS = 120.0
"""After so long without a failure the back-off starts again."""

MOST_DOUBLINGS = 16
"""The wait stays small enough to compute for any number of failures."""

Seconds = TypeVar("Seconds", int, float)


def doubled(first: Seconds, failures: int, longest: Seconds) -> Seconds:
    """Seconds to wait after so many consecutive failures: 0, `first`, twice that, ... up to `longest`."""
    return min(first * 2 ** min(failures - 1, MOST_DOUBLINGS), longest) if failures else first * 0


class Backoff:
    """Full jitter below these waits: clients that failed together do not come back together."""

    def __init__(
        self, *, first: float, longest: float, clock: Callable[[], float], random: Callable[[], float]
    ) -> None:
        """`first` and `longest` are in seconds; `random` gives numbers from 0 to 1."""
        self._first = first
        self._longest = longest
        self._clock = clock
        self._random = random
        self._failures = 0
        self._failed_at = 0.0

    def next(self, retry_after: float | None = None) -> float:
        """Seconds to wait after one more failure; at least the `retry_after` that the server asked for."""
        now = self._clock()
        if now - self._failed_at > RESET_AFTER_SECONDS:
            self._failures = 0
        self._failures, self._failed_at = self._failures + 1, now
        return (retry_after or 0.0) + doubled(self._first, self._failures, self._longest) * self._random()
