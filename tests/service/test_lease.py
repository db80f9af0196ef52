"""The lease: one holder at a time, and none that believes itself one for too long."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from shared.errors import Refused, Transient
from shared.eventlog import Bucket, Revised
from shared.eventlog.account import LEASES
from shared.runtime.lease import (
    CHECKS,
    LONGEST_OFFER_SECONDS,
    MARGIN_SECONDS,
    OFFER_SECONDS,
    TTL_SECONDS,
    UNSTORED,
    Lease,
)
from tests.kit.tasks import beside
from tests.kit.virtual_time import until
from tests.memory.eventlog import MemoryEventLog, MemoryJournal

KEY = "scaler"


def now() -> float:
    return asyncio.get_running_loop().time()


async def a_bucket() -> Bucket:
    """A bucket of leases on the loop's own clock."""
    return await MemoryEventLog(MemoryJournal(clock=now), user=KEY).bucket(LEASES)


class Weather:
    """The same bucket over a bad line: calls fail or hang while the test says so."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self.down = False
        self.hangs = False
        self.forgets_answers = False
        self.lets_expire = True
        self.answers_after = 0.0
        """Seconds from a write to its answer."""
        self.stores_nothing = False
        """Writes have no answer, and reads have theirs."""
        self.refuses = ""
        """The reason, while writes are refused."""
        self.writes: list[float] = []
        self.reads: list[float] = []

    async def get(self, key: str) -> Revised | None:
        self.reads.append(now())
        await self._pass()
        return await self._bucket.get(key)

    async def put(self, key: str, value: bytes, *, expect: int | None = None, ttl: float | None = None) -> int:
        self.writes.append(now())
        await self._pass()
        if self.refuses:
            raise Refused("no permission", reason=self.refuses)
        if self.stores_nothing:
            await asyncio.Event().wait()
        revision = await self._bucket.put(key, value, expect=expect, ttl=ttl if self.lets_expire else None)
        await asyncio.sleep(self.answers_after)
        if self.forgets_answers:
            raise Transient("put: no answer came")
        return revision

    async def delete(self, key: str, *, expect: int | None = None) -> None:
        await self._pass()
        await self._bucket.delete(key, expect=expect)

    async def below(self, key: str) -> Revised | None:
        await self._pass()
        return await self._bucket.below(key)

    async def _pass(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.down:
            raise Transient("the log does not answer")


class Replica:
    """A process that keeps a lease, and how often it became the owner."""

    def __init__(self, bucket: Bucket, holder: str) -> None:
        self.lease = Lease(bucket, KEY, holder, unready=lambda: self.unready)
        self.unready = ""
        self.times = 0
        self.takes_seconds = 0.0
        """How long it asks where the log ends."""
        self.ready = 0
        """How often it knew."""

    async def acquired(self) -> None:
        self.times += 1
        await asyncio.sleep(self.takes_seconds)
        self.ready += 1

    @asynccontextmanager
    async def alive(self) -> AsyncIterator["Replica"]:
        async with beside(self.lease.keep(self.acquired)):
            yield self


async def test_a_free_lease_is_taken_at_once_and_kept():
    replica = Replica(await a_bucket(), "a")
    assert not replica.lease.held()
    async with replica.alive() as a:
        await until(a.lease.held, "the lease", seconds=0.1)
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert a.lease.held()
        assert a.times == 1


async def test_a_lease_ends_by_when_it_was_asked_for_however_late_the_answer_came():
    weather = Weather(await a_bucket())
    weather.answers_after = 1.0
    async with Replica(weather, "a").alive() as a:
        await until(a.lease.held, "the lease")
        weather.hangs = True
        await asyncio.sleep(weather.writes[0] + TTL_SECONDS - MARGIN_SECONDS - now())
        assert not a.lease.held()


async def test_a_second_replica_waits_and_takes_over_when_the_first_one_dies():
    bucket = await a_bucket()
    a, b = Replica(bucket, "a"), Replica(bucket, "b")
    async with b.alive():
        async with a.alive():
            await until(lambda: a.lease.held() or b.lease.held(), "a holder")
            first, second = (a, b) if a.lease.held() else (b, a)
            for _ in range(50):
                await asyncio.sleep(0.1)
                assert first.lease.held()
                assert not second.lease.held()
        assert first.times == 1
    async with second.alive():
        await until(second.lease.held, "the second one's lease", seconds=2 * TTL_SECONDS)
    assert second.times == 1


@pytest.mark.parametrize("expires", [True, False], ids=["the server lets it expire", "the server is late"])
@pytest.mark.parametrize("moment", [step / 20 for step in range(20)])
async def test_a_standby_notices_soon_that_the_lease_is_not_renewed(moment: float, expires: bool):
    await _take_over(moment, expires=expires)


async def test_a_standby_asks_at_once_when_its_write_met_the_lease_as_it_expired():
    # With this chance the holder's last renewal runs out at the server right before the write of who waits.
    random.seed(148)
    await _take_over(0.4, expires=True)


async def _take_over(moment: float, *, expires: bool) -> None:
    bucket = Weather(await a_bucket())
    bucket.lets_expire = expires
    a, b = Replica(bucket, "a"), Replica(bucket, "b")
    async with a.alive():
        await until(a.lease.held, "the lease")
        waiting = asyncio.create_task(b.lease.keep(b.acquired))
        await asyncio.sleep(5 * TTL_SECONDS + moment)
    dead = now()
    await until(b.lease.held, "the second one's lease")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert now() - dead <= TTL_SECONDS * (1 + 1 / CHECKS) + 0.02


async def test_a_standby_asks_seldom_while_the_lease_is_renewed():
    bucket = await a_bucket()
    line = Weather(bucket)
    a, b = Replica(bucket, "a"), Replica(line, "b")
    async with a.alive():
        await until(a.lease.held, "the lease")
        async with b.alive():
            await asyncio.sleep(20 * TTL_SECONDS)
    assert len(line.writes) == 1, "that it is free"
    # Each renewal is seen, at the second look after the last one or at the third.
    assert 20 * 3 * 1.5 <= len(line.reads) <= 20 * 3 * 3.5


async def test_there_are_never_two_holders_whatever_happens_to_the_line():
    bucket = await a_bucket()
    lines = [Weather(bucket) for _ in range(3)]
    replicas = [Replica(line, f"replica-{number}") for number, line in enumerate(lines)]
    seen: set[int] = set()
    async with replicas[0].alive(), replicas[1].alive(), replicas[2].alive():
        for step in range(600):
            lines[step // 40 % 3].down = step % 80 < 40
            lines[step // 60 % 3].hangs = step % 120 < 50
            lines[step // 70 % 3].forgets_answers = step % 140 < 60
            await asyncio.sleep(0.05)
            holders = [replica for replica in replicas if replica.lease.held()]
            assert len(holders) <= 1
            seen.update(replicas.index(holder) for holder in holders)
    assert len(seen) > 1, "the lease changed hands"


async def test_a_lease_that_is_lost_says_what_the_log_answered():
    line = Weather(await a_bucket())
    with capture_logs() as said:
        async with Replica(line, "a").alive() as a:
            await until(a.lease.held, "the lease")
            line.down = True
            await until(lambda: [each for each in said if each["event"] == "lease lost"], "the line about it")
    (why,) = [each["why"] for each in said if each["event"] == "lease lost"]
    assert why == "the log does not answer"


async def test_a_log_that_stores_nothing_and_answers_reads_is_told_until_it_stores_again():
    line = Weather(await a_bucket())
    async with Replica(line, "a").alive() as a:
        await until(a.lease.held, "the lease")
        line.stores_nothing = True
        await until(lambda: a.lease.trouble == UNSTORED, "the trouble")
        assert not a.lease.held()
        line.stores_nothing = False
        await until(a.lease.held, "the lease again", seconds=3 * TTL_SECONDS)
        assert a.lease.trouble == ""


async def test_a_holder_without_the_log_stops_before_its_lease_can_expire():
    line = Weather(await a_bucket())
    async with Replica(line, "a").alive() as a:
        await until(a.lease.held, "the lease")
        line.down = True
        lost_at = line.writes[-1]
        await until(lambda: not a.lease.held(), "the end of holding")
        # The last write that was stored counts, from when it was begun.
        assert now() - lost_at <= TTL_SECONDS - MARGIN_SECONDS + 0.02
        line.down = False
        await until(a.lease.held, "the lease again")
        assert a.times == 2, "a new owner folds to the end before it acts"


async def test_a_holder_whose_call_hangs_stops_in_time_and_comes_back():
    line = Weather(await a_bucket())
    async with Replica(line, "a").alive() as a:
        await until(a.lease.held, "the lease")
        line.hangs = True
        await until(lambda: not a.lease.held(), "the end of holding", seconds=TTL_SECONDS)
        line.hangs = False
        await until(a.lease.held, "the lease again", seconds=3 * TTL_SECONDS)


async def test_a_lease_that_ran_out_during_its_renewal_is_a_new_one():
    line = Weather(await a_bucket())
    async with Replica(line, "a").alive() as a:
        await until(a.lease.held, "the lease")
        line.answers_after = 1.2
        await until(lambda: not a.lease.held(), "the end of holding", seconds=3)
        await until(a.lease.held, "the same lease, in time for the server")
        assert len(line.writes) == 2
        assert a.times == 2, "what was not done in between is not lost"


async def test_slow_renewals_that_come_in_time_are_one_lease():
    line = Weather(await a_bucket())
    line.answers_after = 0.3
    async with Replica(line, "a").alive() as a:
        await asyncio.sleep(20 * TTL_SECONDS)
        assert a.times == 1


async def test_a_holder_that_is_not_well_for_long_leaves_its_lease_to_another():
    bucket = await a_bucket()
    a, b = Replica(bucket, "a"), Replica(bucket, "b")
    async with a.alive(), b.alive():
        await until(lambda: a.lease.held() or b.lease.held(), "a holder")
        first, second = (a, b) if a.lease.held() else (b, a)
        first.unready = "the API server does not answer"
        began = now()
        await until(second.lease.held, "the other one's lease", seconds=OFFER_SECONDS + 2 * TTL_SECONDS)
        assert now() - began >= OFFER_SECONDS, "what passes soon is no reason"
        first.unready = ""
        await asyncio.sleep(10 * OFFER_SECONDS)
        assert second.lease.held(), "and no replica asks for it back"
        assert (first.times, second.times) == (1, 1)


async def test_who_was_not_well_before_it_had_the_lease_leaves_it_as_soon():
    bucket = await a_bucket()
    a, b, c = (Replica(bucket, name) for name in "abc")
    b.unready = "a right is missing"
    async with a.alive():
        await until(a.lease.held, "the lease")
        waiting = asyncio.create_task(b.lease.keep(b.acquired))
        await asyncio.sleep(10 * LONGEST_OFFER_SECONDS)
    await until(b.lease.held, "the lease, as there is no other replica", seconds=2 * TTL_SECONDS)
    async with c.alive():
        await until(c.lease.held, "the lease", seconds=OFFER_SECONDS + 2 * TTL_SECONDS)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_offers_of_the_lease_without_a_ready_standby_cost_little():
    bucket = await a_bucket()
    replicas = Replica(bucket, "a"), Replica(bucket, "b")
    async with replicas[0].alive(), replicas[1].alive():
        for replica in replicas:
            replica.unready = "a right is missing"
        await asyncio.sleep(10 * LONGEST_OFFER_SECONDS)
        before = sum(replica.times for replica in replicas)
        held = 0
        for _ in range(LONGEST_OFFER_SECONDS * 4):
            await asyncio.sleep(1)
            held += any(replica.lease.held() for replica in replicas)
        assert held >= 0.99 * LONGEST_OFFER_SECONDS * 4, "one replica acts"
        assert sum(replica.times for replica in replicas) - before <= 4 + 1


async def test_a_trouble_that_comes_and_goes_is_a_new_one_each_time():
    async with Replica(await a_bucket(), "a").alive() as a:
        await until(a.lease.held, "the lease")
        for _ in range(20):
            a.unready = "the API server does not answer"
            await asyncio.sleep(OFFER_SECONDS - 2)
            a.unready = ""
            await asyncio.sleep(2)
        assert a.times == 1


async def test_a_new_owner_keeps_its_lease_while_it_asks_where_the_log_ends():
    a = Replica(await a_bucket(), "a")
    a.takes_seconds = 3 * TTL_SECONDS
    async with a.alive():
        await until(a.lease.held, "the lease")
        for _ in range(int(a.takes_seconds / 0.1) + 1):
            await asyncio.sleep(0.1)
            assert a.lease.held()
        assert (a.times, a.ready) == (1, 1)


async def test_who_is_owner_again_asks_once_where_the_log_ends():
    line = Weather(await a_bucket())
    a = Replica(line, "a")
    a.takes_seconds = 3 * TTL_SECONDS
    async with a.alive():
        await until(a.lease.held, "the lease")
        line.down = True
        await until(lambda: not a.lease.held(), "the end of holding", seconds=TTL_SECONDS)
        line.down = False
        await asyncio.sleep(5 * TTL_SECONDS)
        assert (a.times, a.ready) == (2, 1)


async def test_what_becoming_the_owner_meets_ends_the_keeping():
    class Broken(Replica):
        async def acquired(self) -> None:
            await asyncio.sleep(1)
            raise Refused("another log stands in its place", reason="LogTruncated")

    a = Broken(await a_bucket(), "a")
    with pytest.raises(Refused):
        await asyncio.wait_for(a.lease.keep(a.acquired), 10)


async def test_who_may_not_write_does_not_knock_for_ever():
    line = Weather(await a_bucket())
    line.refuses = "Forbidden"
    async with Replica(line, "a").alive() as a:
        await asyncio.sleep(20 * TTL_SECONDS)
        assert a.lease.trouble == "no permission"
    assert len(line.writes) <= 20 * 3 * 1.3


@pytest.mark.parametrize("reason", ["Unauthorized", "Disconnected"])
async def test_a_connection_that_ended_for_good_ends_the_keeping(reason: str):
    line = Weather(await a_bucket())
    a = Replica(line, "a")
    keeping = asyncio.create_task(a.lease.keep(a.acquired))
    await until(a.lease.held, "the lease")
    line.refuses = reason
    with pytest.raises(Refused):
        await asyncio.wait_for(keeping, TTL_SECONDS)


async def test_a_process_that_stood_still_does_not_hold_what_expired_meanwhile():
    bucket = await a_bucket()
    a, b = Lease(bucket, KEY, "a"), Replica(bucket, "b")
    keeping = asyncio.create_task(a.keep(Replica(bucket, "x").acquired))
    await until(a.held, "the lease")
    # Paused: none of its tasks runs, and time goes on.
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    async with b.alive():
        await until(b.lease.held, "the other one's lease", seconds=2 * TTL_SECONDS)
        assert not a.held()


async def test_a_write_whose_answer_was_lost_is_found_again():
    line = Weather(await a_bucket())
    line.forgets_answers = True
    async with Replica(line, "a").alive() as a:
        await until(lambda: len(line.writes) == 1, "a write")
        assert not a.lease.held(), "the answer was lost"
        line.forgets_answers = False
        await until(a.lease.held, "the lease", seconds=2 * TTL_SECONDS)


async def test_a_released_lease_is_free_at_once():
    bucket = await a_bucket()
    a = Replica(bucket, "a")
    async with a.alive():
        await until(a.lease.held, "the lease")
    await a.lease.release()
    assert not a.lease.held()
    assert await bucket.get(KEY) is None
    async with Replica(bucket, "b").alive() as b:
        await until(b.lease.held, "the lease", seconds=0.1)


@pytest.mark.parametrize("renewal", [False, True], ids=["the first write", "a renewal"])
async def test_a_write_that_was_broken_off_is_released_too(renewal: bool):
    line = Weather(await a_bucket())
    line.answers_after = 0.0 if renewal else 5.0
    a = Replica(line, "a")
    async with a.alive():
        await until(lambda: len(line.writes) == 1, "a write")
        line.answers_after = 5.0
        await until(lambda: len(line.writes) == 1 + renewal, "the write that is broken off")
        await asyncio.sleep(0.1)
    await a.lease.release()
    assert await line.get(KEY) is None


async def test_no_replica_releases_what_another_holds_by_now():
    bucket = await a_bucket()
    a = Replica(bucket, "a")
    async with a.alive():
        await until(a.lease.held, "the lease")
    async with Replica(bucket, "b").alive() as b:
        await until(b.lease.held, "the other one's lease", seconds=3 * TTL_SECONDS)
        await a.lease.release()
        held = await bucket.get(KEY)
        assert held is not None
        assert held.value == b"b"


async def test_a_release_without_the_log_leaves_it_to_expire():
    line = Weather(await a_bucket())
    a = Replica(line, "a")
    async with a.alive():
        await until(a.lease.held, "the lease")
    line.down = True
    await a.lease.release()
    assert not a.lease.held()


async def test_it_is_renewed_several_times_within_its_lifetime():
    line = Weather(await a_bucket())
    async with Replica(line, "a").alive():
        await asyncio.sleep(10 * TTL_SECONDS)
    gaps = [later - sooner for sooner, later in zip(line.writes, line.writes[1:], strict=False)]
    assert max(gaps) < TTL_SECONDS / 2
    assert len(set(gaps)) > 1, "waiting replicas do not knock in step"
