"""Nodes that go, with the four services: workers leave in time, their places are filled again elsewhere."""

from typing import Any

import pytest

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


def nodes_of(world: World) -> dict[str, str]:
    """Where each pod of the job is."""
    return {name.removeprefix("resnet-"): held.manifest["spec"]["nodeName"] for name, held in world.pods().items()}


async def test_the_workers_of_a_tainted_node_move_and_the_job_goes_on():
    async with World(drain_seconds=DRAIN) as world:
        await a_job_on_a_node(world)
        taint(world, OLD)
        await world.until(lambda: world.hosts() == ["resnet-worker-2", "resnet-worker-3"], "others take their places")
        assert nodes_of(world)["worker-0"] == OLD, "the old workers drain meanwhile"
        assert world.count("HostsPublished") == 2, "the launcher loads new files once"
        await world.until(lambda: world.count("WorkersReleased") == 1, "they are released")
        await world.quiet()
        assert nodes_of(world) == {"launcher": NEW, "worker-2": NEW, "worker-3": NEW}
        job = world.job()
        assert (job.status.phase, job.scaling.size, job.pods.disrupted, job.attempt.vacancies) == ("Running", 2, {}, {})
        assert world.count("DisruptionNoticed") == 1
        assert world.count("WorkersReleased") == 1


async def test_a_pod_on_a_lost_node_never_ends_and_its_index_is_never_used_again():
    async with World(drain_seconds=DRAIN) as world:
        await a_job_on_a_node(world)
        lost = world.pods()["resnet-worker-1"]
        world.lingering.add(lost.metadata["uid"])
        taint(world, OLD, "node.kubernetes.io/out-of-service")
        await world.until(lambda: world.hosts() == ["resnet-worker-2", "resnet-worker-3"], "others take their places")
        await world.pass_seconds(3_600)
        assert world.pods()["resnet-worker-1"].metadata["uid"] == lost.metadata["uid"]
        assert sorted(nodes_of(world)) == ["launcher", "worker-1", "worker-2", "worker-3"]
        assert world.status(TRAININGJOBS, "resnet")["phase"] == "Running"


async def test_a_new_attempt_waits_until_nothing_of_the_old_one_can_run(world: World):
    await a_job_on_a_node(world, restartPolicy="OnFailure")
    lost = world.pods()["resnet-worker-1"].metadata["uid"]
    world.lingering.add(lost)
    world.exit_codes["resnet-launcher"] = 1
    await world.phase("Restarting")
    await world.pass_seconds(3_600)
    assert list(world.pods()) == ["resnet-worker-1"], "no pod of the new attempt beside one of the old"
    world.lingering.clear()
    await world.running()
    assert world.pods()["resnet-worker-1"].metadata["uid"] != lost


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


@pytest.mark.parametrize("author", ["watcher", "scaler", "scheduler"])
async def test_a_service_that_was_away_meanwhile_owes_the_same(author: str):
    async with World(drain_seconds=DRAIN) as world:
        await a_job_on_a_node(world)
        await world.kill(author)
        taint(world, OLD)
        await world.pass_seconds(30)
        await world.start(author)
        await world.until(lambda: world.hosts() == ["resnet-worker-2", "resnet-worker-3"], "others take their places")
        await world.until(lambda: world.count("WorkersReleased") == 1, "they are released")
        await world.quiet()
        assert world.count("WorkersReleased") == 1
