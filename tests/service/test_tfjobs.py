"""What TFJobs promise beside what all kinds of the training operator do, with all four services."""

import json

import pytest

from shared.cluster.kinds import PODS
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import TRAININGJOBS
from tests.frameworks.documents import Document, changed, tf_job
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import a_training_job
from tests.service.kubeflow import Play, applied

TFJOBS = TFJOB.resource


def a_job(*, restart: str = "", policy: Document | None = None, **replicas: int) -> Document:
    return applied(tf_job(**replicas), run=policy, restart=restart)


@in_virtual_time
async def test_dynamic_workers_follow_the_wanted_size():
    async with Play(TFJOB) as world:
        job = changed(a_job(PS=1, Worker=1), "spec.enableDynamicWorker", True)
        world.play(job)
        await world.comes_to("Running")
        world.scale(3)
        await world.until(lambda: world.counts("Worker") == (3, 0, 0))
        first = world.uid("mnist-worker-0")
        world.scale(2)
        await world.until(lambda: sorted(world.pods()) == ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1"])
        await world.until(lambda: world.services() == ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1"])
        assert world.uid("mnist-worker-0") == first
        assert world.state() == "Running"
        world.exit_codes["mnist-worker-1"] = 1
        await world.until(lambda: world.counts("Worker") == (1, 0, 1))
        await world.quiet()
        assert world.state() == "Running"
        world.exit_codes["mnist-worker-0"] = 0
        await world.comes_to("Succeeded")


@in_virtual_time
async def test_a_suspended_job_may_change_its_size():
    async with Play(TFJOB) as world:
        world.play(a_job(PS=1, Worker=1))
        await world.comes_to("Running")
        world.suspend(suspend=True)
        await world.comes_to("Suspended")
        await world.until(lambda: not world.pods())
        world.edit({"tfReplicaSpecs": {"Worker": {"replicas": 3}, "PS": {"replicas": 2}}})
        world.suspend(suspend=False)
        await world.comes_to("Running")
        await world.until(lambda: world.counts("Worker") == (3, 0, 0) and world.counts("PS") == (2, 0, 0))
        (config,) = world.pods()["mnist-worker-2"].manifest["spec"]["containers"][0]["env"]
        cluster = json.loads(config["value"])["cluster"]
        assert (len(cluster["ps"]), len(cluster["worker"])) == (2, 3)


@in_virtual_time
async def test_a_type_that_is_taken_out_of_the_resource_breaks_nothing():
    async with Play(TFJOB) as world:
        world.play(a_job(Chief=1, PS=1, Worker=1))
        await world.comes_to("Running")
        await world.until(lambda: len(world.pods()) == 3)
        world.edit({"tfReplicaSpecs": {"PS": None}})
        world.delete(PODS, "mnist-ps-0")
        await world.until(lambda: "mnist-ps-0" not in world.pods())
        await world.quiet()
        assert world.state() == "Running"
        world.exit_codes["mnist-chief-0"] = 0
        await world.comes_to("Succeeded")
        assert {*world.shown()["replicaStatuses"]} == {"Chief", "Worker"}


@in_virtual_time
async def test_a_type_that_is_taken_out_while_its_job_starts_leaves_the_status_once_the_job_runs():
    async with Play(TFJOB) as world:
        world.stuck |= {"mnist-chief-0", "mnist-ps-0", "mnist-worker-0"}
        world.play(a_job(Chief=1, PS=1, Worker=1))
        await world.until(lambda: len(world.pods()) == 3)
        world.edit({"tfReplicaSpecs": {"PS": None}})
        await world.quiet()
        assert "put the role ps back" in world.why()
        assert {*world.shown()["replicaStatuses"]} == {"Chief", "PS", "Worker"}
        world.stuck.clear()
        await world.comes_to("Running")
        await world.quiet()
        assert {*world.shown()["replicaStatuses"]} == {"Chief", "Worker"}


@pytest.mark.parametrize("first", ["TFJob", "TrainingJob"])
@in_virtual_time
async def test_of_two_jobs_that_want_one_pod_name_the_later_one_waits_and_says_so(first: str):
    """Both call their first worker `mnist-worker-0`: neither takes the other's pod for its own."""
    async with Play(TFJOB) as world:
        wants = {
            "TFJob": (TFJOBS, a_job(Worker=1)),
            "TrainingJob": (TRAININGJOBS, a_training_job("mnist", workers=1)),
        }
        second = next(kind for kind in wants if kind != first)
        owner = world.apply(*wants[first]).metadata["uid"]
        await world.until(lambda: len(world.pods()) == (1 if first == "TFJob" else 2))
        await world.quiet()
        before = {name: held.metadata["uid"] for name, held in world.pods().items()}
        world.apply(*wants[second])
        await world.until(lambda: "NameConflict" in str(world.status(wants[second][0], "mnist").get("conditions")))
        await world.quiet()
        assert {name: held.metadata["uid"] for name, held in world.pods().items()} == before
        assert world.pods()["mnist-worker-0"].metadata["ownerReferences"][0]["uid"] == owner
        world.delete(wants[first][0], "mnist")
        await world.until(
            lambda: world.state() == "Running" or world.status(TRAININGJOBS, "mnist").get("phase") == "Running"
        )


@in_virtual_time
async def test_a_job_that_is_handed_over_while_it_runs_goes_on_and_says_that_this_cannot_be():
    async with Play(TFJOB) as world:
        world.play(a_job(policy={"managedBy": "kubeflow.org/training-operator"}, Worker=1))
        await world.runs(1)
        world.edit({"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}})
        await world.until(lambda: "ManagedByAnother" in str(world.shown()["conditions"]))
        await world.quiet()
        assert [*world.pods()] == ["mnist-worker-0"]
