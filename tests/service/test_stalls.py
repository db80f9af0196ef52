"""A process that stood still (paused, or a machine that slept) saw nothing meanwhile, and fails no job for it."""

import asyncio

from shared.frameworks.scale_requests import SCALEOUTS
from tests.kit.virtual_time import VirtualLoop, in_virtual_time
from tests.kit.world import World


@in_virtual_time
async def test_a_deadline_that_ran_out_while_the_watcher_stood_still_runs_afresh():
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with World() as world:
        await world.trains(workers=1)
        await world.waits_in_a_scale_out("resnet-worker-1")
        await world.pass_seconds(10)
        loop.stand_still(3_600)
        await world.pass_seconds(40)
        assert world.count("TimePassed") == 0
        await world.pass_seconds(30)
        await world.phase("ScaleFailed", SCALEOUTS, "out")
