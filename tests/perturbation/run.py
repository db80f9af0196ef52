"""Runs: undisturbed ones of each scenario, from which plans are made and ends learned, and one for each plan."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from shared.cluster.kinds import EVENTS
from tests.perturbation.calls import WAYS, Call, Strike
from tests.perturbation.ends import Mask, State, differences, learned
from tests.perturbation.scenarios import SCENARIOS
from tests.perturbation.stage import (
    PATIENCE_SECONDS,
    QUIET_SECONDS,
    REFERENCE_QUIET_SECONDS,
    Connects,
    Ground,
    Never,
    Stage,
    by_default,
)

REFERENCES = 3
"""Undisturbed runs of each scenario, one after the other: two that begin in the same second share its times."""


class Plan(msgspec.Struct, frozen=True):
    """One run: a scenario, and what one of its calls meets."""

    scenario: str
    strike: Strike

    def __str__(self) -> str:
        return f"{self.scenario} {self.strike}"

    @classmethod
    def parse(cls, words: str) -> "Plan":
        """As `str` wrote it.  Raises `ValueError`."""
        scenario, _, rest = words.strip().partition(" ")
        if scenario not in SCENARIOS:
            raise ValueError(f"no scenario: {scenario!r}")
        return cls(scenario, Strike.parse(rest))


class Reference(msgspec.Struct, frozen=True):
    """What a scenario does when nothing is in its way."""

    calls: tuple[Call, ...]
    """Those of every undisturbed run, in the order of the first one."""
    ends: tuple[State, ...]


class Outcome(msgspec.Struct, frozen=True):
    """What came of a plan."""

    plan: Plan
    struck: bool
    """Whether the call was made at all; which calls there are depends on how changes coalesce."""
    faults: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    """Of a run with faults, the end of its log."""


class Rig:
    """Stages on one control plane, each in a namespace of its own."""

    def __init__(self, ground: Ground, folder: Path) -> None:
        self._ground = ground
        self._folder = folder
        self._numbers = count()
        self.references: dict[str, Reference] = {}
        self.masked: frozenset[Mask] = frozenset()
        """What differs between undisturbed runs of any scenario."""

    async def learn(self, scenarios: Sequence[str]) -> None:
        """Run each scenario undisturbed."""
        runs = await asyncio.gather(*map(self._undisturbed, scenarios))
        for scenario, found in zip(scenarios, runs, strict=True):
            (calls, end), *others = found
            common = {*calls}.intersection(*(those for those, _ in others))
            ends = (end, *(other for _, other in others))
            self.references[scenario] = Reference(tuple(call for call in calls if call in common), ends)
            self.masked = self.masked.union(*(learned(end, other) for other in ends))

    def plans(self) -> list[Plan]:
        """Each call of each scenario with each way, in an order that mixes slow and quick ones."""
        found = [
            Plan(scenario, Strike(call, way))
            for scenario, reference in self.references.items()
            for call in reference.calls
            for way in WAYS
            # Kubernetes Events are never read.
            if way != "stale-read" or call.plural != EVENTS.plural
        ]
        Random(0).shuffle(found)
        return found

    async def play(self, plan: Plan, *, connects: Connects = by_default, patience: float = PATIENCE_SECONDS) -> Outcome:
        """Run a plan; its end must be that of an undisturbed run."""
        reference = self.references[plan.scenario]
        async with self._stage(strike=plan.strike, connects=connects, patience=patience) as stage:
            faults: list[str] = []
            try:
                await SCENARIOS[plan.scenario](stage)
                await stage.quiet(QUIET_SECONDS, lambda: not self._differences(reference, stage))
            except Never as never:
                faults = [str(never), *self._differences(reference, stage)]
            faults += stage.faults()
            return Outcome(plan, stage.struck, tuple(faults), tuple(stage.told()) if faults else ())

    def _differences(self, reference: Reference, stage: Stage) -> list[str]:
        return differences(reference.ends, stage.end(), self.masked)

    async def _undisturbed(self, scenario: str) -> list[tuple[tuple[Call, ...], State]]:
        found = []
        for _ in range(REFERENCES):
            async with self._stage() as stage:
                await SCENARIOS[scenario](stage)
                await stage.quiet(REFERENCE_QUIET_SECONDS)
                faults = stage.faults()
                assert not faults, f"{scenario} undisturbed: {faults}"
                found.append((tuple(stage.calls), stage.end()))
        return found

    def _stage(self, **more: Any) -> Stage:
        namespace = f"perturbed-{next(self._numbers)}"
        return Stage(self._ground, namespace, self._folder / namespace, **more)


async def play_all(
    rig: Rig, plans: Iterable[Plan], *, at_once: int, tell: Callable[[Outcome], None] = lambda _: None
) -> list[Outcome]:
    """Several runs at a time, as most of a run is waiting."""
    waiting, outcomes = iter(plans), list[Outcome]()

    async def work() -> None:
        for plan in waiting:
            outcomes.append(await rig.play(plan))
            tell(outcomes[-1])

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(work())
    return outcomes
