"""What TFJobs promise beside what all kinds of the training operator do, with all four services."""

import pytest

from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import TRAININGJOBS
from tests.frameworks.documents import Document, changed, tf_job
from tests.kit.world import a_training_job
from tests.service.kubeflow import Play, applied

TFJOBS = TFJOB.resource


def a_job(*, restart: str = "", policy: Document | None = None, **replicas: int) -> Document:
    return applied(tf_job(**replicas), run=policy, restart=restart)


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


@pytest.mark.parametrize("first", ["TFJob", "TrainingJob"])
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


async def test_a_job_that_is_handed_over_while_it_runs_goes_on_and_says_that_this_cannot_be():
    async with Play(TFJOB) as world:
        world.play(a_job(policy={"managedBy": "kubeflow.org/training-operator"}, Worker=1))
        await world.runs(1)
        world.edit({"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}})
        await world.until(lambda: "ManagedByAnother" in str(world.shown()["conditions"]))
        await world.quiet()
        assert [*world.pods()] == ["mnist-worker-0"]
