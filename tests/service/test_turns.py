"""Places that flows take by turns."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from shared.flow import Turns


async def served(turns: Turns, flows: Iterable[str], order: list[str]) -> list[asyncio.Task[None]]:
    """A task for each of these flows, in order; each notes its flow once it has its place.

    A flow is a namespace of one letter, and perhaps a job.
    """

    async def work(flow: str) -> None:
        async with turns.turn(*flow):
            order.append(flow)
            await asyncio.sleep(1)

    tasks = [asyncio.create_task(work(flow)) for flow in flows]
    await asyncio.sleep(0)
    return tasks


async def test_flows_take_turns_and_within_one_the_first_comes_first():
    order: list[str] = []
    await asyncio.gather(*await served(Turns(1), "aaaaabbc", order))
    assert "".join(order) == "aabcabaa"


async def test_jobs_of_a_namespace_take_turns_too():
    order: list[str] = []
    await asyncio.gather(*await served(Turns(1), ("a1", "a1", "a1", "a1", "a2", "b1", "b1"), order))
    assert order == ["a1", "a1", "b1", "a2", "b1", "a1", "a1"]


async def test_a_namespace_that_has_all_that_one_may_have_holds_up_no_other_and_its_jobs_take_turns():
    order: list[str] = []
    await asyncio.gather(*await served(Turns(2, of_namespace=1), ("a1", "a1", "a1", "a2", "b1"), order))
    assert order == ["a1", "b1", "a1", "a2", "a1"]


async def test_no_more_than_the_limit_work_at_once_also_when_it_falls():
    turns, order = Turns(3), list[str]()
    tasks = await served(turns, "abcdef", order)
    assert len(order) == 3
    turns.resize(1)
    await asyncio.sleep(1.5)
    assert len(order) == 4, "two places are gone"
    await asyncio.gather(*tasks)


async def test_who_is_cancelled_while_waiting_or_as_the_place_comes_holds_up_nobody():
    turns, order = Turns(1), list[str]()
    first, second, third, last = await served(turns, "abcd", order)
    second.cancel()
    await first
    # The third got its place in this moment.
    third.cancel()
    with suppress(asyncio.CancelledError):
        await third
    await last
    assert "".join(order).endswith("d")
