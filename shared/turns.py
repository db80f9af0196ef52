"""Bounds how many work at once; those who wait take turns by flow, such as their namespace, so that no flow starves.

Within a flow it is first come, first served.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class Turns:
    """`async with turns.turn(namespace)`; at most `limit` at once."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """It may change; a lower one holds for those who come next."""
        self.running = 0
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """By flow, in the order of their turns."""

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def turn(self, flow: Hashable) -> AsyncIterator[None]:
        """Wait for this flow's turn, and for a place."""
        await self._enter(flow)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, flow: Hashable) -> None:
        if self.running < self.limit and not self._waiting:
            self.running += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(flow, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                # The place came together with the cancellation: the next one gets it.
                self._leave()
            raise

    def _leave(self) -> None:
        self.running -= 1
        while self._waiting and self.running < self.limit:
            flow, places = next(iter(self._waiting.items()))
            del self._waiting[flow]
            place = places.popleft()
            if places:
                # The flow's next turn comes after those of all others.
                self._waiting[flow] = places
            if not place.done():
                self.running += 1
                place.set_result(None)
