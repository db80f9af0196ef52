"""Services killed wherever they are while a TFJob loses a worker, grows and shrinks: it ends as it would have."""

import pytest

from services.status.core.documents import canonical, document_of, with_head
from shared.job.chain import Head
from shared.job.fold import Histories
from tests.frameworks.documents import Document, changed, tf_job
from tests.kit.killing import killed_at_any_moment, killed_at_every_event
from tests.kit.world import AUTHORS, NAMESPACE, World
from tests.service.test_tfjobs import TFJOBS


def a_dynamic_job() -> Document:
    job = changed(tf_job(PS=1, Worker=2), "spec.enableDynamicWorker", True)
    job = changed(job, "spec.runPolicy.cleanPodPolicy", "Running")
    return changed(changed(job, "spec.tfReplicaSpecs.Worker.restartPolicy", "OnFailure"), "metadata", {"name": "mnist"})


async def a_life(world: World) -> None:
    """One server, two workers, of which one begins again; three, two, success."""
    world.apply(TFJOBS, a_dynamic_job())
    await world.until(lambda: counts(world) == (2, 0, 0))
    world.exit_codes["mnist-worker-1"] = 1
    await world.until(lambda: counts(world) == (2, 0, 1), "the worker begins again")
    resize(world, 3)
    await world.until(lambda: counts(world) == (3, 0, 1) and world.types().count("ScaleSucceeded") == 1, "three")
    resize(world, 2)
    await world.until(lambda: counts(world) == (2, 0, 1) and world.types().count("ScaleSucceeded") == 2, "two")
    world.exit_codes["mnist-worker-0"] = 0
    await world.until(lambda: "Succeeded" in str(world.status(TFJOBS, "mnist").get("conditions")), "success")
    await world.until(lambda: list(world.pods()) == ["mnist-worker-0"], "server and worker are cleaned up")


def counts(world: World) -> tuple[int, int, int]:
    found = (world.status(TFJOBS, "mnist").get("replicaStatuses") or {}).get("Worker") or {}
    return found.get("active", 0), found.get("succeeded", 0), found.get("failed", 0)


def resize(world: World, replicas: int) -> None:
    world.store.patch(TFJOBS, NAMESPACE, "mnist", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": replicas}}}})


def assert_right(world: World) -> None:
    types = world.types()
    once = {"JobCreated": 1, "SlotsAssigned": 2, "ScaleAccepted": 2, "JobSucceeded": 1}
    assert {kind: types.count(kind) for kind in once} == once
    status = world.status(TFJOBS, "mnist")
    histories = Histories()
    for stored in world.journal.events:
        if stored.sequence <= status["history"]["sequence"]:
            histories.fold(stored)
    (again,) = (history for history in histories if history.job.key.name == "mnist")
    assert not again.held
    assert again.head == Head(status["history"]["sequence"], status["history"]["hash"])
    assert canonical(with_head(document_of(again.job), status["history"]["log"], again.head, again.time)) == canonical(
        status
    )


@pytest.mark.parametrize("seed", range(6))
async def test_killed_and_started_at_any_moment(seed: int):
    async with World() as world:
        await killed_at_any_moment(world, a_life, seed)
        assert_right(world)


@pytest.mark.parametrize("author", AUTHORS)
async def test_killed_at_every_event(author: str):
    async with World() as world:
        await killed_at_every_event(world, a_life, author)
        assert_right(world)
