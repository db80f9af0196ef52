"""On one log, services of the whole cluster and of a namespace never hold their leases at the same time."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from shared.errors import Conflict, Refused, Transient
from shared.eventlog import Bucket
from shared.eventlog.account import LEASES
from shared.installation.scope import ExclusiveLeases, lease_key
from shared.runtime.lease import TTL_SECONDS, Lease
from tests.kit.virtual_time import until
from tests.memory.eventlog import MemoryEventLog, MemoryJournal
from tests.service.test_lease import Weather, now

AUTHOR = "watcher"


async def a_bucket() -> Bucket:
    return await MemoryEventLog(MemoryJournal(clock=now), user=AUTHOR).bucket(LEASES)


class Installation:
    def __init__(self, bucket: Bucket, namespace: str = "") -> None:
        self.lease = Lease(
            ExclusiveLeases(bucket, AUTHOR, namespace), lease_key(AUTHOR, namespace), f"host-{namespace}/1"
        )

    async def keep(self) -> None:
        async def acquired() -> None:
            pass

        await self.lease.keep(acquired)

    async def end(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self.lease.release()


@pytest.mark.parametrize(("first", "second"), [("", "team-a"), ("team-a", "")], ids=["cluster first", "cluster second"])
async def test_the_second_scope_waits_for_the_first_and_says_so(first: str, second: str):
    bucket = await a_bucket()
    one, two = Installation(bucket, first), Installation(bucket, second)
    acting = asyncio.create_task(one.keep())
    await until(one.lease.held, "the lease")
    waiting = asyncio.create_task(two.keep())
    for _ in range(200):
        await asyncio.sleep(0.1)
        assert one.lease.held()
        assert not two.lease.held()
    assert f"(host-{first})" in two.lease.trouble
    assert not one.lease.trouble
    await one.end(acting)
    await until(two.lease.held, "the lease of the second", seconds=TTL_SECONDS)
    assert not two.lease.trouble
    await two.end(waiting)


async def test_namespaces_share_a_log():
    bucket = await a_bucket()
    installations = [Installation(bucket, name) for name in ("team-a", "team-b")]
    tasks = [asyncio.create_task(each.keep()) for each in installations]
    for each in installations:
        await until(each.lease.held, "a lease")
    for each, task in zip(installations, tasks, strict=True):
        await each.end(task)


async def test_of_scopes_that_begin_at_once_one_is_let_through():
    async with AsyncExitStack() as stack:
        bucket = await a_bucket()
        installations = [Installation(bucket, name) for name in ("", "team-a", "team-b")]
        for each in installations:
            stack.push_async_callback(each.end, asyncio.create_task(each.keep()))
        cluster, *teams = installations
        for _ in range(1000):
            await asyncio.sleep(0.01)
            assert not (cluster.lease.held() and any(team.lease.held() for team in teams))
        assert cluster.lease.held() or all(team.lease.held() for team in teams)


async def test_a_lease_whose_answer_was_lost_is_looked_at_again():
    line = Weather(await a_bucket())
    ours, theirs = ExclusiveLeases(line, AUTHOR, ""), ExclusiveLeases(line, AUTHOR, "team-a")
    line.forgets_answers = True
    with pytest.raises(Transient):
        await ours.put(AUTHOR, b"us", expect=0, ttl=10)
    line.forgets_answers = False
    known = await ours.get(AUTHOR)
    assert known is not None
    with pytest.raises(Refused):
        await theirs.put(f"{AUTHOR}.team-a", b"them", expect=0, ttl=10)
    await line.put(f"{AUTHOR}.team-a", b"them, who did not look", expect=0, ttl=10)
    with pytest.raises(Refused, match="a single namespace"):
        await ours.put(AUTHOR, b"us", expect=known.revision, ttl=10)


async def test_what_another_replica_holds_is_a_conflict_as_ever():
    bucket = await a_bucket()
    await ExclusiveLeases(bucket, AUTHOR, "").put(AUTHOR, b"us", expect=0, ttl=10)
    with pytest.raises(Conflict):
        await ExclusiveLeases(bucket, AUTHOR, "").put(AUTHOR, b"another replica", expect=0, ttl=10)
