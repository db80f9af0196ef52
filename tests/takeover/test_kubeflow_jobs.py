"""Jobs that training-operator began, with the four services on a cluster in memory."""

from typing import Any

import pytest

from shared.cluster.kinds import PODS, SERVICES
from shared.frameworks.tfjob import TFJOB
from tests.kit.world import NAMESPACE, World
from tests.takeover.recorded import put, recorded, uids

TFJOBS = TFJOB.resource
MNIST = ["mnist-chief-0", "mnist-ps-0", "mnist-worker-0", "mnist-worker-1"]


def a_world(*, takes_over: bool = True, **status: Any) -> tuple[World, str]:
    world = World(takes_over=takes_over)
    objects = recorded("tfjob-running")
    objects[0]["status"] |= status
    return world, put(world.store, objects)


def state(world: World, name: str = "mnist") -> str:
    return str((world.status(TFJOBS, name).get("conditions") or [{}])[-1].get("type"))


async def taken_over(world: World, uid: str, pods: list[str]) -> None:
    """Wait until its pods and their Services carry our labels."""

    def claimed() -> bool:
        held = [world.store.get(resource, NAMESPACE, name) for resource in (PODS, SERVICES) for name in pods]
        return all(thing and thing.metadata["labels"].get("muster.dev/job-uid") == uid for thing in held)

    await world.until(claimed, "all is claimed")


async def test_a_running_tf_job_goes_on_with_its_pods_and_finishes():
    world, uid = a_world()
    before = uids(world)
    async with world:
        await taken_over(world, uid, MNIST)
        await world.quiet()
        assert uids(world) == before
        assert state(world) == "Running"
        status = world.status(TFJOBS, "mnist")
        assert status["startTime"] == "2029-12-31T22:00:00Z"
        assert {kind: counts["active"] for kind, counts in status["replicaStatuses"].items()} == {
            "Chief": 1,
            "PS": 1,
            "Worker": 2,
        }
        running = next(known for known in status["conditions"] if known["type"] == "Running")
        assert running["lastTransitionTime"] == "2029-12-31T22:01:00Z"
        assert (world.count("SlotsAssigned"), world.count("EffectRefused")) == (0, 0)
        world.exit_codes["mnist-chief-0"] = 0
        await world.until(lambda: state(world) == "Succeeded")
        await world.quiet()
        assert uids(world) == before, "cleanPodPolicy None"


async def test_a_worker_that_is_lost_afterwards_is_made_again_under_its_name():
    world, uid = a_world()
    before = uids(world)
    async with world:
        await taken_over(world, uid, MNIST)
        world.store.remove(PODS, NAMESPACE, "mnist-worker-1")
        await world.until(lambda: uids(world).get("mnist-worker-1") not in (None, before["mnist-worker-1"]))
        await world.quiet()
        kept = [name for name in MNIST if name != "mnist-worker-1"]
        assert {name: uids(world)[name] for name in kept} == {name: before[name] for name in kept}
        assert world.store.get(SERVICES, NAMESPACE, "mnist-worker-1")


async def test_a_failed_worker_beyond_the_replicas_ends_nothing():
    """The job was scaled in there, and its third worker failed before the operator deleted it."""
    world = World(takes_over=True)
    third = next(it for it in recorded("tfjob-running") if it["kind"] == "Pod" and it["metadata"]["name"] == MNIST[-1])
    third["metadata"]["name"] = "mnist-worker-2"
    third["metadata"]["labels"]["training.kubeflow.org/replica-index"] = "2"
    end = {"name": "tensorflow", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    third["status"] = {"phase": "Failed", "containerStatuses": [end]}
    uid = put(world.store, [*recorded("tfjob-running"), third])
    before = uids(world)
    async with world:
        await taken_over(world, uid, MNIST)
        await world.quiet()
        assert state(world) == "Running"
        assert {name: uids(world)[name] for name in MNIST} == {name: before[name] for name in MNIST}
        assert world.count("SlotsAssigned") == 0


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
async def test_a_finished_one_is_never_run_again(end: str):
    world = World(takes_over=True)
    job = recorded("tfjob-running")[0]
    job["spec"]["runPolicy"]["ttlSecondsAfterFinished"] = 7260
    done = {"type": end, "status": "True", "reason": f"TFJob{end}", "lastTransitionTime": "2029-12-31T23:00:00Z"}
    job["status"]["conditions"][1]["status"] = "False"
    job["status"] |= {
        "completionTime": "2029-12-31T23:00:00Z",
        "conditions": [*job["status"]["conditions"], done],
        "replicaStatuses": {"Chief": {"succeeded": 1}, "PS": {}, "Worker": {"succeeded": 2}},
    }
    put(world.store, [job])
    async with world:
        await world.until(lambda: world.count("JobAdopted") == 1)
        await world.quiet()
        assert (state(world), world.pods()) == (end, {})
        assert world.status(TFJOBS, "mnist")["replicaStatuses"]["Worker"]["succeeded"] == 2
        await world.pass_seconds(2600)
        assert world.store.get(TFJOBS, NAMESPACE, "mnist") is not None
        await world.pass_seconds(100)
        assert world.store.get(TFJOBS, NAMESPACE, "mnist") is None
