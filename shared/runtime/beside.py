"""The lease beside the loop that works: a thread with an event loop of its own renews it.

A callback that takes long, such as the decoding of a large list, delays no renewal.  A working loop that stands still
for good is not well, and `ownership.py` offers its lease to a standby replica.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar

from shared.runtime.ownership import Lease

T = TypeVar("T")

STILL_SECONDS = 2.0
"""A loop that has not moved for so long stands still."""

BEAT_SECONDS = 0.5
"""How often a loop says that it moves."""


class Beside:
    """An event loop in a thread of its own, beside the loop that enters this context."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="beside", daemon=True)
        self._moved = time.monotonic()

    async def __aenter__(self) -> Self:
        self._thread.start()
        self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._beating.cancel()
        await self.run(_end_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the other loop and return what it returns; a cancellation of this call cancels `work`."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def still(self) -> str:
        """Says that the loop that entered this context stands still; empty while it moves."""
        seconds = time.monotonic() - self._moved
        return f"the event loop has stood still for {seconds:.0f} s" if seconds >= STILL_SECONDS else ""

    async def _beat(self) -> None:
        while True:
            self._moved = time.monotonic()
            await asyncio.sleep(BEAT_SECONDS)


async def _end_all() -> None:
    """Wait for the end of whatever still runs on this loop, cancelled."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        # A second cancellation would break off the clean-up that the first one began.
        if not task.cancelling():
            task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Ownership:
    """A lease that the other loop keeps, as the loop that works sees it."""

    def __init__(self, lease: Lease, beside: Beside) -> None:
        self._lease = lease
        self._beside = beside
        self._known = 0
        """The term of the lease of which the loop that works knows."""

    @property
    def trouble(self) -> str:
        """Why the log refused the last request for the lease; empty when it did not."""
        return self._lease.trouble

    def held(self) -> bool:
        """The lease is ours, and the loop that works was told so."""
        return self._known == self._lease.term and self._lease.held()

    async def keep(self, acquired: Callable[[], Coroutine[None, None, None]]) -> None:
        """Keep the lease for ever; `acquired` is called in this loop each time the lease becomes ours."""
        home = asyncio.get_running_loop()

        async def here() -> None:
            owning = acquired()
            # From here on this replica may act, and what `acquired` did at once is done.
            self._known = self._lease.term
            await owning

        async def there() -> None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(here(), home))

        await self._beside.run(self._lease.keep(there))

    async def release(self) -> None:
        """Give the lease up at once."""
        await self._beside.run(self._lease.release())
