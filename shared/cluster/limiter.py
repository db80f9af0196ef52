"""Bounds the requests in flight: fewer after a 429 of the API server, more as it recovers.

There is no fixed rate.  The API server's own fairness is between its clients; between the namespaces of one client the
turns are.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared.turns import Turns

MOST_IN_FLIGHT = 32
"""Requests of one client at once; more gain nothing on a server of ordinary size."""


class Limiter:
    """A 429 halves the bound; each round of successes adds one."""

    def __init__(self, most: int = MOST_IN_FLIGHT) -> None:
        self._turns = Turns(most)
        self._most = most
        self._begun = 0
        self._begun_at_last_cut = 0
        self._successes = 0

    @property
    def limit(self) -> int:
        """How many requests may be in flight now."""
        return self._turns.limit

    @asynccontextmanager
    async def slot(self, namespace: str = "") -> AsyncIterator[int]:
        """Wait for a place among the requests in flight; give the request's number, for `throttled`."""
        async with self._turns.turn(namespace):
            self._begun += 1
            yield self._begun

    def succeeded(self) -> None:
        self._successes += 1
        if self._successes >= self.limit:
            self._successes = 0
            self._turns.limit = min(self.limit + 1, self._most)

    def throttled(self, number: int) -> None:
        """Request `number` got a 429."""
        # A burst of 429s halves the bound once: requests sent before the last cut do not count.
        if number > self._begun_at_last_cut:
            self._begun_at_last_cut = self._begun
            self._successes = 0
            self._turns.limit = max(self.limit // 2, 1)
