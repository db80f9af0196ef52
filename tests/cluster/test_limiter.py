import asyncio
from contextlib import AsyncExitStack

from shared.cluster.limiter import Limiter


async def enter(limiter: Limiter, stack: AsyncExitStack, count: int) -> list[int]:
    return [await stack.enter_async_context(limiter.slot()) for _ in range(count)]


async def test_no_more_than_the_limit_are_under_way() -> None:
    limiter = Limiter(most=2)
    running = most = 0

    async def work() -> None:
        nonlocal running, most
        async with limiter.slot():
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(work() for _ in range(20)))
    assert most == 2


async def test_a_burst_of_refusals_halves_the_limit_once() -> None:
    limiter = Limiter(most=16)
    async with AsyncExitStack() as stack:
        for number in await enter(limiter, stack, 16):
            limiter.throttled(number)
    assert limiter.limit == 8


async def test_refusals_of_later_requests_halve_it_again_but_never_to_nothing() -> None:
    limiter = Limiter(most=4)
    for _ in range(5):
        async with limiter.slot() as number:
            limiter.throttled(number)
    assert limiter.limit == 1


async def test_each_round_of_successes_allows_one_more_up_to_the_most() -> None:
    limiter = Limiter(most=4)
    async with limiter.slot() as number:
        limiter.throttled(number)
    for _ in range(2):
        limiter.succeeded()
    assert limiter.limit == 3
    for _ in range(20):
        limiter.succeeded()
    assert limiter.limit == 4


async def test_who_gives_up_waiting_takes_no_place() -> None:
    limiter = Limiter(most=1)
    entered = asyncio.Event()

    async def work() -> None:
        async with limiter.slot():
            entered.set()

    async with limiter.slot():
        first, second = asyncio.ensure_future(work()), asyncio.ensure_future(work())
        await asyncio.sleep(0)
        first.cancel()
    await asyncio.wait_for(second, 5)
    assert entered.is_set()
    async with asyncio.timeout(5), limiter.slot():
        pass


async def test_who_is_called_and_gives_up_at_once_passes_the_place_on() -> None:
    limiter = Limiter(most=1)

    async def work() -> str:
        async with limiter.slot():
            return "done"

    async with limiter.slot():
        first, second = asyncio.ensure_future(work()), asyncio.ensure_future(work())
        await asyncio.sleep(0)
    # The place was given to the first at this moment, and it never runs again.
    first.cancel()
    assert await asyncio.wait_for(second, 5) == "done"
