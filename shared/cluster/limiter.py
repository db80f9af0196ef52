"""How many requests may be under way at once: fewer when the API server says "too many", more as it recovers.

No fixed rate: the API server's own priority and fairness does the rest.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

MOST_IN_FLIGHT = 64
"""Requests of one client at once; more of them gain nothing on a server of ordinary size."""


class Limiter:
    """First come, first served.  Halved on 429, one more after each round of successes."""

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
        """A place among the requests in flight; gives the number under which to report how it went."""
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
        """Request `number` was told that there are too many."""
        # The 429s of one burst tell one thing once: those sent before the last cut say nothing about it.
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
                # The turn came together with the cancellation: it is the next one's.
                self._running -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self._running < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self._running += 1
                turn.set_result(None)
