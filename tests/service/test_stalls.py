"""A process that stood still (paused, or a machine that slept) saw nothing meanwhile, and fails no job for it."""

import asyncio

from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.virtual_time import VirtualLoop, in_virtual_time
from tests.kit.world import a_scale_out, a_training_job
from tests.service.stage import Stage


@in_virtual_time
async def test_a_deadline_that_ran_out_while_the_watcher_stood_still_runs_afresh():
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with Stage() as stage:
        stage.apply(TRAININGJOBS, a_training_job(workers=1))
        await stage.running()
        stage.stuck.add("resnet-worker-1")
        stage.apply(SCALEOUTS, a_scale_out(1))
        await stage.phase("Scaling", SCALEOUTS, "out")
        await stage.pass_seconds(10)
        loop.stand_still(3_600)
        await stage.pass_seconds(40)
        assert stage.count("TimePassed") == 0
        await stage.pass_seconds(30)
        await stage.phase("ScaleFailed", SCALEOUTS, "out")
