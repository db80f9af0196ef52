"""Passes over all jobs: however many are over, the loop goes on, the lease is renewed and live jobs are decided."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager

import pytest

from shared.eventlog import Entry
from shared.eventlog.account import LEASES
from shared.job.events.catalog import AnyEvent
from shared.job.events.status import JobSucceeded
from shared.job.events.watcher import JobGone
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.job.steps import Step
from shared.runtime.lease import Lease
from shared.runtime.run import Runtime
from tests.kit.builders import a_spec, observed
from tests.kit.histories import stored
from tests.kit.tasks import beside
from tests.kit.virtual_time import VirtualLoop, until
from tests.memory.eventlog import MemoryEventLog, MemoryJournal
from tests.service.test_runtime import Line, Small, Stage

MANY = 20_000
DECIDE_SECONDS = 0.0001
"""What a decision takes: somewhat more than the status service needs for a finished job."""

GATHER_SECONDS = 0.000005
"""What the key of one more job of the cache takes."""

LONGEST_SECONDS = 0.05
"""For which the loop may be held at a time."""

LIVE = JobKey("team-a", "live", Uid("uid-live"))


def a_key(number: int) -> JobKey:
    return JobKey("team-a", f"job-{number}", Uid(f"uid-{number}"))


def add(journal: MemoryJournal, key: JobKey, *events: AnyEvent) -> None:
    """These events of one job, at the end of the log."""
    history, last = History(key), {"facts": 0, "jobs": 0}
    for event in events:
        said = stored(history, event, sequence=len(journal.events) + 1)
        family = said.subject.partition(".")[0]
        entry = Entry(
            subject=said.subject,
            event_id=said.event_id,
            time=said.time,
            body=said.body,
            basis=said.basis,
        )
        last[family] = journal.append(entry, expect=last[family])
        history.fold(journal.events[-1])


OVER = (observed(a_spec()), JobSucceeded(reason="LauncherSucceeded"))


def with_finished_jobs(stage: Stage, count: int) -> None:
    """And behind them one that is not over."""
    for number in range(count):
        add(stage.journal, a_key(number), *OVER)
    add(stage.journal, LIVE, observed(a_spec()))


class Pulse:
    """How long the loop was held by one callback at the most, on the loop's own clock."""

    def __init__(self) -> None:
        self.longest = 0.0

    @asynccontextmanager
    async def measured(self) -> AsyncIterator["Pulse"]:
        async with beside(self._beat()):
            yield self

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, loop.time() - before - 0.001)


class Owner:
    """A service whose decisions take time, and the lease that it keeps."""

    def __init__(self, service: Small) -> None:
        self.stage = Stage(service)
        self.stage.journal = MemoryJournal(clock=asyncio.get_running_loop().time)
        self.acquired = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Owner"]:
        stage, loop = self.stage, asyncio.get_running_loop()
        line = Line(stage.journal, user=stage.service.author)
        bucket = await MemoryEventLog(stage.journal, user=stage.service.author).bucket(LEASES)
        self.lease = Lease(bucket, stage.service.author, "this one")
        stage.line = line
        stage.runtime = Runtime(stage.service, line, owns=self.lease.held, clock=loop.time)

        def acquired() -> Coroutine[None, None, None]:
            self.acquired += 1
            return stage.runtime.owned()

        async with beside(stage.runtime.run()), beside(self.lease.keep(acquired)):
            yield self


def taking_time(history: History) -> list[Step]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.stand_still(DECIDE_SECONDS)
    return []


async def test_with_20000_finished_jobs_a_service_keeps_its_lease_and_decides_about_each():
    service = Small(taking_time)
    owner = Owner(service)
    with_finished_jobs(owner.stage, MANY)
    async with Pulse().measured() as pulse, owner.running():
        await until(lambda: len(service.decided) >= MANY + 2 or owner.acquired > 1, "all")
        assert owner.acquired == 1, "the lease was lost"
        assert len({key for key, _ in service.decided}) == MANY + 2, "the log's own history included"
        assert owner.lease.held()
        assert pulse.longest < LONGEST_SECONDS


async def test_the_keys_of_a_pass_are_gathered_in_slices():
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)

    class Slow(tuple[JobKey, ...]):
        def __iter__(self) -> Iterator[JobKey]:
            for key in super().__iter__():
                loop.stand_still(GATHER_SECONDS)
                yield key

    service = Small(lambda _: [], known=Slow(map(a_key, range(MANY))))
    async with Pulse().measured() as pulse, Owner(service).running():
        await until(lambda: len(service.decided) >= MANY, "all")
        assert pulse.longest < LONGEST_SECONDS


async def test_a_job_that_is_not_over_is_decided_before_those_that_are():
    service = Small(lambda _: [])
    stage = Stage(service)
    with_finished_jobs(stage, 1_000)
    async with stage.running():
        await until(lambda: len(service.decided) > 1_000, "all of them")
        assert LIVE in [key for key, _ in service.decided[:2]], "the other one is the log's own history"


async def test_a_job_that_changes_is_decided_ahead_of_a_pass_that_is_under_way():
    service, count = Small(taking_time), 4_000
    owner = Owner(service)
    with_finished_jobs(owner.stage, count)
    async with owner.running():
        await until(lambda: 0 < len(service.decided) < count / 2, "a pass under way")
        before = len(service.decided)
        owner.stage.see(LIVE, generation=2)
        await until(lambda: (LIVE, owner.stage.history(LIVE).sequence) in service.decided[1:], "the change")
        assert len(service.decided) < before + 1_000


async def test_passes_that_are_asked_for_together_are_one():
    service = Small(lambda _: [])
    stage = Stage(service)
    for number in range(100):
        add(stage.journal, a_key(number), *OVER)
    async with stage.running():
        await until(lambda: len(service.decided) >= 100, "the first pass")
        await asyncio.sleep(1)
        service.decided.clear()
        for _ in range(17):
            stage.runtime.wake_all()
        await asyncio.sleep(60)
        assert len(service.decided) == 101, "each history once, the log's own included"


@pytest.mark.parametrize("over", [True, False])
async def test_no_pass_wakes_a_job_that_is_gone_with_all_that_it_had(over: bool):
    service = Small(lambda _: [])
    stage = Stage(service)
    add(stage.journal, a_key(1), *(OVER if over else OVER[:1]), JobGone())
    async with stage.running():
        stage.runtime.wake_all()
        await asyncio.sleep(1)
        assert a_key(1) not in {key for key, _ in service.decided}
