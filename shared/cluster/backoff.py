"""The back-off of clients of the API server."""

from collections.abc import Callable

RESET_AFTER_SECONDS = 120.0
"""After so long without a failure the back-off starts again."""


class Backoff:
    """Doubling bounds with full jitter: clients that failed together do not come back together."""

    def __init__(
        self, *, first: float, longest: float, clock: Callable[[], float], random: Callable[[], float]
    ) -> None:
        """`first` and `longest` are in seconds; `random` gives numbers from 0 to 1."""
        self._first = first
        self._longest = longest
        self._clock = clock
        self._random = random
        self._bound = first
        self._failed_at = -RESET_AFTER_SECONDS

    def next(self, retry_after: float | None = None) -> float:
        """Seconds to wait after one more failure; at least the `retry_after` that the server asked for."""
        now = self._clock()
        if now - self._failed_at > RESET_AFTER_SECONDS:
            self._bound = self._first
        bound, self._bound, self._failed_at = self._bound, min(self._bound * 2, self._longest), now
        return (retry_after or 0.0) + bound * self._random()
