"""Watches in tests: read with a bound, and with a clock and waits that belong to the test."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from shared.cluster.reflector import Pace

PATIENCE = 30.0
"""Seconds that anything expected may take: two on a quiet machine, many on one that is busy with other tests."""


async def next_of(watch: AsyncIterator[Any]) -> Any:
    """What the watch says next."""
    return await asyncio.wait_for(anext(watch), PATIENCE)


async def take(watch: AsyncIterator[Any], count: int) -> list[Any]:
    return [await next_of(watch) for _ in range(count)]


class Hurry:
    """A pace without waiting: its clock goes on only by what was waited for, and by `pass_time`."""

    def __init__(self, *, idle: float = 60.0) -> None:
        self.now = 1_000.0
        self.waits: list[float] = []
        self.pace = Pace(idle=idle, random=lambda: 0.5, clock=lambda: self.now, sleep=self._wait)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    async def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)
