"""Nodes that go, with the four services: workers leave in time, their places are filled again elsewhere."""

from typing import Any

from shared.cluster.kinds import NODES
from shared.job.policies.replacement import STEADY_SECONDS
from tests.kit.world import TRAININGJOBS, World, a_training_job

OLD, NEW = "node-0", "node-1"
DRAIN = 5


async def a_job_on_a_node(world: World, *, of_workers: str = "Never", **spec: Any) -> None:
    """It runs with two workers on the old node; its launcher, and whatever comes later, is placed on the new one."""
    for node in (OLD, NEW):
        world.store.create(NODES, "", {"metadata": {"name": node}, "spec": {}})
    world.homes = {f"resnet-{name}": NEW for name in ("launcher", "worker-2", "worker-3")}
    job = a_training_job(workers=2, **spec)
    job["spec"]["etReplicaSpecs"]["worker"]["restartPolicy"] = of_workers
    world.apply(TRAININGJOBS, job)
    await world.running()


def taint(world: World, node: str, key: str = "ToBeDeletedByClusterAutoscaler") -> None:
    world.store.patch(NODES, "", node, {"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}})


async def test_on_a_spot_node_one_after_the_other_the_job_goes_on_for_ever():
    async with World(drain_seconds=DRAIN) as world:
        await a_job_on_a_node(world)
        for number in range(1, 12):
            old, new = f"spot-{number - 1}" if number > 1 else OLD, f"spot-{number}"
            world.store.create(NODES, "", {"metadata": {"name": new}, "spec": {}})
            workers = [f"resnet-worker-{index}" for index in (2 * number, 2 * number + 1)]
            world.homes |= dict.fromkeys(workers, new)
            taint(world, old, "aws-node-termination-handler/spot-itn")
            await world.until(lambda: world.hosts() == workers, "all have moved")  # noqa: B023  within the round
            world.store.delete(NODES, "", old)
            await world.pass_seconds(STEADY_SECONDS)
        await world.quiet()
        assert world.status(TRAININGJOBS, "resnet")["workers"] == "2/2"
        assert world.status(TRAININGJOBS, "resnet")["restartCount"] == 0
