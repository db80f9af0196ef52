"""Services killed wherever they are: the job ends as it would have, and its history is whole."""

import os

import msgspec
import pytest

from services.status.core.documents import canonical, document_of, with_head
from shared.eventlog.subject import Subject
from shared.job.chain import Head
from shared.job.fold import History
from shared.job.naming import key_of
from tests.kit.killing import killed_at_any_moment, killed_at_every_event
from tests.kit.world import AUTHORS, SCALEINS, SCALEOUTS, TRAININGJOBS, World, a_scale_in, a_scale_out, a_training_job

SEED = int(os.environ.get("SEED", "0"))
RUNS = 12


async def a_life(world: World) -> None:
    """Two workers, two more, one less, success."""
    world.apply(TRAININGJOBS, a_training_job(workers=2))
    await world.running()
    world.apply(SCALEOUTS, a_scale_out(2))
    # The two kinds have a watch each: which of two requests made at once is seen first is not defined.
    await world.until(lambda: "ScaleRequested" in world.types())
    world.apply(SCALEINS, a_scale_in(1))
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    await world.phase("ScaleSucceeded", SCALEINS, "in")
    await world.running()
    world.exit_codes["resnet-launcher"] = 0
    await world.phase("Succeeded")
    await world.until(lambda: list(world.pods()) == ["resnet-launcher"], "the workers are cleaned up")


def assert_right(world: World) -> None:
    """The end of that life, however it came about."""
    assert world.hosts() == [f"resnet-worker-{index}" for index in range(3)]
    types = world.types()
    once = ("JobCreated", "JobSucceeded", "ScaleSucceeded", "ScaleAccepted", "WorkersReleased")
    assert {kind: types.count(kind) for kind in once} == {
        "JobCreated": 1,
        "JobSucceeded": 1,
        "ScaleSucceeded": 2,
        "ScaleAccepted": 2,
        "WorkersReleased": 1,
    }
    assert_replayed(world)


def assert_replayed(world: World, name: str = "resnet") -> None:
    """What the API server holds is what the log says, byte for byte."""
    status = world.status(TRAININGJOBS, name)
    head = Head(status["history"]["sequence"], status["history"]["hash"])
    again = None
    for stored in world.journal.events:
        key = key_of(Subject.parse(stored.subject))
        if key.name == name and key.uid != "none" and stored.sequence <= head.sequence:
            again = again or History(key)
            again.fold(stored)
    assert again is not None
    assert not again.held
    assert again.head == head
    replayed = with_head(document_of(again.job), status["history"]["log"], head, again.time)
    assert canonical(replayed) == canonical(msgspec.json.decode(msgspec.json.encode(status)))


@pytest.mark.parametrize("seed", range(SEED, SEED + RUNS))
async def test_killed_and_started_at_any_moment(seed: int):
    async with World() as world:
        await killed_at_any_moment(world, a_life, seed)
        assert_right(world)


@pytest.mark.parametrize("author", AUTHORS)
async def test_killed_at_every_event(author: str):
    async with World() as world:
        await killed_at_every_event(world, a_life, author)
        assert_right(world)


async def test_two_replicas_of_each_service_write_nothing_twice():
    async with World() as world, World(sharing=world) as second:
        await a_life(world)
        await world.quiet()
        assert_right(world)
        assert second.journal is world.journal
