"""A job that was taken over shows what its history says, and nothing that the operator before it wrote."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from muster.replay import WRONG, verified_jobs
from shared.cluster import Resource
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import World
from tests.memory.cluster import MemoryCluster
from tests.memory.eventlog import MemoryEventLog
from tests.takeover.recorded import Launcher, put, recorded


async def finds_no_difference(world: World) -> None:
    verified = await verified_jobs(MemoryEventLog(world.journal), MemoryCluster(world.store), BUILT_IN)
    assert not verified.count(*WRONG), [str(answer) for answer in verified.answers]
    assert verified.count("identical")


Move = Callable[[World], Awaitable[None]]


async def go_on(world: World) -> None:
    await world.quiet()


async def lose_a_pod(world: World) -> None:
    world.exit_codes[sorted(world.pods())[-1]] = 137
    await world.quiet()


async def end(world: World) -> None:
    world.exit_codes |= {name: 0 for name in world.pods() if name.endswith(("-launcher", "-master-0", "-worker-0"))}
    await world.quiet()


@pytest.mark.parametrize("moves", [[go_on], [go_on, lose_a_pod], [go_on, end]], ids=["goes on", "loses a pod", "ends"])
@pytest.mark.parametrize(
    ("resource", "recording"),
    [
        pytest.param(TRAININGJOBS, "et-operator-running", id="TrainingJob"),
        pytest.param(TFJOB.resource, "tfjob-running", id="TFJob"),
        pytest.param(PYTORCHJOB.resource, "pytorchjob-elastic", id="PyTorchJob"),
    ],
)
@in_virtual_time
async def test_a_job_that_was_taken_over_shows_what_its_history_says(
    resource: Resource[Any], recording: str, moves: list[Move]
):
    world = World(takes_over=True)
    (job, *_) = objects = recorded(recording)
    put(world.store, objects)
    if resource is TRAININGJOBS:
        Launcher(world.store, "resnet-worker-0:1\nresnet-worker-1:1\n")
    async with world:
        await world.until(lambda: "history" in world.status(resource, job["metadata"]["name"]))
        for move in moves:
            await move(world)
            await finds_no_difference(world)
