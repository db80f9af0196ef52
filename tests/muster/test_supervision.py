"""What the demo says of a program that ended and cannot start again, and how often it tries."""

import asyncio
from itertools import pairwise
from pathlib import Path

from devcluster.child import ChildError
from muster.stack import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, supervised
from tests.kit.virtual_time import in_virtual_time

HOUR = 3600.0


class Failing:
    """A program that ends at each start."""

    name = "the store"
    log = Path("store.log")
    running = False

    def __init__(self) -> None:
        self.tries: list[float] = []

    async def restart(self) -> None:
        self.tries.append(asyncio.get_running_loop().time())
        raise ChildError("no space left")


@in_virtual_time
async def test_a_program_that_cannot_start_is_tried_ever_more_seldom_and_each_failure_is_said():
    program, said = Failing(), list[str]()
    async with supervised([program], said.append):
        await asyncio.sleep(HOUR)
    assert said[:2] == [
        "the store ended; starting it again, its log is store.log",
        "the store does not start: no space left",
    ]
    pauses = [later - earlier for earlier, later in pairwise(program.tries)]
    assert max(pauses) <= LONGEST_PAUSE_SECONDS
    assert pauses[0] <= FIRST_PAUSE_SECONDS
    # Half of the longest pause on average, as each is drawn between zero and its bound.
    assert len(program.tries) < 2 * HOUR / LONGEST_PAUSE_SECONDS * 1.5


@in_virtual_time
async def test_a_running_program_is_left_alone():
    program, said = Failing(), list[str]()
    program.running = True
    async with supervised([program], said.append):
        await asyncio.sleep(HOUR)
    assert (program.tries, said) == ([], [])
