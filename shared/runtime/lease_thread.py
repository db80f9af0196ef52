"""The thread that renews the lease, with an event loop of its own.

A long callback of the working loop, such as the decoding of a large list, delays no renewal.  A working loop that
stalls makes its replica unready, and `lease.py` offers the lease to a standby replica.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from threading import Thread
from typing import Any, Self, TypeVar

from shared.runtime.lease import Lease

T = TypeVar("T")

STALL_SECONDS = 2.0
"""A loop whose last heartbeat is this old has stalled."""

HEARTBEAT_SECONDS = 0.5
"""Seconds between two heartbeats of a loop."""


class LeaseThread:
    """An event loop in a thread of its own, while the working loop is in this context."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="lease", daemon=True)
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

    def stalled(self) -> str:
        """Why the working loop counts as stalled; empty while it runs."""
        seconds = time.monotonic() - self._moved
        return f"the event loop has stalled for {seconds:.0f} s" if seconds >= STALL_SECONDS else ""

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


class ThreadedLease:
    """The lease as the working loop sees it; the other loop renews it."""

    def __init__(self, lease: Lease, thread: LeaseThread) -> None:
        self._lease = lease
        self._thread = thread
        self._known = 0
        """The term of the lease that the working loop was told of."""

    @property
    def trouble(self) -> str:
        """Why the log refused the last request for the lease; empty if it did not."""
        return self._lease.trouble

    def held(self) -> bool:
        """True if this replica holds the lease and the working loop was told so."""
        return self._known == self._lease.term and self._lease.held()

    async def keep(self, acquired: Callable[[], Coroutine[None, None, None]]) -> None:
        """Acquire and renew the lease for ever; call `acquired` in this loop after each acquisition."""
        home = asyncio.get_running_loop()

        async def here() -> None:
            owning = acquired()
            # From here on `held` is true: the synchronous part of `acquired` is done.
            self._known = self._lease.term
            await owning

        async def there() -> None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(here(), home))

        await self._thread.run(self._lease.keep(there))

    async def release(self) -> None:
        await self._thread.run(self._lease.release())
