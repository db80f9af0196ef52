"""Jobs of several kinds in one cluster: each lives its own life, by its own resource and in its own status."""

from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.swarm import SWARMJOBS, WITH_SWARMS
from tests.kit.world import World, a_training_job


async def test_a_kind_that_is_not_served_delays_no_other_kind():
    async with World(kinds=WITH_SWARMS) as world:
        world.store.withdraw(SWARMJOBS)
        job = a_training_job(workers=1, activeDeadlineSeconds=60)
        world.apply(TRAININGJOBS, job)
        await world.running()
        await world.pass_seconds(70)
        await world.phase("Failed")
