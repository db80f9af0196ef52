"""The demo's own parts, and its programs that end; `tests/e2e/test_demo.py` runs all of it."""

import asyncio
import time
from itertools import pairwise
from pathlib import Path

from devcluster.child import ChildError
from muster.demo import whole_history
from muster.stack import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, supervised
from shared.eventlog.subject import Subject
from shared.job.events.status import JobSucceeded
from tests.kit.builders import a_running_job, launcher, pods, worker
from tests.kit.histories import KEY
from tests.kit.virtual_time import in_virtual_time
from tests.memory.eventlog import MemoryEventLog
from tests.muster.test_get import Log

ENDED = (
    pods(launcher(version=30, phase="Succeeded")),
    JobSucceeded(reason="TrainingJobSucceeded"),
    pods(worker(0, version=31, deleting=True), worker(1, version=31, deleting=True)),
)


async def test_the_history_is_told_once_its_own_pods_are_gone_whatever_other_jobs_run():
    log = Log()
    log.add(*a_running_job(2), *ENDED)
    log.add(*a_running_job(2), name="another", uid="uid-9")
    began = time.monotonic()
    events = await whole_history(MemoryEventLog(log.journal), KEY, patience=5)
    assert time.monotonic() - began < 1
    assert {Subject.parse(stored.subject).uid for stored in events} == {KEY.uid}
    assert len(events) == len([*a_running_job(2), *ENDED])


async def test_a_clean_up_that_takes_too_long_is_not_waited_for():
    log = Log()
    log.add(*a_running_job(2))
    assert len(await whole_history(MemoryEventLog(log.journal), KEY, patience=0)) == len(a_running_job(2))


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
