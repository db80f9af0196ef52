"""A namespace that is deleted: its controller may delete pods before their job, and no job fails for that."""

from typing import Any

import pytest

from shared.cluster import Resource
from shared.cluster.kinds import NAMESPACES, PODS
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.tfjob import TFJOB
from tests.frameworks.documents import mpi_job, pytorch_job, tf_job
from tests.kit.world import NAMESPACE, TRAININGJOBS, World, a_training_job
from tests.service.kubeflow import applied

ELASTIC = {"minReplicas": 1, "maxReplicas": 4, "rdzvHost": "etcd"}


@pytest.mark.parametrize(
    ("resource", "job", "waits"),
    [
        pytest.param(TRAININGJOBS, a_training_job(), "", id="TrainingJob"),
        pytest.param(TRAININGJOBS, a_training_job(), "resnet-worker-1", id="a TrainingJob that starts"),
        pytest.param(TFJOB.resource, applied(tf_job(Chief=1, Worker=2)), "", id="TFJob"),
        pytest.param(PYTORCHJOB.resource, applied(pytorch_job()), "", id="torch"),
        pytest.param(PYTORCHJOB.resource, applied(pytorch_job(policy=ELASTIC, Worker=3)), "", id="elastic torch"),
        pytest.param(MPIJOB.resource, applied(mpi_job()), "", id="MPIJob"),
    ],
)
async def test_pods_that_go_before_their_job_fail_it_in_no_kind(
    world: World, resource: Resource[Any], job: dict[str, Any], waits: str
):
    world.store.create(NAMESPACES, "", {"metadata": {"name": NAMESPACE, "finalizers": ["kubernetes"]}})
    world.stuck |= {waits}
    world.apply(resource, job)
    if waits:
        await world.until(lambda: len(world.pods()) == 2, "its workers are there")
    else:
        await world.until(lambda: world.count("JobRunning") == 1, "it runs")
    await world.quiet()
    world.store.delete(NAMESPACES, "", NAMESPACE)
    world.store.terminating.add(NAMESPACE)
    for name in [*world.pods()]:
        world.store.delete(PODS, NAMESPACE, name)
        await world.pass_seconds(1)
    await world.pass_seconds(30)
    world.delete(resource, job["metadata"]["name"])
    await world.until(lambda: world.count("JobGone") == 1, "the job's end")
    assert not {"JobFailed", "JobRestarting", "LauncherLost"} & {*world.types()}
