"""Several wills about one name: a predecessor that hangs in Terminating, a second operator, wishes that contradict."""

import copy
from typing import Any

from shared.cluster.kinds import PODS
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.tfjob import TFJOB
from shared.job.naming import RESTART
from tests.frameworks.documents import Document, pytorch_job, tf_job
from tests.kit.world import NAMESPACE
from tests.service.kubeflow import Play, applied

TEN_MINUTES = 600

ONE_TO_FOUR: Document = {"minReplicas": 1, "maxReplicas": 4}


def of_a_rival(job: str, uid: str) -> dict[str, Any]:
    """A worker as training-operator would make it for this very job."""
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": job, "uid": uid, "controller": True}
    labels = {
        "training.kubeflow.org/job-name": job,
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
    }
    return {
        "metadata": {"name": f"{job}-worker-0", "labels": labels, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "tensorflow", "image": "train"}]},
    }


class TestTwoOperators:
    async def test_a_pod_that_another_operator_made_for_the_job_is_named_and_not_touched(self):
        async with Play(TFJOB) as world:
            await world.kill("scheduler")
            uid = world.play(applied(tf_job(Worker=1)))
            theirs = world.store.create(PODS, NAMESPACE, of_a_rival("mnist", uid)).metadata
            await world.start("scheduler")
            await world.until(lambda: "pod mnist-worker-0 lacks Muster's labels" in str(world.shown()))
            await world.pass_seconds(TEN_MINUTES)
            assert world.uid("mnist-worker-0") == theirs["uid"]
            assert world.pods()["mnist-worker-0"].metadata["labels"] == theirs["labels"]
            assert world.state() == "Created"
            world.store.remove(PODS, NAMESPACE, "mnist-worker-0")
            # The creation is tried again every five minutes by now.
            await world.pass_seconds(300)
            await world.runs(1)

    async def test_a_status_that_another_operator_keeps_writing_begins_and_ends_nothing(self):
        async with Play(TFJOB) as world:
            world.play(applied(tf_job(Chief=1, Worker=1)))
            await world.runs(1)
            before = world.uids()
            done = {"type": "Succeeded", "status": "True", "reason": "TFJobSucceeded", "message": "by another"}
            for _ in range(10):
                # Its types have no room for a head.
                rival = {"status": {"conditions": [*copy.deepcopy(world.shown()["conditions"]), done], "history": None}}
                world.store.patch(TFJOB.resource, NAMESPACE, "mnist", rival, subresource="status")
                await world.pass_seconds(5)
            assert world.uids() == before
            assert [world.count(kind) for kind in ("JobSucceeded", "JobRestarting", "JobAdopted")] == [0, 0, 0]
            # What the resource shows is right again with the next document.
            world.store.remove(PODS, NAMESPACE, "mnist-worker-0")
            await world.until(lambda: world.uids().get("mnist-worker-0") not in (None, before["mnist-worker-0"]))
            await world.runs(1)
            world.exit_codes["mnist-chief-0"] = 0
            await world.comes_to("Succeeded")
            assert world.why() != "by another"


def workers(world: Play) -> list[str]:
    """The pods of the group, without that of its store."""
    return [name for name in world.pods() if "-rdzv-" not in name]


class TestContradictoryWishes:
    async def test_a_pause_that_no_watcher_saw_leaves_the_pods_as_they_are_and_a_restart_brings_the_new_template(self):
        """Of suspend and resume with another template the watcher sees one change, which says nothing of a pause."""
        async with Play(PYTORCHJOB) as world:
            job = applied(pytorch_job(policy=ONE_TO_FOUR, Worker=2))
            world.play(job)
            await world.runs(2)
            before = world.uids()
            await world.kill("watcher")
            world.suspend(suspend=True)
            template = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
            template["spec"]["nodeSelector"] = {"flavor": "spot"}
            specs = {"pytorchReplicaSpecs": {"Worker": {"template": template}}}
            world.edit({"runPolicy": {"suspend": False}, **specs})
            await world.start("watcher")
            await world.quiet()
            assert world.uids() == before
            world.patch({"metadata": {"annotations": {RESTART: "now"}}})
            await world.until(lambda: world.count("JobRestarted") == 1)
            await world.runs(2)
            selectors = [world.pods()[name].manifest["spec"].get("nodeSelector") for name in workers(world)]
            assert selectors == [{"flavor": "spot"}] * 2
