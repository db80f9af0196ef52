"""Two servers on the same sequences: where they differ, and the shortest sequence that still shows it."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.contract.differential.playing import play, wake
from tests.contract.differential.sequences import Step, sequence
from tests.devcluster.apiserver.client import Client

AT_ONCE = 4
"""Sequences that are played at the same time."""


class Difference(NamedTuple):
    seed: int
    steps: list[Step]
    where: str
    lines: list[str]

    def __str__(self) -> str:
        calls = "\n".join(f"  {number}. {step}" for number, step in enumerate(self.steps, 1))
        return f"SEED={self.seed}\n{calls}\n{self.where}:\n" + "\n".join(f"    {line}" for line in self.lines)


class Comparison:
    def __init__(self, real: Client, embedded: Client) -> None:
        self._real = real
        self._embedded = embedded

    async def seed(self, seed: int) -> Difference | None:
        """The first difference of the sequence, shown by as few calls as possible."""
        found = await self._compare(seed, sequence(seed))
        at = 0
        while found and at < len(found.steps) - 1:
            fewer = await self._compare(seed, found.steps[:at] + found.steps[at + 1 :])
            found, at = (fewer, at) if fewer else (found, at + 1)
        return found

    async def seeds(self, seeds: Iterable[int]) -> list[Difference]:
        gate = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(wake(self._real), wake(self._embedded))

        async def one(seed: int) -> Difference | None:
            async with gate:
                return await self.seed(seed)

        found = await asyncio.gather(*(one(seed) for seed in seeds))
        return [difference for difference in found if difference is not None]

    async def _compare(self, seed: int, steps: list[Step]) -> Difference | None:
        """What differs, of the first call that does; no call after it is kept."""
        real, embedded = await asyncio.gather(play(self._real, steps), play(self._embedded, steps))
        for number, (one, other) in enumerate(zip(real, embedded, strict=True), 1):
            if one != other:
                where = f"call {number}" if number <= len(steps) else f"watch of {one['watch']}"
                return Difference(seed, steps[:number], where, differences(one, other))
        return None


def differences(real: Any, embedded: Any, path: str = "") -> list[str]:
    """One line for each place where two values differ."""
    if isinstance(real, dict) and isinstance(embedded, dict):
        lines = []
        for name in sorted({*real, *embedded}):
            where = f"{path}.{name}" if path else name
            lines += differences(real.get(name, ...), embedded.get(name, ...), where)
        return lines
    if isinstance(real, list) and isinstance(embedded, list) and len(real) == len(embedded):
        pairs = enumerate(zip(real, embedded, strict=True))
        return [line for at, (one, other) in pairs for line in differences(one, other, f"{path}[{at}]")]
    return [] if real == embedded else [f"{path}: real {_shown(real)}, embedded {_shown(embedded)}"]


def _shown(value: Any) -> str:
    return "nothing" if value is ... else json.dumps(value)
