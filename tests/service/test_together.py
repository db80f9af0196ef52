"""The four services together: whole lives of jobs, on a log and a cluster in memory."""

from tests.kit.world import SCALEINS, SCALEOUTS, TRAININGJOBS, World, a_scale_in, a_scale_out


async def test_a_job_lives_from_apply_to_success():
    async with World() as world:
        await world.trains(workers=2)
        assert sorted(world.pods()) == ["resnet-launcher", "resnet-worker-0", "resnet-worker-1"]
        assert world.hosts() == ["resnet-worker-0", "resnet-worker-1"]
        world.exit_codes["resnet-launcher"] = 0
        await world.phase("Succeeded")
        await world.until(lambda: list(world.pods()) == ["resnet-launcher"], "the workers are cleaned up")


async def test_a_job_grows_and_shrinks_while_it_trains():
    async with World() as world:
        await world.trains(workers=2)
        world.apply(SCALEOUTS, a_scale_out(2))
        await world.phase("ScaleSucceeded", SCALEOUTS, "out")
        assert world.hosts() == [f"resnet-worker-{index}" for index in range(4)]
        world.apply(SCALEINS, a_scale_in(1))
        await world.phase("ScaleSucceeded", SCALEINS, "in")
        assert world.hosts() == [f"resnet-worker-{index}" for index in range(3)]
        await world.running()
        assert world.status(TRAININGJOBS, "resnet")["workers"] == "3/3"
        assert "resnet-worker-3" not in world.pods()
