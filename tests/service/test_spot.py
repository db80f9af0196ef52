"""Nodes that go, with the four services: workers leave in time, their places are filled again elsewhere."""

from typing import Any

import pytest

from shared.cluster.kinds import NODES, PODS
from shared.job.policies.replacement import STEADY_SECONDS
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import NAMESPACE, TRAININGJOBS, a_training_job
from tests.service.stage import Stage

OLD, NEW = "node-0", "node-1"
DRAIN = 5


async def a_job_on_a_node(stage: Stage, *, of_workers: str = "Never", **spec: Any) -> None:
    """It runs with two workers on the old node; its launcher, and whatever comes later, is placed on the new one."""
    for node in (OLD, NEW):
        stage.store.create(NODES, "", {"metadata": {"name": node}, "spec": {}})
    stage.homes = {f"resnet-{name}": NEW for name in ("launcher", "worker-2", "worker-3")}
    job = a_training_job(workers=2, **spec)
    job["spec"]["etReplicaSpecs"]["worker"]["restartPolicy"] = of_workers
    stage.apply(TRAININGJOBS, job)
    await stage.running()


def taint(stage: Stage, node: str, key: str = "ToBeDeletedByClusterAutoscaler") -> None:
    stage.store.patch(NODES, "", node, {"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}})


def nodes_of(stage: Stage) -> dict[str, str]:
    """Where each pod of the job is."""
    return {name.removeprefix("resnet-"): held.manifest["spec"]["nodeName"] for name, held in stage.pods().items()}


@in_virtual_time
async def test_the_workers_of_a_tainted_node_move_and_the_job_goes_on():
    async with Stage(drain_seconds=DRAIN) as stage:
        await a_job_on_a_node(stage)
        taint(stage, OLD)
        await stage.until(lambda: stage.hosts() == [], "they leave the hosts file at once")
        assert nodes_of(stage)["worker-0"] == OLD, "and drain meanwhile"
        await stage.until(lambda: stage.hosts() == ["resnet-worker-2", "resnet-worker-3"], "others take their places")
        await stage.quiet()
        assert nodes_of(stage) == {"launcher": NEW, "worker-2": NEW, "worker-3": NEW}
        job = stage.job()
        assert (job.phase, job.scaling.size, job.disrupted, job.attempt.vacancies) == ("Running", 2, {}, {})
        assert stage.count("DisruptionNoticed") == 1
        assert stage.count("WorkersReleased") == 1


@in_virtual_time
async def test_an_unknown_taint_moves_no_pod():
    async with Stage() as stage:
        await a_job_on_a_node(stage)
        taint(stage, OLD, "DeletionCandidateOfClusterAutoscaler")
        await stage.pass_seconds(60)
        assert stage.count("DisruptionNoticed") == 0


@in_virtual_time
async def test_workers_of_a_node_that_vanishes_are_replaced():
    async with Stage(drain_seconds=DRAIN) as stage:
        await a_job_on_a_node(stage)
        stage.store.delete(NODES, "", OLD)
        await stage.until(lambda: stage.hosts() == ["resnet-worker-2", "resnet-worker-3"], "others take their places")


@in_virtual_time
async def test_a_pod_that_is_to_be_evicted_says_so_itself():
    async with Stage(drain_seconds=DRAIN) as stage:
        await a_job_on_a_node(stage)
        conditions = stage.pods()["resnet-worker-1"].manifest["status"]["conditions"]
        doomed = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
        status = {"conditions": [*conditions, doomed]}
        stage.store.patch(PODS, NAMESPACE, "resnet-worker-1", {"status": status}, subresource="status")
        await stage.until(lambda: stage.hosts() == ["resnet-worker-0", "resnet-worker-2"], "another takes its place")
        assert stage.count("DisruptionNoticed") == 0


@in_virtual_time
async def test_a_pod_on_a_lost_node_never_ends_and_its_index_is_never_used_again():
    async with Stage(drain_seconds=DRAIN) as stage:
        await a_job_on_a_node(stage)
        lost = stage.pods()["resnet-worker-1"]
        stage.lingering.add(lost.metadata["uid"])
        taint(stage, OLD, "node.kubernetes.io/out-of-service")
        await stage.until(lambda: stage.hosts() == ["resnet-worker-2", "resnet-worker-3"], "others take their places")
        await stage.pass_seconds(3_600)
        assert stage.pods()["resnet-worker-1"].metadata["uid"] == lost.metadata["uid"]
        assert sorted(nodes_of(stage)) == ["launcher", "worker-1", "worker-2", "worker-3"]
        assert stage.status(TRAININGJOBS, "resnet")["phase"] == "Running"


@in_virtual_time
async def test_a_new_attempt_waits_until_nothing_of_the_old_one_can_run():
    async with Stage() as stage:
        await a_job_on_a_node(stage, restartPolicy="OnFailure")
        lost = stage.pods()["resnet-worker-1"].metadata["uid"]
        stage.lingering.add(lost)
        stage.exit_codes["resnet-launcher"] = 1
        await stage.phase("Restarting")
        await stage.pass_seconds(3_600)
        assert list(stage.pods()) == ["resnet-worker-1"], "no pod of the new attempt beside one of the old"
        stage.lingering.clear()
        await stage.running()
        assert stage.pods()["resnet-worker-1"].metadata["uid"] != lost


@in_virtual_time
async def test_a_dead_worker_leaves_at_once_and_is_replaced():
    async with Stage() as stage:
        await a_job_on_a_node(stage, of_workers="OnFailure")
        stage.store.remove(PODS, NAMESPACE, "resnet-worker-0")
        await stage.until(lambda: stage.hosts() == ["resnet-worker-1"], "it leaves at once")
        await stage.until(lambda: stage.hosts() == ["resnet-worker-1", "resnet-worker-2"], "another comes")


@in_virtual_time
async def test_on_a_spot_node_one_after_the_other_the_job_goes_on_for_ever():
    async with Stage(drain_seconds=DRAIN) as stage:
        await a_job_on_a_node(stage)
        for number in range(1, 12):
            old, new = f"spot-{number - 1}" if number > 1 else OLD, f"spot-{number}"
            stage.store.create(NODES, "", {"metadata": {"name": new}, "spec": {}})
            workers = [f"resnet-worker-{index}" for index in (2 * number, 2 * number + 1)]
            stage.homes |= dict.fromkeys(workers, new)
            taint(stage, old, "aws-node-termination-handler/spot-itn")
            await stage.until(lambda: stage.hosts() == workers, "all have moved")  # noqa: B023  within the round
            stage.store.delete(NODES, "", old)
            await stage.pass_seconds(STEADY_SECONDS)
        await stage.quiet()
        assert stage.status(TRAININGJOBS, "resnet")["workers"] == "2/2"
        assert stage.status(TRAININGJOBS, "resnet")["restartCount"] == 0


@pytest.mark.parametrize("author", ["watcher", "scaler", "scheduler"])
@in_virtual_time
async def test_a_service_that_was_away_meanwhile_owes_the_same(author: str):
    async with Stage(drain_seconds=DRAIN) as stage:
        await a_job_on_a_node(stage)
        await stage.kill(author)
        taint(stage, OLD)
        await stage.pass_seconds(30)
        await stage.start(author)
        await stage.until(lambda: stage.hosts() == ["resnet-worker-2", "resnet-worker-3"], "others take their places")
        await stage.quiet()
        assert stage.count("WorkersReleased") == 1


@in_virtual_time
async def test_where_workers_are_taken_as_soon_as_they_stand_they_come_ever_later():
    async with Stage() as stage:
        await a_job_on_a_node(stage, of_workers="OnFailure")
        for _ in range(620):
            for name in [name for name in stage.pods() if name not in ("resnet-launcher", "resnet-worker-0")]:
                stage.store.remove(PODS, NAMESPACE, name)
            await stage.pass_seconds(1)
        assert stage.job().attempt.next_index == 9, "seven came, after 0, 10, 20, 40, 80, 160 and 300 s"
