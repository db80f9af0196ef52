"""A log restored from a backup is the same log, and shorter: what requests show of the lost end is written over too."""

from shared.frameworks.scale_requests import SCALEOUTS
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import World, a_scale_out
from tests.service.test_heads import a_job_of_a_lost_log, going_on, head


@in_virtual_time
async def test_a_request_that_was_under_way_shows_that_it_failed():
    async with World() as lost:
        await a_job_of_a_lost_log(lost)
        lost.stuck.add("resnet-worker-3")
        lost.apply(SCALEOUTS, a_scale_out(1, name="under-way"))
        await lost.phase("Scaling", SCALEOUTS, "under-way")
        await lost.until(lambda: "resnet-worker-3" in lost.pods())
        await lost.quiet()
        named = head(lost)
    async with World(of=lost, log="memory") as world:
        await world.until(lambda: world.count("HistoryBroken") == 1)
        world.annotate("resnet", {"muster.dev/accept-history": named})
        await going_on(world)
        await world.phase("ScaleFailed", SCALEOUTS, "under-way")
        assert world.condition(SCALEOUTS, "under-way", "ScaleFailed") == ("True", "HistoryLost")
