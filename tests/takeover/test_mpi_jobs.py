"""MPIJobs that training-operator (v1) or mpi-operator (v2beta1) began, with the services on a cluster in memory."""

from typing import Any

import pytest

from shared.cluster.kinds import CONFIGMAPS, PODS
from shared.frameworks.mpijob import MPIJOB, OF_A_BATCH_JOB
from tests.kit.world import NAMESPACE, World
from tests.takeover.recorded import put, recorded, uids

MPIJOBS = MPIJOB.resource
WORKERS = ["linpack-worker-0", "linpack-worker-1"]
LINPACK = ["linpack-launcher", *WORKERS]
BOTH = "linpack-worker-0 slots=1\nlinpack-worker-1 slots=1\n"


def a_world() -> tuple[World, str]:
    world = World(takes_over=True)
    return world, put(world.store, recorded("mpijob-running"))


def of_v2beta1(*conditions: str, **fields: Any) -> dict[str, Any]:
    """A job of mpi-operator: its definition fills in `sshAuthMountPath`, and its launcher is a Batch Job's pod."""
    job = recorded("mpijob-running")[0]
    job["spec"] |= {"sshAuthMountPath": "/root/.ssh"}
    job["spec"]["runPolicy"] |= fields
    created = job["status"]["conditions"][0]
    told = [{**created, "type": kind, "reason": f"MPIJob{kind}"} for kind in conditions]
    job["status"]["conditions"] = [created, *told]
    return job


def state(world: World) -> str:
    return str((world.status(MPIJOBS, "linpack").get("conditions") or [{}])[-1].get("type"))


def hosts(world: World) -> dict[str, str]:
    held = world.store.get(CONFIGMAPS, NAMESPACE, "linpack-config")
    assert held is not None
    found: dict[str, str] = held.manifest["data"]
    return found


async def taken_over(world: World, uid: str) -> None:
    def claimed() -> bool:
        held = [world.store.get(PODS, NAMESPACE, name) for name in LINPACK]
        return all(pod and pod.metadata["labels"].get("muster.dev/job-uid") == uid for pod in held)

    await world.until(claimed, "all pods are claimed")


async def test_a_running_job_of_v1_goes_on_with_its_pods_and_finishes():
    world, uid = a_world()
    before = uids(world)
    async with world:
        await taken_over(world, uid)
        await world.quiet()
        assert uids(world) == before
        assert state(world) == "Running"
        assert world.status(MPIJOBS, "linpack")["startTime"] == "2029-12-31T22:00:00Z"
        assert hosts(world)["hostfile"] == BOTH
        # The launcher goes on to reach its workers by it.
        assert "kubexec.sh" in hosts(world)
        assert (world.count("SlotsAssigned"), world.count("EffectRefused")) == (0, 0)
        world.exit_codes["linpack-launcher"] = 0
        await world.until(lambda: state(world) == "Succeeded")
        await world.quiet()
        assert uids(world) == {"linpack-launcher": before["linpack-launcher"]}, "cleanPodPolicy Running"


async def test_a_worker_that_is_lost_afterwards_leaves_the_hosts_file_of_a_job_that_goes_on():
    world, uid = a_world()
    async with world:
        await taken_over(world, uid)
        world.store.remove(PODS, NAMESPACE, "linpack-worker-1")
        await world.until(lambda: hosts(world)["hostfile"] == "linpack-worker-0 slots=1\n")
        await world.until(lambda: hosts(world)["hostfile"] == BOTH, "it comes back under its name")
        await world.until(lambda: state(world) == "Running")


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
async def test_a_finished_job_of_v2beta1_is_never_run_again_and_expires(end: str):
    world = World(takes_over=True)
    job = of_v2beta1(end, ttlSecondsAfterFinished=7260)
    job["status"] |= {"completionTime": "2029-12-31T23:00:00Z", "replicaStatuses": {"Launcher": {"succeeded": 1}}}
    put(world.store, [job])
    async with world:
        await world.until(lambda: world.count("JobAdopted") == 1)
        await world.quiet()
        assert (state(world), world.pods()) == (end, {})
        await world.pass_seconds(3000)
        assert world.store.get(MPIJOBS, NAMESPACE, "linpack") is None


async def test_a_running_job_of_v2beta1_is_left_alone_until_its_own_operator_wrote_its_end():
    world = World(takes_over=True)
    job = of_v2beta1("Running")
    put(world.store, [job])
    async with world:
        before = world.store.version
        await world.pass_seconds(600)
        assert world.store.version == before
        assert (world.count("JobOfAnother"), world.count("JobAdopted")) == (1, 0)
        assert world.job("linpack").resource.obstacle == OF_A_BATCH_JOB
        done = of_v2beta1("Running", "Succeeded")["status"] | {"completionTime": "2029-12-31T23:00:00Z"}
        world.store.patch(MPIJOBS, NAMESPACE, "linpack", {"status": done}, subresource="status")
        await world.until(lambda: world.count("JobAdopted") == 1)
        await world.quiet()
        assert (state(world), world.pods()) == ("Succeeded", {})
        assert (world.count("JobOfAnother"), world.job("linpack").resource.obstacle) == (2, "")


async def test_a_suspended_job_of_v2beta1_begins_here_when_it_is_resumed():
    world = World(takes_over=True)
    put(world.store, [of_v2beta1("Suspended", suspend=True)])
    async with world:
        await world.until(lambda: world.count("JobAdopted") == 1)
        await world.quiet()
        assert (state(world), world.pods()) == ("Suspended", {})
        world.store.patch(MPIJOBS, NAMESPACE, "linpack", {"spec": {"runPolicy": {"suspend": False}}})
        await world.until(lambda: state(world) == "Running")
        assert sorted(world.pods()) == LINPACK


@pytest.mark.parametrize("seen", ["the workers", "no pod"])
async def test_a_running_job_whose_launcher_is_not_seen_is_left_alone(seen: str):
    """As of mpi-operator 0.3, whose definition fills nothing in, and of 0.2, whose pods have other labels."""
    job, *things = recorded("mpijob-running")
    pods = [thing for thing in things if thing["kind"] == "Pod"]
    shown = [pod for pod in pods if "launcher" not in pod["metadata"]["name"]] if seen == "the workers" else []
    world = World(takes_over=True)
    put(world.store, [job, *shown])
    before = uids(world)
    async with world:
        await world.pass_seconds(30)
        assert uids(world) == before
        assert (world.count("JobAdopted"), world.count("JobFailed")) == (0, 0)
