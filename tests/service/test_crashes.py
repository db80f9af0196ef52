"""Services killed wherever they are: the job ends as it would have, and its history is whole."""

import asyncio
import os
import random

import msgspec
import pytest

from services.status.documents import canonical, document_of, with_head
from shared.job.chain import Head
from shared.job.fold import History
from shared.job.naming import key_of
from tests.kit.world import AUTHORS, SCALEINS, SCALEOUTS, TRAININGJOBS, World, a_scale_in, a_scale_out, a_training_job

SEED = int(os.environ.get("SEED", "0"))
RUNS = 12


async def a_life(world: World) -> None:
    """Two workers, two more, one less, success."""
    world.apply(TRAININGJOBS, a_training_job(workers=2))
    await world.running()
    world.apply(SCALEOUTS, a_scale_out(2))
    # The two kinds have a watch each: which of two requests made at once is seen first is nobody's promise.
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
        key = key_of(stored.subject)
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
    chance = random.Random(seed)
    async with World() as world:
        living = asyncio.create_task(a_life(world))
        while not living.done():
            await asyncio.sleep(chance.random() * 0.05)
            for author in chance.sample(AUTHORS, chance.choice([1, 1, 1, 4])):
                await world.kill(author)
                await asyncio.sleep(chance.random() * 0.02)
                await world.start(author)
        await living
        await world.quiet()
        assert_right(world)


@pytest.mark.parametrize("author", AUTHORS)
async def test_killed_at_every_event(author: str):
    """The service dies right after each event of the log, one after the other, in one life."""
    async with World() as world:
        living = asyncio.create_task(a_life(world))
        seen = 0
        while not living.done():
            if len(world.journal.events) > seen:
                seen = len(world.journal.events)
                await world.kill(author)
                await world.start(author)
            await asyncio.sleep(0)
        await living
        await world.quiet()
        assert_right(world)


async def test_two_replicas_of_each_service_write_nothing_twice():
    async with World() as world, World(sharing=world) as second:
        await a_life(world)
        await world.quiet()
        assert_right(world)
        assert second.journal is world.journal
