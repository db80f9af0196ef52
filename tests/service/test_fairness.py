"""Many jobs of one namespace delay another namespace's first job by a second, and very many by no more than two.

The API server and the log take so many calls a second and no more, one after the other, as a loaded machine does.
"""

import asyncio

import pytest

from shared.eventlog import Entry
from shared.flow import BULK, BULK_BESIDE, Limiter
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.runtime import acts
from tests.kit.virtual_time import VirtualLoop
from tests.kit.world import World, a_scale_out, a_training_job
from tests.memory.cluster import Call, Calm
from tests.memory.eventlog import MemoryEventLog

CALLS_A_SECOND = 400
"""A small API server's."""
APPENDS_A_SECOND = 2_000
"""One NATS server's on a slow disk."""

THEIRS, OURS = "team-b", "team-a"


class Rated:
    """Serves so many a second, in the order in which they come."""

    def __init__(self, rate: float) -> None:
        self._seconds = 1 / rate
        self._free = 0.0

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        self._free = max(self._free, loop.time()) + self._seconds
        await asyncio.sleep(self._free - loop.time())


class Loaded(Calm):
    """The way of one service to the one API server, through its own limiter."""

    def __init__(self, server: Rated) -> None:
        self._server = server
        self._limiter = Limiter()

    async def before(self, call: Call) -> None:
        if call.verb != "watch":
            async with self._limiter.place(call.namespace) as sent:
                await self._server.serve()
                sent.answered()


class SlowLog(MemoryEventLog):
    """A client of the one log."""

    def __init__(self, world: World, user: str, server: Rated) -> None:
        super().__init__(world.journal, user=user)
        self._server = server

    async def append(self, entry: Entry, *, expect: int) -> int:
        await self._server.serve()
        return await super().append(entry, expect=expect)


class Busy(World):
    """A world whose API server and log are as slow as these rates."""

    def __init__(self, calls: float = CALLS_A_SECOND) -> None:
        self._api, self._log = Rated(calls), Rated(APPENDS_A_SECOND)
        super().__init__(weather=lambda _: Loaded(self._api))

    def log(self, author: str) -> MemoryEventLog:
        return SlowLog(self, author, self._log)


async def seconds_until_running(crowd: int) -> float:
    """How long our first job takes until it runs, right after a crowd of another namespace's."""
    loop = asyncio.get_running_loop()
    async with Busy() as world:
        world.journal._most = 1_000_000
        world.collecting = False
        for number in range(crowd):
            world.apply(TRAININGJOBS, a_training_job(f"theirs-{number}", workers=4), THEIRS)
        # The crowd is at work, and not only waiting to be seen.
        await asyncio.sleep(0.5)
        begun = loop.time()
        world.apply(TRAININGJOBS, a_training_job(workers=2), OURS)
        while world.status(TRAININGJOBS, "resnet", OURS).get("phase") != "Running":
            await asyncio.sleep(0.01)
            assert loop.time() < begun + 120
        return loop.time() - begun


async def seconds_until_a_first_pod(workers: int) -> float:
    """How long our second job takes until it has a pod, beside a job of so many workers of another namespace."""
    loop = asyncio.get_running_loop()
    async with Busy(calls=100) as world:
        world.collecting = False
        theirs = a_training_job("theirs", workers=workers)
        theirs["spec"]["etReplicaSpecs"]["worker"]["maxReplicas"] = workers
        world.apply(TRAININGJOBS, theirs, THEIRS)
        await asyncio.sleep(0.5)
        for name in ("first", "second"):
            begun = loop.time()
            world.apply(TRAININGJOBS, a_training_job(name, workers=1), OURS)
            while f"{name}-worker-0" not in world.pods(OURS):
                await asyncio.sleep(0.01)
        return loop.time() - begun


class Noting(Calm):
    """Notes which calls are bulk work."""

    def __init__(self, noted: dict[tuple[str, str, str], bool]) -> None:
        self._limiter, self._noted = Limiter(), noted

    async def before(self, call: Call) -> None:
        if call.verb != "watch":
            async with self._limiter.place(call.namespace) as sent:
                self._noted[call.verb, call.plural, call.name] = sent.bound is self._limiter.bulk


async def test_pods_that_are_made_many_at_a_time_are_bulk_work_and_all_else_is_not():
    noted: dict[tuple[str, str, str], bool] = {}
    async with World(weather=lambda _: Noting(noted)) as world:
        world.apply(TRAININGJOBS, a_training_job(workers=3))
        await world.running()
        world.apply(SCALEOUTS, a_scale_out(1))
        await world.until(lambda: "ScaleSucceeded" in world.types(), "the scale-out")
    pods = {name: bulk for (verb, plural, name), bulk in noted.items() if (verb, plural) == ("create", "pods")}
    assert pods == {
        "resnet-worker-0": True,
        "resnet-worker-1": True,
        "resnet-worker-2": True,
        "resnet-launcher": False,
        "resnet-worker-3": False,
    }
    others = {(verb, plural) for (verb, plural, _), bulk in noted.items() if bulk and plural != "pods"}
    assert others <= {("create", "services"), ("create", "events")}


async def test_bulk_work_leaves_room_in_every_service_for_what_follows_a_change_of_a_job_that_runs(world: World):
    await world.trains(workers=1)
    runtimes = [world._running[author][0] for author in ("scheduler", "status")]
    for runtime in runtimes:
        runtime._limiter = Limiter()
    world.apply(TRAININGJOBS, a_training_job("starts", workers=1))
    await world.until(lambda: world.count("JobCreated") == 2)
    assert [runtime._limiter.bulk.limit for runtime in runtimes] == [BULK] * 2, "a start is no such change"
    world.apply(SCALEOUTS, a_scale_out(1))
    await world.until(lambda: world.count("ScaleRequested") >= 1)
    await world.pass_seconds(0.1)
    assert [runtime._limiter.bulk.limit for runtime in runtimes] == [BULK_BESIDE] * 2


class Hanging(Calm):
    """Pods of the crowd are not made."""

    async def before(self, call: Call) -> None:
        if (call.verb, call.plural) == ("create", "pods") and call.name.startswith("theirs"):
            await asyncio.Event().wait()


async def test_one_pod_does_not_wait_for_the_places_of_many(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(acts, "EFFECTS_IN_FLIGHT", 2)
    async with World(weather=lambda _: Hanging()) as world:
        await world.trains(workers=1)
        world.apply(TRAININGJOBS, a_training_job("theirs", workers=4))
        await world.pass_seconds(1)
        world.apply(SCALEOUTS, a_scale_out(1))
        await world.until(lambda: "ScaleSucceeded" in world.types(), "the scale-out")


@pytest.mark.parametrize(("crowd", "most"), [(120, 1.0), (10_000, 2.0)])
def test_a_crowd_of_another_namespace_delays_a_first_job_little(crowd: int, most: float):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        alone = runner.run(seconds_until_running(0))
        crowded = runner.run(seconds_until_running(crowd))
    assert crowded - alone < most, f"{crowded:.2f} s in the crowd and {alone:.2f} s alone"


def test_a_large_job_of_another_namespace_leaves_the_api_server_room_for_a_first_pod():
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        beside = runner.run(seconds_until_a_first_pod(400))
    # A Secret and the pod; with forty requests in flight each would wait for 0.4 s at this server.
    assert beside < 0.5, f"{beside:.2f} s"
