"""Bounds the requests in flight: fewer after a 429 of the API server, more as it recovers.

There is no fixed rate: the API server has its own priority and fairness.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

MOST_IN_FLIGHT = 64
"""Requests of one client at once; more gain nothing on a server of ordinary size."""


class Limiter:
    """First come, first served.  A 429 halves the bound; each round of successes adds one."""

    def __init__(self, most: int = MOST_IN_FLIGHT) -> None:
        self.limit = most
        self._most = most
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._begun = 0
        self._begun_at_last_cut = 0
        self._successes = 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[int]:
        """Wait for a place among the requests in flight; give the request's number, for `throttled`."""
        await self._enter()
        self._begun += 1
        try:
            yield self._begun
        finally:
            self._running -= 1
            self._admit()

    def succeeded(self) -> None:
        self._successes += 1
        if self._successes >= self.limit:
            self._successes = 0
            self.limit = min(self.limit + 1, self._most)

    def throttled(self, number: int) -> None:
        """Request `number` got a 429."""
        # A burst of 429s halves the bound once: requests sent before the last cut do not count.
        if number > self._begun_at_last_cut:
            self._begun_at_last_cut = self._begun
            self._successes = 0
            self.limit = max(self.limit // 2, 1)

    async def _enter(self) -> None:
        if self._running < self.limit and not self._waiting:
            self._running += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The place came together with the cancellation: the next request gets it.
                self._running -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self._running < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self._running += 1
                turn.set_result(None)
