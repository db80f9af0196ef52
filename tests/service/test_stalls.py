"""A training that stops, with the four services: told within a second of its time, and no false alarm."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from shared.eventlog.inspection import Space
from shared.frameworks.scale_requests import SCALEOUTS
from shared.job.naming import ON_STALL, STALL_TIMEOUT
from tests.kit.world import NAMESPACE, TRAININGJOBS, World, a_scale_out, a_training_job
from tests.service.test_progress import report

LIMIT = 30


async def a_watched_job(world: World, on_stall: str = "", **spec: Any) -> None:
    job = a_training_job(workers=2, **spec)
    annotations = {STALL_TIMEOUT: str(LIMIT), **({ON_STALL: on_stall} if on_stall else {})}
    job["metadata"]["annotations"] = annotations
    world.apply(TRAININGJOBS, job)
    await world.running()


def stalls(world: World) -> int:
    return sum(b'"timer":"Stall"' in stored.body for stored in world.journal.events)


async def trains(world: World, first: int, last: int, seconds: float = 1.0) -> None:
    for step in range(first, last + 1):
        report(world, current_step=step, total_steps=1_000)
        await world.pass_seconds(seconds)


@pytest.mark.parametrize("last", [5, 8, 20])
async def test_a_training_that_stops_is_told_within_a_second_of_its_time(world: World, last: int):
    await a_watched_job(world)
    await trains(world, 1, last, 0.9)
    since = asyncio.get_running_loop().time() - 0.9
    while not stalls(world):
        await asyncio.sleep(0.05)
        assert asyncio.get_running_loop().time() - since < LIMIT + 1
    assert asyncio.get_running_loop().time() - since > LIMIT - 1
    await world.quiet()
    message = next(c["message"] for c in world.status(TRAININGJOBS, "resnet")["conditions"] if c["type"] == "Running")
    assert f"no step for {LIMIT} s since" in message
    assert f"at step {last} of 1000" in message
    assert "Running: resnet-launcher, resnet-worker-0 and resnet-worker-1" in message
    assert ("Stalled", "resnet") in world.kubernetes_events()
    await world.pass_seconds(600)
    assert world.status(TRAININGJOBS, "resnet")["phase"] == "Running", "it is told, and not touched"
    assert stalls(world) == 1
    report(world, current_step=last + 1, total_steps=1_000)
    await world.quiet()
    assert "no step" not in str(world.status(TRAININGJOBS, "resnet")["conditions"])


async def test_two_hundred_jittered_steps_make_no_false_alarm(world: World):
    chance = random.Random(7)
    await a_watched_job(world)
    step = 0
    for _ in range(40):
        for _ in range(5):
            step += 1
            report(world, current_step=step)
            await world.pass_seconds(chance.uniform(0.01, LIMIT - 1))
    assert stalls(world) == 0


async def test_a_job_that_asks_for_it_begins_again_and_that_counts(world: World):
    await a_watched_job(world, "restart", backoffLimit=1)
    await trains(world, 1, 3)
    await world.pass_seconds(LIMIT)
    await world.until(lambda: world.count("JobRestarted") == 1, "another attempt")
    await world.running()
    assert world.job().retries.restarts == 1
    await world.pass_seconds(20 * LIMIT)
    assert stalls(world) == 1, "the first step of the new attempt may take long"
    report(world, current_step=1)
    await world.pass_seconds(LIMIT + 2)
    await world.phase("Failed")
    assert world.condition(TRAININGJOBS, "resnet", "Failed") == ("True", "Stalled")


async def test_a_job_that_never_made_a_step_and_one_without_the_annotation_are_never_stalled(world: World):
    await a_watched_job(world)
    report(world, progressPercentage=0, total_steps=10)
    world.apply(TRAININGJOBS, a_training_job("other", workers=1))
    await world.running("other")
    await world.pass_seconds(3_600)
    assert stalls(world) == 0


async def test_a_training_that_saves_after_its_last_step_is_not_stalled(world: World):
    await a_watched_job(world, "restart")
    await trains(world, 998, 1_000)
    await world.pass_seconds(3_600)
    assert stalls(world) == 0


async def test_a_training_whose_job_is_being_deleted_is_not_stalled(world: World):
    await a_watched_job(world)
    await trains(world, 1, 3)
    held = {"metadata": {"finalizers": ["example.com/wait"]}}
    world.store.patch(TRAININGJOBS, NAMESPACE, "resnet", held)
    world.delete(TRAININGJOBS, "resnet")
    await world.pass_seconds(3_600)
    assert stalls(world) == 0, "its reports are refused"


def of_the_log(world: World, full: bool) -> None:
    world.full = full


def of_the_share(world: World, full: bool) -> None:
    """The namespace has used up its share of a small log."""
    world._running["watcher"][0].space = lambda: Space(most=int(full))


@pytest.mark.parametrize("the_room", [of_the_log, of_the_share])
async def test_while_no_progress_is_recorded_no_training_is_stalled(
    world: World, the_room: Callable[[World, bool], None]
):
    await a_watched_job(world, "restart")
    await trains(world, 1, 3)
    the_room(world, True)
    await world.pass_seconds(LIMIT * 0.6)
    the_room(world, False)
    await world.pass_seconds(LIMIT * 0.6)
    assert stalls(world) == 0
    the_room(world, True)
    await world.pass_seconds(3_600)
    assert stalls(world) == 0
    the_room(world, False)
    await world.pass_seconds(LIMIT + 2)
    assert stalls(world) == 1


async def test_while_the_watcher_is_away_for_an_hour_the_training_goes_on_and_is_not_stalled(world: World):
    await a_watched_job(world, "restart")
    await trains(world, 1, 3)
    await world.kill("watcher")
    await world.pass_seconds(3_600)
    await world.start("watcher")
    await world.quiet()
    await world.pass_seconds(LIMIT / 2)
    assert stalls(world) == 0
    report(world, current_step=4_000)
    await world.quiet()
    assert world.job().training.words == "step 4000 of 1000"
    assert world.status(TRAININGJOBS, "resnet")["phase"] == "Running"


async def test_a_watcher_that_begins_anew_gives_the_next_step_all_its_time(world: World):
    await a_watched_job(world)
    await trains(world, 1, 4)
    await world.pass_seconds(8)
    said = world.job().training.reported
    assert said is not None
    assert said.waited > 3
    await world.kill("watcher")
    await world.start("watcher")
    await world.pass_seconds(LIMIT - 2)
    assert stalls(world) == 0
    await world.pass_seconds(4)
    assert stalls(world) == 1


async def test_a_group_that_hangs_after_a_scaling_is_stalled(world: World):
    await a_watched_job(world)
    await trains(world, 1, 3)
    world.apply(SCALEOUTS, a_scale_out(1))
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    await world.pass_seconds(LIMIT - 2)
    assert stalls(world) == 0
    await world.pass_seconds(3)
    assert stalls(world) == 1


@pytest.mark.parametrize("on_stall", ["explode", "restart"])
async def test_a_wrong_annotation_is_told_and_has_no_effect(world: World, on_stall: str):
    job = a_training_job(workers=1)
    job["metadata"]["annotations"] = {STALL_TIMEOUT: "soon", ON_STALL: on_stall}
    world.apply(TRAININGJOBS, job)
    await world.running()
    spec = world.job().spec
    assert spec is not None
    assert (spec.stall_timeout_seconds, spec.stall_restarts) == (None, False)
    assert ("FieldIgnored", "resnet") in world.kubernetes_events()
