"""An event loop in a thread of its own: for what goes on while the working loop is busy, the lease and the probes."""

import asyncio
import time
from collections.abc import Coroutine
from threading import Thread
from typing import Any, Self, TypeVar

T = TypeVar("T")

STALL_SECONDS = 2.0
"""A loop whose last heartbeat is this old has stalled."""

HEARTBEAT_SECONDS = 0.5
"""Seconds between two heartbeats of a loop."""


class LoopThread:
    """An event loop in a thread of its own, while the working loop is in this context."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._moved = time.monotonic()

    async def __aenter__(self) -> Self:
        self._thread.start()
        self._beating = asyncio.create_task(self._heartbeat())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._beating.cancel()
        await self.run(_end_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the other loop and return what it returns; a cancellation of this call cancels `work`."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def stalled(self, after: float = STALL_SECONDS) -> str:
        """Why the working loop counts as stalled, `after` so many seconds; empty while it runs."""
        seconds = time.monotonic() - self._moved
        return f"the event loop has stalled for {seconds:.0f} s" if seconds >= after else ""

    async def _heartbeat(self) -> None:
        while True:
            self._moved = time.monotonic()
            await asyncio.sleep(HEARTBEAT_SECONDS)


async def _end_all() -> None:
    """Cancel the tasks of this loop and wait for their end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        # A second cancellation would break off the clean-up that the first one began.
        if not task.cancelling():
            task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
