"""The work queue: each key once, by priority, when it is due, and in slices that leave the loop its time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf

import pytest

from shared.runtime.queue import SLICE_KEYS, SLICE_SECONDS, TICK_SECONDS, Priority, Slice, WorkQueue
from tests.kit.tasks import beside
from tests.kit.virtual_time import until


class Worker:
    """A queue, and what was taken from it, each key with the loop's time."""

    def __init__(
        self,
        clock: Callable[[], float] = lambda: 0.0,
        work: Callable[[], None] = lambda: None,
        flow: Callable[[str], str] = lambda _: "",
    ) -> None:
        self.queue = WorkQueue[str](clock, flow=flow)
        self.taken: list[str] = []
        self.times: list[float] = []
        self._work = work

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Worker"]:
        async with beside(self.queue.work(self._do)):
            yield self

    def _do(self, key: str) -> None:
        self.taken.append(key)
        self.times.append(asyncio.get_running_loop().time())
        self._work()


async def slices(worker: Worker) -> list[int]:
    """How many of a thousand keys are taken at a time, with nothing else done between them."""
    found = []
    for number in range(1_000):
        worker.queue.add(str(number))
    async with worker.running():
        while len(worker.taken) < 1_000:
            before = len(worker.taken)
            await asyncio.sleep(0)
            found.append(len(worker.taken) - before)
    return found


def now() -> float:
    return asyncio.get_running_loop().time()


CHANGED, OPEN, OVER = Priority


@pytest.mark.parametrize(
    ("added", "taken"),
    [
        pytest.param([(key, CHANGED) for key in "abab"], "ab", id="a key that is added twice is taken once"),
        pytest.param(
            [("c", OVER), ("b", OPEN), ("a", CHANGED), ("d", CHANGED)], "adbc", id="changed, then open, then over"
        ),
        pytest.param(
            [*((key, OVER) for key in "abc"), ("c", CHANGED)], "cab", id="a key that changes moves ahead of a pass"
        ),
        pytest.param([("b", CHANGED), ("a", OPEN), ("b", OVER)], "ba", id="a pass puts no key back that changed"),
    ],
)
async def test_keys_that_were_added_before_are_taken_by_priority(added: list[tuple[str, Priority]], taken: str):
    worker = Worker()
    for key, priority in added:
        worker.queue.add(key, priority)
    async with worker.running():
        await asyncio.sleep(60)
    assert worker.taken == [*taken]


async def test_a_key_that_is_added_again_after_it_was_taken_is_taken_again():
    worker = Worker()
    async with worker.running():
        for _ in range(3):
            worker.queue.add("a")
            await asyncio.sleep(1)
    assert worker.taken == ["a"] * 3


async def test_the_flows_of_keys_take_turns():
    worker = Worker(flow=lambda key: key[0])
    for key in ("a1", "a2", "a3", "b1", "c1", "b2"):
        worker.queue.add(key)
    worker.queue.add("a3", Priority.OVER)
    async with worker.running():
        await asyncio.sleep(1)
    assert worker.taken == ["a1", "b1", "c1", "a2", "b2", "a3"]


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.06, 5.0, 3_600.0])
async def test_a_key_is_taken_when_it_is_due_or_up_to_a_tick_later(seconds: float):
    worker = Worker()
    async with worker.running():
        began = now()
        worker.queue.add_after("a", seconds)
        await until(lambda: bool(worker.taken), "the key", seconds=seconds + 1)
    assert seconds <= round(worker.times[0] - began, 6) <= seconds + TICK_SECONDS + 0.001


async def test_due_times_of_a_key_that_are_close_together_are_one():
    worker = Worker()
    async with worker.running():
        # At the beginning of a tick.
        await asyncio.sleep(TICK_SECONDS - now() % TICK_SECONDS + 0.001)
        for part in range(10):
            worker.queue.add_after("a", 5.0 + part * TICK_SECONDS / 20)
        await asyncio.sleep(60)
    assert len(worker.taken) == 1


async def test_keys_that_are_due_at_the_same_time_are_all_taken():
    worker = Worker()
    async with worker.running():
        for key in "abc":
            worker.queue.add_after(key, 5.0)
        await asyncio.sleep(60)
    assert worker.taken == ["a", "b", "c"]


async def test_a_due_time_of_a_key_stays_when_the_key_is_taken_before():
    worker = Worker()
    async with worker.running():
        began = now()
        worker.queue.add_after("a", 30.0)
        worker.queue.add_after("a", 5.0)
        worker.queue.add("a")
        await asyncio.sleep(60)
    assert [round(at - began) for at in worker.times] == [0, 5, 30]


async def test_what_settles_for_ever_is_never_due():
    worker = Worker()
    async with worker.running():
        worker.queue.add_after("a", inf)
        await asyncio.sleep(10.0**6)
    assert worker.taken == []


async def test_the_loop_does_other_work_after_so_many_keys():
    assert max(await slices(Worker())) == SLICE_KEYS


async def test_the_loop_does_other_work_after_so_much_time():
    seconds = 0.0

    def work() -> None:
        nonlocal seconds
        seconds += SLICE_SECONDS / 5

    assert max(await slices(Worker(lambda: seconds, work))) in (5, 6)


async def test_a_pass_over_many_things_leaves_the_loop_its_time():
    passed, found = list[int](), list[int]()

    async def make_pass() -> None:
        async for thing in Slice(lambda: len(passed) * SLICE_SECONDS / 5).each(range(1_000)):
            passed.append(thing)

    task = asyncio.create_task(make_pass())
    while len(passed) < 1_000:
        before = len(passed)
        await asyncio.sleep(0)
        found.append(len(passed) - before)
    await task
    assert passed == [*range(1_000)]
    assert max(found) in (5, 6)
