"""Hosts files that another client changes are put right, and not for each change of many."""

import pytest

from shared.cluster import Resource
from shared.cluster.kinds import CONFIGMAPS
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.naming import JOB_UID
from shared.job.spec import GROW_SECONDS
from tests.frameworks.documents import mpi_job
from tests.kit.world import NAMESPACE, Document, World, a_training_job
from tests.service.kubeflow import applied

KINDS = [
    pytest.param(TRAININGJOBS, a_training_job("resnet", workers=2), "resnet", id="TrainingJob"),
    pytest.param(MPIJOB.resource, applied(mpi_job()), "pi", id="MPIJob"),
]


def files(world: World, job: str) -> Document:
    held = world.store.get(CONFIGMAPS, NAMESPACE, f"{job}-config")
    return dict(held.manifest["data"]) if held is not None else {}


def edit(world: World, job: str, text: str | None) -> None:
    world.store.patch(CONFIGMAPS, NAMESPACE, f"{job}-config", {"data": {"hostfile": text}})


@pytest.mark.parametrize(("resource", "manifest", "job"), KINDS)
async def test_hosts_files_that_another_client_changes_are_put_right(
    resource: Resource[Document], manifest: Document, job: str
):
    async with World() as world:
        world.apply(resource, manifest)
        await world.until(lambda: world.job(job).status.phase == "Running")
        right = files(world, job)
        edit(world, job, "mine\n")
        await world.until(lambda: files(world, job) == right, "they are put right")
        # A removed file comes back, after the time between two changes.
        edit(world, job, None)
        await world.pass_seconds(GROW_SECONDS - 2)
        assert files(world, job) != right
        await world.until(lambda: files(world, job) == right, "they are put right again")


@pytest.mark.parametrize("elasticity", [{}, {"size": "Capacity", "growSeconds": 0}], ids=["Requests", "Capacity"])
async def test_a_client_that_changes_hosts_files_for_ever_makes_few_new_ones(world: World, elasticity: Document):
    manifest = a_training_job("resnet", workers=2)
    manifest["spec"]["elasticity"] = elasticity
    world.apply(TRAININGJOBS, manifest)
    await world.running()
    right, minutes = files(world, "resnet"), 5
    for turn in range(minutes * 30):
        edit(world, "resnet", f"mine {turn}\n")
        await world.pass_seconds(2)
    assert world.count("HostsPublished") <= 2 + minutes * 60 // GROW_SECONDS
    await world.until(lambda: files(world, "resnet") == right, "they are put right at the end")


async def test_hosts_files_that_lost_their_labels_get_them_back(world: World):
    await world.trains(workers=2)
    before = world.store.get(CONFIGMAPS, NAMESPACE, "resnet-config")
    assert before is not None
    world.store.patch(CONFIGMAPS, NAMESPACE, "resnet-config", {"metadata": {"labels": {JOB_UID: None}}})
    await world.until(lambda: world.job().hosts is None, "no watch shows them")
    await world.until(lambda: world.job().hosts is not None, "they are shown again")
    after = world.store.get(CONFIGMAPS, NAMESPACE, "resnet-config")
    assert after is not None
    assert (after.metadata["labels"], after.manifest["data"]) == (before.metadata["labels"], before.manifest["data"])
