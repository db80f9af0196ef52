"""Jobs of several kinds in one cluster: each lives its own life, by its own resource and in its own status."""

from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.swarm import SWARMJOBS, WITH_SWARMS, a_swarm_job
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import NAMESPACE, a_training_job
from tests.service.stage import Stage


@in_virtual_time
async def test_two_jobs_of_one_name_run_and_end_side_by_side():
    async with Stage(kinds=WITH_SWARMS) as stage:
        stage.apply(TRAININGJOBS, a_training_job(workers=1))
        stage.apply(SWARMJOBS, a_swarm_job(bees=2))
        await stage.running()
        await stage.until(lambda: stage.status(SWARMJOBS, "resnet").get("state") == "Running")
        assert sorted(stage.pods()) == ["resnet-bee-0", "resnet-bee-1", "resnet-launcher", "resnet-worker-0"]
        assert stage.status(SWARMJOBS, "resnet")["bees"] == 2
        stage.exit_codes["resnet-bee-0"] = 0
        await stage.until(lambda: stage.status(SWARMJOBS, "resnet").get("state") == "Succeeded")
        assert stage.status(TRAININGJOBS, "resnet")["phase"] == "Running"
        stage.delete(TRAININGJOBS, "resnet")
        await stage.until(lambda: stage.count("JobGone") == 1)
        await stage.quiet()
        swarm = stage.store.get(SWARMJOBS, NAMESPACE, "resnet")
        assert swarm is not None
        assert stage.owned_by(swarm.metadata["uid"])


@in_virtual_time
async def test_a_kind_that_is_not_served_delays_no_other_kind():
    async with Stage(kinds=WITH_SWARMS) as stage:
        stage.store.withdraw(SWARMJOBS)
        job = a_training_job(workers=1, activeDeadlineSeconds=60)
        stage.apply(TRAININGJOBS, job)
        await stage.running()
        await stage.pass_seconds(70)
        await stage.phase("Failed")
