"""A lease that runs out and comes back within one renewal: what was not done in the gap is done afterwards."""

import asyncio

import pytest

from shared.eventlog.account import LEASES
from shared.runtime.lease import Lease
from shared.runtime.run import Runtime
from tests.kit.virtual_time import until
from tests.memory.eventlog import MemoryEventLog, MemoryJournal
from tests.service.test_lease import KEY, Weather, now
from tests.service.test_runtime import Small, Stage, restarting

HOUR_SECONDS = 3_600.0


@pytest.mark.parametrize("seconds", [pytest.param(0.75, id="two slow writes"), pytest.param(1.2, id="one slow write")])
async def test_an_event_that_came_while_the_lease_was_lapsed_is_acted_on(seconds: float):
    line = Weather(await MemoryEventLog(MemoryJournal(clock=now), user=KEY).bucket(LEASES))
    lease = Lease(line, KEY, "a")
    stage = Stage(Small(restarting(1)))
    stage.runtime = Runtime(stage.service, stage.line, owns=lease.held, chance=lambda: 0.5)
    async with stage.running():
        keeping = asyncio.create_task(lease.keep(stage.runtime.owned))
        await until(lambda: lease.held() and stage.runtime.current, "the lease")
        line.answers_after = seconds
        await until(lambda: not lease.held(), "the gap", seconds=5)
        stage.see()
        await until(lambda: stage.history().job.resource.generation == 1, "the fold")
        assert not lease.held()
        line.answers_after = 0.0
        await asyncio.sleep(HOUR_SECONDS)
        assert lease.held()
        assert stage.history().job.attempt.number == 1
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
