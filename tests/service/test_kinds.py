"""Jobs of several kinds in one cluster: each lives its own life, by its own resource and in its own status."""

from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.swarm import SWARMJOBS, WITH_SWARMS, a_swarm_job
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import NAMESPACE, World, a_training_job


@in_virtual_time
async def test_two_jobs_of_one_name_run_and_end_side_by_side():
    async with World(kinds=WITH_SWARMS) as world:
        world.apply(TRAININGJOBS, a_training_job(workers=1))
        world.apply(SWARMJOBS, a_swarm_job(bees=2))
        await world.running()
        await world.until(lambda: world.status(SWARMJOBS, "resnet").get("state") == "Running")
        assert sorted(world.pods()) == ["resnet-bee-0", "resnet-bee-1", "resnet-launcher", "resnet-worker-0"]
        assert world.status(SWARMJOBS, "resnet")["bees"] == 2
        world.exit_codes["resnet-bee-0"] = 0
        await world.until(lambda: world.status(SWARMJOBS, "resnet").get("state") == "Succeeded")
        assert world.status(TRAININGJOBS, "resnet")["phase"] == "Running"
        world.delete(TRAININGJOBS, "resnet")
        await world.until(lambda: world.count("JobGone") == 1)
        await world.quiet()
        swarm = world.store.get(SWARMJOBS, NAMESPACE, "resnet")
        assert swarm is not None
        assert world.owned_by(swarm.metadata["uid"])


@in_virtual_time
async def test_a_kind_that_is_not_served_delays_no_other_kind():
    async with World(kinds=WITH_SWARMS) as world:
        world.store.withdraw(SWARMJOBS)
        job = a_training_job(workers=1, activeDeadlineSeconds=60)
        world.apply(TRAININGJOBS, job)
        await world.running()
        await world.pass_seconds(70)
        await world.phase("Failed")
