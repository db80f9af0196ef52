"""Nodes that fall silent or go, with the four services: the job goes on, and its stuck pods are deleted if asked."""

from typing import Any

import pytest

from shared.cluster.kinds import NODES, PODS
from shared.errors import Transient
from shared.job.naming import FORCE_DELETE_AFTER
from shared.job.policies.replacement import STEADY_SECONDS
from tests.kit.weather import Failing, met_by
from tests.kit.world import NAMESPACE, TRAININGJOBS, World, a_training_job

SILENT, OTHER = "node-0", "node-1"
SINCE = "2030-01-01T00:00:00Z"


async def a_job_on_two_nodes(world: World, annotations: dict[str, str] | None = None) -> None:
    """It runs with worker-0 on the node that falls silent, and all else on the other one."""
    for node in (SILENT, OTHER):
        world.store.create(NODES, "", {"metadata": {"name": node}, "spec": {}})
    world.homes = {f"resnet-{name}": OTHER for name in ("launcher", "worker-1", "worker-2")}
    job = a_training_job(workers=2)
    job["metadata"]["annotations"] = annotations or {}
    world.apply(TRAININGJOBS, job)
    await world.running()


def report(world: World, ready: str) -> None:
    """The node's condition, as its kubelet or the node lifecycle controller writes it."""
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": SINCE}]
    world.store.patch(NODES, "", SILENT, {"status": {"conditions": conditions}}, subresource="status")


def mark(world: World, pod: str, *conditions: dict[str, Any]) -> None:
    types = {known["type"] for known in conditions}
    kept = [known for known in world.pods()[pod].manifest["status"]["conditions"] if known["type"] not in types]
    world.store.patch(PODS, NAMESPACE, pod, {"status": {"conditions": [*kept, *conditions]}}, subresource="status")


def given_up(world: World, pod: str) -> None:
    """The pod's toleration is over, and no kubelet ends it."""
    world.lingering.add(world.pods()[pod].metadata["uid"])
    mark(world, pod, {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"})
    world.store.delete(PODS, NAMESPACE, pod)


def message(world: World) -> str:
    """What the true conditions of the job say."""
    known = world.status(TRAININGJOBS, "resnet")["conditions"]
    return "; ".join(each["message"] for each in known if each["status"] == "True")


@pytest.mark.parametrize("forced", [False, True], ids=["as it is by default", "with the annotation"])
async def test_a_worker_that_is_given_up_is_replaced_and_its_pod_is_deleted_by_force_if_asked(
    world: World, forced: bool
):
    await a_job_on_two_nodes(world, {FORCE_DELETE_AFTER: "60"} if forced else None)
    report(world, "Unknown")
    given_up(world, "resnet-worker-0")
    await world.until(lambda: world.hosts() == ["resnet-worker-1", "resnet-worker-2"], "another takes its place")
    assert "resnet-worker-0" in world.pods()
    await world.pass_seconds(600)
    assert ("resnet-worker-0" in world.pods()) is not forced
    told = "kubectl delete pod -n team-a resnet-worker-0 --force --grace-period=0"
    assert (told in message(world)) is not forced
    assert ("NodeUnreachable", "resnet") in world.kubernetes_events()


async def test_a_pod_of_a_job_that_is_gone_is_deleted_by_force_if_asked(world: World):
    await a_job_on_two_nodes(world, {FORCE_DELETE_AFTER: "60"})
    report(world, "Unknown")
    await world.until(lambda: world.count("NodeLost") == 1)
    world.lingering.add(world.pods()["resnet-worker-0"].metadata["uid"])
    world.delete(TRAININGJOBS, "resnet")
    await world.until(lambda: list(world.pods()) == ["resnet-worker-0"], "the others go")
    await world.pass_seconds(600)
    assert not world.pods()


@pytest.mark.parametrize("restarts", [False, True], ids=["a blind watch", "another watcher"])
async def test_no_pod_is_deleted_by_force_while_nodes_are_not_seen(restarts: bool):
    unseen = Failing(lambda call: call.plural == NODES.plural, Transient("silence"), on=False, seconds=1.0)
    async with World(weather=met_by("watcher", unseen)) as world:
        await a_job_on_two_nodes(world, {FORCE_DELETE_AFTER: "60"})
        report(world, "Unknown")
        given_up(world, "resnet-worker-0")
        await world.until(lambda: world.hosts() == ["resnet-worker-1", "resnet-worker-2"], "another takes its place")
        # Its kubelet is back and ends it: it is not Ready, and does not show that its node was lost.
        mark(world, "resnet-worker-0", {"type": "Ready", "status": "False", "reason": "ContainersNotReady"})
        container = {"name": "main", "ready": False, "state": {"running": {}}}
        status = {"status": {"containerStatuses": [container]}}
        world.store.patch(PODS, NAMESPACE, "resnet-worker-0", status, subresource="status")
        unseen.on = True
        world.store.outage.cut_watches()
        if restarts:
            await world.kill("watcher")
        report(world, "True")
        await world.pass_seconds(300)
        if restarts:
            await world.start("watcher")
        await world.pass_seconds(300)
        assert "resnet-worker-0" in world.pods(), "its node is back, and the watcher could not know"
        unseen.on = False
        await world.until(lambda: world.count("NodeBack") == 1, "the node is back")
        await world.pass_seconds(300)
        assert "resnet-worker-0" in world.pods()


async def test_a_watcher_that_begins_anew_measures_the_time_of_a_forced_deletion_anew(world: World):
    await a_job_on_two_nodes(world, {FORCE_DELETE_AFTER: "60"})
    report(world, "Unknown")
    given_up(world, "resnet-worker-0")
    await world.pass_seconds(50)
    await world.restart("watcher")
    await world.pass_seconds(50)
    assert "resnet-worker-0" in world.pods()
    await world.pass_seconds(50)
    assert "resnet-worker-0" not in world.pods()


async def test_on_a_spot_node_one_after_the_other_the_job_goes_on_for_ever():
    async with World(drain_seconds=5) as world:
        for node in (SILENT, OTHER):
            world.store.create(NODES, "", {"metadata": {"name": node}, "spec": {}})
        world.homes = {"resnet-launcher": OTHER}
        await world.trains(workers=2)
        old = SILENT
        for number in range(1, 12):
            new = f"spot-{number}"
            world.store.create(NODES, "", {"metadata": {"name": new}, "spec": {}})
            workers = [f"resnet-worker-{index}" for index in (2 * number, 2 * number + 1)]
            world.homes |= dict.fromkeys(workers, new)
            notice = {"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}
            world.store.patch(NODES, "", old, {"spec": {"taints": [notice]}})
            await world.until(lambda: world.hosts() == workers, "all have moved")  # noqa: B023  within the round
            world.store.delete(NODES, "", old)
            await world.pass_seconds(STEADY_SECONDS)
            old = new
        await world.quiet()
        assert world.status(TRAININGJOBS, "resnet")["workers"] == "2/2"
        assert world.status(TRAININGJOBS, "resnet")["restartCount"] == 0
