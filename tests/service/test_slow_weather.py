"""An API server that refuses half of all calls or takes seconds for each, a slow log, and pods that never rest.

Throughput falls and nothing else: what is there afterwards is what a quick server would have, without a restart.
"""

import asyncio
import re
from random import Random
from typing import Any

from shared.cluster.kinds import PODS
from shared.errors import Transient
from shared.eventlog import Entry
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.process.health import Health
from tests.kit.services import AUTHORS
from tests.kit.weather import Failing, met_by
from tests.kit.world import NAMESPACE, World, a_scale_in, a_scale_out, a_training_job
from tests.memory.cluster import Call, Calm
from tests.memory.eventlog import MemoryEventLog, MemoryJournal

JOBS = 8
WORKERS = 3
LONGEST_SECONDS = 600
"""Until all of them run."""


class Refusing(Calm):
    """Half of all requests get a 429, and the client sends them again after a second, as `Caller.request` does."""

    def __init__(self, seed: int) -> None:
        self.half = True
        self._random = Random(seed)

    async def before(self, call: Call) -> None:
        await asyncio.sleep(0)
        for _ in range(4):
            if not self.half or call.verb == "watch" or self._random.random() < 0.5:
                return
            await asyncio.sleep(1)
        raise Transient(f"{call.verb} {call.plural}: 429 TooManyRequests")


class Slow(Calm):
    """Each answer takes so long."""

    seconds = 2.0

    async def after(self, call: Call) -> None:
        await asyncio.sleep(self.seconds)


class SlowDisk(MemoryEventLog):
    """A log whose every append waits for the disk."""

    async def append(self, entry: Entry, *, expect: int) -> int:
        await asyncio.sleep(0.05)
        return await super().append(entry, expect=expect)


async def _all_run_and_scale(world: World, *, patience: float = 0.0) -> None:
    """Jobs begin, grow and shrink, each step within so many more seconds than it usually takes."""
    names = [f"job-{number}" for number in range(JOBS)]
    for name in names:
        world.apply(TRAININGJOBS, a_training_job(name, workers=WORKERS))
    await world.pass_seconds(patience)
    for name in names:
        await world.phase("Running", name=name)
        world.apply(SCALEOUTS, _unhurried(a_scale_out(1, name=f"{name}-out", job=name)))
    await world.pass_seconds(patience)
    for name in names:
        await world.phase("ScaleSucceeded", SCALEOUTS, f"{name}-out")
        world.apply(SCALEINS, _unhurried(a_scale_in(2, name=f"{name}-in", job=name)))
    await world.pass_seconds(patience)
    for name in names:
        await world.phase("ScaleSucceeded", SCALEINS, f"{name}-in")


def _unhurried(request: dict[str, Any]) -> dict[str, Any]:
    request["spec"]["timeout"] = 10 * LONGEST_SECONDS
    return request


async def _is_well(world: World) -> None:
    """Each job has what it asked for, nothing was failed or made twice, and a change is told at once."""
    await world.quiet()
    for number in range(JOBS):
        assert len(world.hosts(f"job-{number}")) == WORKERS - 1
    assert len(world.pods()) == JOBS * WORKERS
    assert not {"JobFailed", "JobRestarting", "EffectRefused", "ScaleFailed"} & set(world.types())
    world.apply(TRAININGJOBS, a_training_job("after", workers=1))
    began = asyncio.get_running_loop().time()
    await world.phase("Running", name="after")
    assert asyncio.get_running_loop().time() - began < 5


async def test_half_of_all_calls_are_turned_away():
    weather = {author: Refusing(seed) for seed, author in enumerate(AUTHORS)}
    async with World(weather=lambda author: weather[author]) as world:
        await _all_run_and_scale(world, patience=LONGEST_SECONDS)
        for each in weather.values():
            each.half = False
        await _is_well(world)


async def test_each_answer_takes_two_seconds():
    slow = Slow()
    async with World(weather=lambda _: slow) as world:
        began = asyncio.get_running_loop().time()
        await _all_run_and_scale(world)
        assert asyncio.get_running_loop().time() - began < LONGEST_SECONDS
        slow.seconds = 0.0
        await world.pass_seconds(10)
        await _is_well(world)


async def test_a_status_that_is_not_written_in_time_is_reported_until_it_is_written():
    stuck = Failing(lambda call: call.verb == "patch", Transient("patch trainingjobs: 503 ServiceUnavailable"))
    async with World(weather=met_by("status", stuck)) as world:
        known = Health("status")
        (known.runtime,) = (runtime for runtime in world.runtimes() if runtime.service.author == "status")
        world.apply(TRAININGJOBS, a_training_job(workers=1))
        await world.until(lambda: world.count("JobRunning") == 1)
        assert known.report().warnings == ()
        await world.pass_seconds(20)
        (told,) = known.report().warnings
        assert re.fullmatch(r"1 status document .* for up to \d\d s: the API server answers too slowly, or fails", told)
        assert len(known.runtime._acts._waiting) == 1
        stuck.on = False
        await world.phase("Running")
        assert known.report().warnings == ()
        await world.quiet()
        assert known.report().warnings == ()
        assert not known.runtime._acts._waiting, "a probe looks at no job whose status is written"


async def test_each_sync_of_the_log_takes_fifty_milliseconds():
    journal = MemoryJournal(identity="slow")
    logs = {author: SlowDisk(journal, user=author) for author in AUTHORS}
    async with World(journal=journal, logs=logs) as world:
        await _all_run_and_scale(world)
        await _is_well(world)


async def test_the_pods_of_one_job_change_a_thousand_times_a_second(world: World):
    """What does not matter is not recorded, what does is at a bounded pace, and another job starts beside it."""
    await world.trains(workers=WORKERS)
    await world.quiet()
    before = len(world.journal.events)
    for turn in range(10_000):
        ready = "False" if turn % 2 else "True"
        name = f"resnet-worker-{turn % WORKERS}"
        status = {"conditions": [{"type": "Ready", "status": ready}], "message": f"turn {turn}"}
        world.store.patch(PODS, NAMESPACE, name, {"status": status}, subresource="status")
        await asyncio.sleep(0.001)
        if turn == 5_000:
            world.apply(TRAININGJOBS, a_training_job("beside", workers=1))
    await world.phase("Running", name="beside")
    recorded = len(world.journal.events) - before
    assert recorded < 300, "ten seconds of changes"
    await world.quiet()
    assert len(world.hosts()) == WORKERS
