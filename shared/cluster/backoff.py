"""How long to wait before trying again."""

from collections.abc import Callable

RESET_AFTER_SECONDS = 120.0
"""Without a failure for this long, the next one is a first one."""


class Backoff:
    """Doubling bounds with full jitter: clients that failed together do not come back together."""

    def __init__(
        self, *, first: float, longest: float, clock: Callable[[], float], random: Callable[[], float]
    ) -> None:
        """Seconds; `random` gives numbers from 0 to 1."""
        self._first = first
        self._longest = longest
        self._clock = clock
        self._random = random
        self._bound = first
        self._failed_at = -RESET_AFTER_SECONDS

    def next(self, retry_after: float | None = None) -> float:
        """Seconds to wait after one more failure; `retry_after` is the least that the other side asked for."""
        now = self._clock()
        if now - self._failed_at > RESET_AFTER_SECONDS:
            self._bound = self._first
        bound, self._bound, self._failed_at = self._bound, min(self._bound * 2, self._longest), now
        return (retry_after or 0.0) + bound * self._random()
