"""The lease beside the loop that works: what that loop does, and that it stands still, is nothing to the renewals."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

import pytest

from shared.errors import Refused
from shared.eventlog.account import LEASES
from shared.runtime.lease import TTL_SECONDS, Lease, ThreadedLease
from shared.runtime.loop_thread import STALL_SECONDS, LoopThread
from tests.kit.tasks import beside
from tests.memory.eventlog import MemoryEventLog, MemoryJournal

pytestmark = pytest.mark.real_time

KEY = "scaler"


class Replica:
    """A process that keeps a lease beside its loop, and how often it became the owner."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.times = 0
        self.held_at_once: list[bool] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Replica"]:
        bucket = await MemoryEventLog(self.journal, user=KEY).bucket(LEASES)
        async with LoopThread("lease") as self.thread:
            self.lease = Lease(bucket, KEY, "a", clock=time.monotonic)
            self.owner = ThreadedLease(self.lease, self.thread)
            try:
                async with beside(self.owner.keep(self._acquired)):
                    yield self
            finally:
                await self.owner.release()

    def _acquired(self) -> Coroutine[None, None, None]:
        self.times += 1
        self.held_at_once.append(self.owner.held())
        return asyncio.sleep(0)

    async def until_held(self) -> None:
        async with asyncio.timeout(10):
            while not self.owner.held():
                await asyncio.sleep(0.01)


def stand_still(seconds: float) -> None:
    """One callback that takes so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1_000))


async def test_a_callback_that_takes_longer_than_a_lease_does_not_lose_it():
    async with Replica().running() as replica:
        await replica.until_held()
        stand_still(TTL_SECONDS * 1.5)
        assert replica.owner.held()
        await asyncio.sleep(0.1)
        assert replica.owner.held()
        assert replica.times == 1


async def test_a_loop_that_stands_still_says_so_until_it_moves_again():
    async with Replica().running() as replica:
        await replica.until_held()
        assert replica.thread.stalled() == ""
        stand_still(STALL_SECONDS + 0.2)
        assert "stalled" in replica.thread.stalled()
        await asyncio.sleep(0.05)
        assert replica.thread.stalled() == ""


async def test_the_lease_is_not_held_before_the_loop_that_works_was_told():
    async with Replica().running() as replica:
        # The keeping begins, and this loop hears of nothing more for a while.
        await asyncio.sleep(0)
        stand_still(0.3)
        assert replica.lease.held(), "the other loop has it by now"
        assert not replica.owner.held()
        await replica.until_held()
        assert replica.held_at_once == [False]


async def test_a_released_lease_is_free():
    replica = Replica()
    async with replica.running():
        await replica.until_held()
    bucket = await MemoryEventLog(replica.journal, user=KEY).bucket(LEASES)
    assert await bucket.get(KEY) is None


async def test_what_still_runs_beside_the_loop_ends_with_it():
    ended: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            ended.append("endless")

    async with LoopThread("lease") as thread:
        running = asyncio.create_task(thread.run(endless()))
        await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert ended == ["endless"]


async def test_what_becoming_the_owner_meets_ends_the_keeping_here():
    bucket = await MemoryEventLog(MemoryJournal(), user=KEY).bucket(LEASES)

    async def acquired() -> None:
        raise Refused("another log stands in its place", reason="LogTruncated")

    async with LoopThread("lease") as thread:
        owner = ThreadedLease(Lease(bucket, KEY, "a", clock=time.monotonic), thread)
        with pytest.raises(Refused, match="another log"):
            await asyncio.wait_for(owner.keep(acquired), 10)
        await owner.release()
