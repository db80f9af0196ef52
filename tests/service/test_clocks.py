"""The clocks of nodes: whatever they show, a promise is neither kept early nor late."""

from datetime import timedelta

import pytest

from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.services import wall_clock
from tests.kit.world import NAMESPACE, World


@pytest.fixture(params=[(author, hours) for author in ("watcher", "status") for hours in (-2, 2)], ids=str)
def wrong(request: pytest.FixtureRequest) -> tuple[str, int]:
    """A service, and by how many hours its node's clock is ahead."""
    author, hours = request.param
    return author, hours


async def moved(world: World, author: str, hours: int) -> None:
    """The service goes on on that node."""
    right, world.now = world.now, lambda: wall_clock() + timedelta(hours=hours)
    await world.restart(author)
    world.now = right


async def test_a_running_job_fails_at_its_deadline_and_not_before(world: World, wrong: tuple[str, int]):
    await moved(world, *wrong)
    await world.trains(workers=1, activeDeadlineSeconds=3_600)
    await world.pass_seconds(1_800)
    await moved(world, *wrong)
    await world.restart("watcher")
    await world.pass_seconds(1_700)
    assert world.status(TRAININGJOBS, "resnet")["phase"] == "Running"
    await world.pass_seconds(200)
    assert world.status(TRAININGJOBS, "resnet")["phase"] == "Failed"


async def test_a_finished_job_is_deleted_after_its_time_and_not_before(world: World, wrong: tuple[str, int]):
    await moved(world, *wrong)
    await world.trains(workers=1, ttlSecondsAfterFinished=3_600)
    await world.pass_seconds(7_200)
    world.exit_codes["resnet-launcher"] = 0
    await world.phase("Succeeded")
    await moved(world, *wrong)
    await world.restart("watcher")
    await world.pass_seconds(3_500)
    assert world.store.get(TRAININGJOBS, NAMESPACE, "resnet") is not None
    await world.pass_seconds(200)
    assert world.store.get(TRAININGJOBS, NAMESPACE, "resnet") is None
