"""A misspelt field below a pod template ends the job with the path, before anything runs without what it asked for."""

import json
from typing import Any

import pytest

from shared.cluster.kinds import SECRETS, SERVICES
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.trainer_schemas import CLUSTER_RUNTIMES
from shared.frameworks.training_job import TRAININGJOBS
from shared.frameworks.trainjob import TRAINJOBS
from tests.frameworks.documents import changed
from tests.kit.kubelet import NAMESPACE
from tests.kit.trainer import replicated_job, runtime, train_job
from tests.kit.world import World, a_training_job
from tests.simulation.manifests import KINDS, manifest_of
from tests.simulation.plan import Apply

# The roles share a template, which a copy through JSON does not.
TORCH, MPI = (
    json.loads(json.dumps(manifest_of(Apply(at=0.0, job="resnet", kind=kind, workers=2))))
    for kind in ("PyTorchJob", "MPIJob")
)
ROLES, REPLICAS = "spec.etReplicaSpecs", "spec.pytorchReplicaSpecs"


@pytest.mark.parametrize(
    ("resource", "job", "field", "meant"),
    [
        pytest.param(TRAININGJOBS, a_training_job(), f"{ROLES}.worker.template.spec.containers[0].resources.limit",
            "limits", id="of the workers"),
        pytest.param(TRAININGJOBS, a_training_job(), f"{ROLES}.launcher.template.spec.nodeSelecter", "nodeSelector",
            id="of the launcher, which starts last"),
        pytest.param(TRAININGJOBS, a_training_job(), f"{ROLES}.launcher.template.spec.gpus", "", id="of any name"),
        pytest.param(PYTORCHJOB.resource, TORCH, f"{REPLICAS}.Worker.template.spec.containers[0].volumeMount",
            "volumeMounts", id="of a PyTorchJob's workers, beside a right Master"),
        pytest.param(MPIJOB.resource, MPI, "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].livenesProbe",
            "livenessProbe", id="of an MPIJob's launcher"),
    ],
)  # fmt: skip
async def test_a_misspelt_field_ends_the_job_before_anything_is_made(
    resource: Any, job: dict[str, Any], field: str, meant: str
) -> None:
    async with World(kinds=KINDS) as world:
        world.apply(resource, changed(job, field, {"cpu": 1}))
        await _fails(world, resource, field + (f" (is it {meant}?)" if meant else ""))


async def test_a_misspelt_field_of_a_runtime_is_told_with_its_path_there() -> None:
    pod = "template.spec.template.spec.containers[0]"
    async with World(kinds=KINDS) as world:
        world.apply(CLUSTER_RUNTIMES, runtime("jax", {"jax": {}}, replicated_job("node", gpu=1)), "")
        world.apply(TRAINJOBS, train_job("resnet", runtime="jax"))
        await _fails(world, TRAINJOBS, f"runtime.spec.template.spec.replicatedJobs[node].{pod}.gpu")


async def test_a_field_of_a_newer_kubernetes_is_asked_about_and_passed_on() -> None:
    """The API server of this test knows it, this release does not."""
    async with World(kinds=KINDS) as world:
        world.store.newer = ("spec.podsOfTomorrow",)
        world.apply(TRAININGJOBS, changed(a_training_job(), f"{ROLES}.worker.template.spec.podsOfTomorrow", True))
        await world.running()
        assert world.pods()["resnet-worker-0"].manifest["spec"]["podsOfTomorrow"] is True


async def _fails(world: World, resource: Any, words: str) -> None:
    await world.until(lambda: "JobFailed" in world.types(), "the job fails")
    await world.quiet(20)
    [failed] = [known for known in world.status(resource, "resnet")["conditions"] if known["type"] == "Failed"]
    assert words in failed["message"]
    assert not world.pods()
    assert not world.store.find(SERVICES, NAMESPACE)
    assert not world.store.find(SECRETS, NAMESPACE)
