"""What jobs cost: the calls of each service to the API server, and the events of each type.

Exact, so that nobody adds one without saying so: `REWRITE_GOLDEN=1` writes the tables anew.
"""

from collections import Counter
from typing import Any

import pytest

from services.status.shell import ANNOUNCED_SECONDS
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.trainer_schemas import RUNTIMES
from shared.frameworks.trainjob import TRAINJOBS
from tests.golden.compare import assert_golden
from tests.kit.world import World, a_scale_in, a_scale_out
from tests.memory.cluster import Call, Calm
from tests.simulation.manifests import KINDS, RESOURCES, manifest_of, runtime_of
from tests.simulation.plan import Apply

WORKERS = 4
CROWD = 50
QUIET_SECONDS = 20.0
"""Longer than anything that can wait does wait."""


class Counting(Calm):
    """Counts the calls of one service."""

    def __init__(self, author: str, calls: Counter[str]) -> None:
        self._author = author
        self._calls = calls

    async def before(self, call: Call) -> None:
        if call.verb != "watch":
            self._calls[f"{self._author} {call.verb} {call.plural}"] += 1
        await super().before(call)


class Counted(World):
    """A world with the calls of its services, in which nothing depends on chance or on the machine."""

    clock = staticmethod(lambda: 0.0)
    chance = staticmethod(lambda: 0.5)

    def __init__(self) -> None:
        self.calls = Counter[str]()
        super().__init__(kinds=KINDS, weather=lambda author: Counting(author, self.calls))

    def begin(self, kind: str, name: str = "resnet") -> None:
        step = Apply(at=0.0, job=name, kind=kind, workers=WORKERS)
        if kind == TRAINJOBS.kind:
            self.apply(RUNTIMES, runtime_of(step))
        self.apply(RESOURCES[kind], manifest_of(step))

    async def run(self, jobs: int = 1) -> None:
        await self.until(lambda: self.count("JobRunning") == jobs, f"{jobs} run")
        await self.quiet(QUIET_SECONDS)

    def costs(self) -> dict[str, dict[str, int]]:
        """So far."""
        return {"calls": dict(sorted(self.calls.items())), "events": dict(sorted(Counter(self.types()).items()))}


@pytest.mark.parametrize("kind", RESOURCES)
async def test_a_job_until_it_runs(kind: str):
    async with Counted() as world:
        world.begin(kind)
        await world.run()
        assert_golden(f"costs/{kind.lower()}", world.costs())


async def test_a_job_that_is_scaled():
    async with Counted() as world:
        world.begin("TrainingJob")
        await world.run()
        stages: dict[str, Any] = {}
        for resource, request in ((SCALEOUTS, a_scale_out(1)), (SCALEINS, a_scale_in(1))):
            before = world.costs()
            world.apply(resource, request)
            await world.phase("ScaleSucceeded", resource, request["metadata"]["name"])
            await world.quiet(QUIET_SECONDS)
            stages[resource.kind] = {
                of: dict(sorted((Counter(costs) - Counter(before[of])).items())) for of, costs in world.costs().items()
            }
        assert_golden("costs/scaling", stages)


async def test_a_restart_of_all_services():
    async with Counted() as world:
        world.begin("TrainingJob")
        await world.run()
        await world.quiet(ANNOUNCED_SECONDS)
        before = world.costs()
        await world.restart()
        await world.quiet(QUIET_SECONDS)
        after = world.costs()
        assert_golden("costs/restart", {of: dict(Counter(after[of]) - Counter(before[of])) for of in after})


async def test_each_of_a_crowd_costs_hardly_more_than_one_alone():
    async with Counted() as alone:
        alone.begin("TrainingJob")
        await alone.run()
    async with Counted() as world:
        for number in range(CROWD):
            world.begin("TrainingJob", f"job-{number}")
        await world.run(CROWD)
    # Progress may be written once more.
    assert world.calls["status patch trainingjobs"] <= CROWD * 3
    assert world.calls.total() <= CROWD * (alone.calls.total() + 1)
    assert len(world.types()) <= CROWD * len(alone.types())
