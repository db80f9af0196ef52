"""The bounds on requests in flight."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from shared.cluster.calls import namespace_of, path_of
from shared.cluster.kinds import LEASES, PODS
from shared.flow import (
    ASKED_SECONDS,
    BESIDE_SECONDS,
    BULK,
    BULK_BESIDE,
    INTERACTIVE,
    OF_ONE,
    OF_ONE_BESIDE,
    Limiter,
    Sent,
    in_bulk,
)
from tests.kit.virtual_time import in_virtual_time


async def enter(limiter: Limiter, stack: AsyncExitStack, count: int) -> list[Sent]:
    """Places of so many requests, of as many namespaces."""
    return [await stack.enter_async_context(limiter.place(f"team-{number}")) for number in range(count)]


async def ask(limiter: Limiter, times: int, seconds: float = 0.01, of: str = "") -> None:
    for _ in range(times):
        async with limiter.place(of) as sent:
            await asyncio.sleep(seconds)
            sent.answered()


@in_virtual_time
async def test_a_server_that_others_keep_busy_gets_as_much_as_before():
    limiter = Limiter()
    with in_bulk(True):
        await ask(limiter, 100)
        await ask(limiter, 100, seconds=5.0)
    assert limiter.bulk.limit == BULK


@in_virtual_time
async def test_what_one_waits_for_does_not_wait_behind_bulk_work():
    limiter = Limiter()
    with in_bulk(True):
        flood = [asyncio.create_task(ask(limiter, 1, seconds=10.0)) for _ in range(1_000)]
    await asyncio.sleep(0.1)
    assert limiter.bulk.waiting == 1_000 - BULK * OF_ONE
    begun = asyncio.get_running_loop().time()
    await ask(limiter, 1)
    assert asyncio.get_running_loop().time() - begun < 0.02
    await asyncio.gather(*flood)


async def test_a_burst_of_refusals_halves_the_bound_once():
    limiter = Limiter()
    async with AsyncExitStack() as stack:
        for sent in await enter(limiter, stack, INTERACTIVE):
            sent.throttled()
    assert limiter.interactive.limit == INTERACTIVE // 2
    assert limiter.bulk.limit == BULK


@in_virtual_time
async def test_refusals_of_later_requests_halve_it_again_but_never_to_nothing_and_it_recovers():
    limiter = Limiter()
    for _ in range(10):
        async with limiter.place() as sent:
            sent.throttled()
    assert limiter.interactive.limit == 1
    await ask(limiter, 20)
    assert 4 < limiter.interactive.limit < INTERACTIVE, "one more a round"
    await ask(limiter, 1_000)
    assert limiter.interactive.limit == INTERACTIVE


@in_virtual_time
async def test_bulk_work_leaves_room_for_a_while_after_something_happened_to_a_job_that_runs():
    limiter = Limiter()
    with in_bulk(True):
        await ask(limiter, 1)
        limiter.somebody_waits()
        assert limiter.bulk.limit == BULK_BESIDE
        await asyncio.sleep(BESIDE_SECONDS)
        await ask(limiter, 1)
    assert limiter.bulk.limit == BULK
    assert limiter.interactive.limit == INTERACTIVE


@pytest.mark.parametrize(("bulk", "most"), [(False, INTERACTIVE), (True, BULK)])
@in_virtual_time
async def test_a_namespace_has_fewer_places_while_another_one_asks_for_something(bulk: bool, most: int):
    limiter = Limiter()

    async def work() -> None:
        with in_bulk(bulk):
            while True:
                await ask(limiter, 1, of="team-a")

    working = [asyncio.create_task(work()) for _ in range(2 * BULK)]
    found = []
    for _ in range(2):
        for seconds in (ASKED_SECONDS + 0.105, 0.1):
            await asyncio.sleep(seconds)
            found.append((limiter.bulk if bulk else limiter.interactive).in_flight)
            await ask(limiter, 1, of="team-b")
    for each in working:
        each.cancel()
    await asyncio.gather(*working, return_exceptions=True)
    assert found == [most * OF_ONE, most * OF_ONE_BESIDE] * 2


@in_virtual_time
async def test_calls_of_one_namespace_that_hang_leave_places_for_the_others():
    limiter = Limiter()

    async def hang() -> None:
        async with limiter.place("team-a"):
            await asyncio.Event().wait()

    hanging = [asyncio.create_task(hang()) for _ in range(100)]
    await asyncio.sleep(1)
    async with asyncio.timeout(1), limiter.place("team-b"):
        pass
    for each in hanging:
        each.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    assert limiter.interactive.in_flight == limiter.interactive.waiting == 0


async def in_flight_of_one(limiter: Limiter, *, bulk: bool, seconds: float) -> int:
    """How many requests of one namespace are under way after so long, of many that get no answer."""

    async def hang() -> None:
        with in_bulk(bulk):
            async with limiter.place("team-a"):
                await asyncio.Event().wait()

    hanging = [asyncio.create_task(hang()) for _ in range(2 * BULK)]
    await asyncio.sleep(seconds)
    found = (limiter.bulk if bulk else limiter.interactive).in_flight
    for each in hanging:
        each.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    return found


async def share(limiter: Limiter) -> None:
    """Two namespaces ask."""
    async with limiter.place("team-b"), limiter.place("team-c"):
        pass


@in_virtual_time
async def test_a_request_for_the_whole_cluster_is_no_other_namespace():
    limiter = Limiter()
    async with limiter.place(), limiter.place("team-a"):
        pass
    assert await in_flight_of_one(limiter, bulk=True, seconds=0.1) == BULK * OF_ONE


def test_the_anchor_is_no_request_of_a_namespace():
    assert namespace_of(path_of(LEASES, "muster-system", "anchor")) == ""
    assert namespace_of(path_of(PODS, "team-a", "leases")) == "team-a"


@pytest.mark.parametrize(("bulk", "most"), [(False, INTERACTIVE), (True, BULK)])
@in_virtual_time
async def test_what_holds_for_a_while_is_over_then_though_no_answer_comes(bulk: bool, most: int):
    limiter = Limiter()
    await share(limiter)
    assert await in_flight_of_one(limiter, bulk=bulk, seconds=ASKED_SECONDS - 0.1) == most * OF_ONE_BESIDE
    await share(limiter)
    limiter.somebody_waits()
    assert await in_flight_of_one(limiter, bulk=bulk, seconds=ASKED_SECONDS + 0.1) == most * OF_ONE


@in_virtual_time
async def test_bulk_work_has_its_places_again_though_no_answer_comes():
    limiter = Limiter()
    await share(limiter)
    limiter.somebody_waits()
    assert await in_flight_of_one(limiter, bulk=True, seconds=BESIDE_SECONDS - 0.1) < BULK_BESIDE * OF_ONE_BESIDE
    limiter.somebody_waits()
    assert await in_flight_of_one(limiter, bulk=True, seconds=BESIDE_SECONDS + 0.1) == BULK * OF_ONE_BESIDE


@in_virtual_time
async def test_a_namespace_has_a_part_of_the_places_that_there_are_now():
    limiter = Limiter()
    async with limiter.place("team-a") as sent:
        sent.throttled()
    assert await in_flight_of_one(limiter, bulk=False, seconds=0.1) == int(limiter.interactive.limit * OF_ONE)
    for _ in range(3):
        async with limiter.place("team-a") as sent:
            sent.throttled()
    assert await in_flight_of_one(limiter, bulk=False, seconds=0.1) == limiter.interactive.limit == 1
