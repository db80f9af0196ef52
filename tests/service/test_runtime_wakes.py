"""Wake-ups: a job of a thousand workers is not decided a thousand times because its effects ended."""

import asyncio
from itertools import pairwise

from tests.kit.virtual_time import in_virtual_time, until
from tests.service.test_runtime import Small, Stage, wanting


@in_virtual_time
async def test_effects_that_end_together_wake_their_job_together():
    stage = Stage(Small(wanting(*range(500))))
    async with stage.running():
        stage.see()
        await until(lambda: len(stage.service.acted) == 500, "the effects")
        before = len(stage.service.decided)
        await asyncio.sleep(5.5)
        assert len(stage.service.acted) == 1_000, "the outcome of none was seen: each is repeated"
        assert len(stage.service.decided) - before < 25


@in_virtual_time
async def test_a_wake_up_never_comes_too_early():
    stage = Stage(Small(wanting(0)))
    async with stage.running():
        stage.see()
        await asyncio.sleep(60)
        times = [time for _, time in stage.service.acted]
        waits = [later - earlier for earlier, later in pairwise(times)]
        assert len(waits) > 9
        assert all(5.0 <= wait < 5.2 for wait in waits)
