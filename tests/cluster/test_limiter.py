"""The bounds on requests in flight, before simulated API servers that are small, large, slow or overwhelmed."""

import asyncio
from contextlib import AsyncExitStack
from random import Random

import pytest

from shared.cluster.limiter import DOUBLES_SECONDS, FIRST, LEAST, MOST, Limiter, Sent, in_bulk
from tests.kit.virtual_time import in_virtual_time


class Server:
    """Works on so many requests at once, for so many seconds each; others wait in the order in which they came."""

    def __init__(self, at_once: int, seconds: float, sigma: float = 0.0) -> None:
        """`sigma`: how much the logarithms of the seconds vary."""
        self.seconds = seconds
        self.served = 0
        self._places = asyncio.Semaphore(at_once)
        self._sigma, self._chance = sigma, Random(1)

    async def serve(self) -> None:
        async with self._places:
            await asyncio.sleep(self.seconds * self._chance.lognormvariate(0, self._sigma))
            self.served += 1


async def ask(limiter: Limiter, server: Server, kind: str = "POST pods") -> float:
    """The seconds that one request took, its wait for a place included."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with limiter.slot(kind) as sent:
        await server.serve()
        sent.answered()
    return loop.time() - begun


async def busy(limiter: Limiter, server: Server, seconds: float, callers: int = 2_000) -> None:
    """As many bulk requests for so long as are let through."""

    async def without_end() -> None:
        while True:
            await ask(limiter, server)

    with in_bulk(True):
        tasks = [asyncio.ensure_future(without_end()) for _ in range(callers)]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("sigma", [0.0, 0.3, 0.5])
@in_virtual_time
async def test_a_large_server_gets_hundreds_at_once_however_its_answers_vary(sigma: float):
    limiter, server = Limiter(), Server(500, 0.005, sigma)
    await busy(limiter, server, 1.0)
    assert limiter.bulk.limit > 300


@in_virtual_time
async def test_a_small_server_is_busy_and_has_no_queue():
    limiter, server = Limiter(), Server(2, 0.004)
    await busy(limiter, server, 2.0)
    assert LEAST <= limiter.bulk.limit <= 14
    assert server.served > 0.98 * 2.0 * 2 / server.seconds


@in_virtual_time
async def test_a_server_with_one_place_gets_no_fewer_than_keep_it_busy_beside_others():
    limiter, server = Limiter(), Server(1, 0.004)
    with in_bulk(True):
        for _ in range(100):
            await ask(limiter, server)
    await busy(limiter, server, 2.0)
    assert limiter.bulk.limit == LEAST


@in_virtual_time
async def test_a_server_that_takes_its_time_for_each_answer_has_no_queue():
    limiter = Limiter()
    await busy(limiter, Server(200, 2.0), 60.0)
    assert limiter.bulk.limit > 150


@in_virtual_time
async def test_a_server_that_became_slower_for_good_is_not_taken_for_a_queue_for_ever():
    limiter, server = Limiter(), Server(100, 0.005)
    await busy(limiter, server, 1.0)
    server.seconds = 0.05
    await busy(limiter, server, 1.0)
    assert limiter.bulk.limit <= 14
    await busy(limiter, server, 3 * DOUBLES_SECONDS, callers=100)
    assert limiter.bulk.limit > 80


@in_virtual_time
async def test_what_one_waits_for_does_not_wait_behind_bulk_work():
    limiter, server = Limiter(), Server(2, 0.004)
    flood = asyncio.ensure_future(busy(limiter, server, 2.0))
    await asyncio.sleep(1.0)
    assert limiter.bulk.waiting > 1_000
    assert await ask(limiter, server, "PATCH pods") < 0.03
    await flood


@in_virtual_time
async def test_a_few_requests_do_not_raise_a_bound_that_they_do_not_need():
    limiter, server = Limiter(), Server(100, 0.005)
    for _ in range(1_000):
        await ask(limiter, server)
    assert limiter.interactive.limit == FIRST


@in_virtual_time
async def test_a_day_without_a_request_changes_nothing():
    limiter, server = Limiter(), Server(100, 0.005)
    for _ in range(2):
        for _ in range(100):
            await ask(limiter, server)
        await asyncio.sleep(24 * 3600)
    assert limiter.interactive.limit == FIRST


@in_virtual_time
async def test_each_kind_of_request_is_compared_with_its_own():
    limiter, quick, slow = Limiter(), Server(100, 0.001), Server(100, 0.01)
    for _ in range(100):
        await ask(limiter, quick, "GET pods")
        await ask(limiter, slow, "PATCH pods")
    assert limiter.interactive.limit == FIRST


async def enter(limiter: Limiter, stack: AsyncExitStack, count: int) -> list[Sent]:
    return [await stack.enter_async_context(limiter.slot("GET pods")) for _ in range(count)]


async def test_a_burst_of_refusals_halves_the_bound_once():
    limiter = Limiter()
    async with AsyncExitStack() as stack:
        for sent in await enter(limiter, stack, FIRST):
            sent.throttled()
    assert limiter.interactive.limit == FIRST // 2
    assert limiter.bulk.limit == FIRST


@in_virtual_time
async def test_refusals_of_later_requests_halve_it_again_but_never_to_nothing_and_it_recovers():
    limiter, server = Limiter(), Server(100, 0.005)
    for _ in range(10):
        with in_bulk(True):
            async with limiter.slot("POST pods") as sent:
                sent.throttled()
    assert limiter.bulk.limit == 1
    await busy(limiter, server, 2.0)
    assert 80 < limiter.bulk.limit <= MOST


async def test_who_gives_up_waiting_takes_no_place():
    limiter = Limiter()
    entered = asyncio.Event()

    async def work() -> None:
        async with limiter.slot("GET pods"):
            entered.set()

    async with AsyncExitStack() as stack:
        await enter(limiter, stack, FIRST)
        first, second = asyncio.ensure_future(work()), asyncio.ensure_future(work())
        await asyncio.sleep(0)
        first.cancel()
    await asyncio.wait_for(second, 5)
    assert entered.is_set()
    assert limiter.interactive.in_flight == 0


async def test_who_is_called_and_gives_up_at_once_passes_the_place_on():
    limiter = Limiter()

    async def work() -> str:
        async with limiter.slot("GET pods"):
            return "done"

    async with AsyncExitStack() as stack:
        await enter(limiter, stack, FIRST)
        waiting = [asyncio.ensure_future(work()) for _ in range(FIRST + 1)]
        await asyncio.sleep(0)
    # The places were given to them at this moment, and they never run again.
    for each in waiting[:FIRST]:
        each.cancel()
    assert await asyncio.wait_for(waiting[FIRST], 5) == "done"
