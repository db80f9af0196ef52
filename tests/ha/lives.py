"""What each process held over its life, from its start to its end: memory and open files."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Self

import msgspec

from tests.bench.real.processes import memory, open_files
from tests.ha.world import Pairs

SAMPLE_SECONDS = 5.0
TOLD_SECONDS = 60.0


class Sample(msgspec.Struct, frozen=True):
    """One look at a process."""

    at: float
    """Seconds on a clock that never jumps."""
    resident: float
    """MiB."""
    files: int
    """Open file descriptors."""


class Life(msgspec.Struct):
    """One process; the next one under the same name is another life."""

    name: str
    pid: int
    samples: list[Sample] = []


class Lives:
    """`async with Lives(world, tell, more)`: looks at all services and servers of the log every few seconds.

    Each minute it tells what they hold, behind the words of `more`.
    """

    def __init__(self, world: Pairs, tell: Callable[[str], None], more: Callable[[], str]) -> None:
        self._world, self._tell, self._more = world, tell, more
        self._known: dict[tuple[str, int], Life] = {}

    async def __aenter__(self) -> Self:
        self._looking = asyncio.create_task(self._look_again())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._looking.cancel()
        with suppress(asyncio.CancelledError):
            await self._looking

    @property
    def all(self) -> list[Life]:
        return list(self._known.values())

    async def _look_again(self) -> None:
        begun = told = time.monotonic()
        while True:
            newest = self._look(time.monotonic())
            if time.monotonic() - told >= TOLD_SECONDS:
                told += TOLD_SECONDS
                held = ", ".join(f"{name} {sample.resident:.1f}" for name, sample in newest.items())
                self._tell(f"after {(told - begun) / 60:.0f} min: {self._more()}; MiB resident: {held}")
            await asyncio.sleep(SAMPLE_SECONDS)

    def _look(self, now: float) -> Mapping[str, Sample]:
        newest = {}
        for name in (*self._world.services, *self._world.nats.servers):
            process = self._world.process(name)
            # A process that is being stopped may end between two of these lines.
            with suppress(FileNotFoundError, ProcessLookupError):
                if process.running:
                    newest[name] = Sample(now, memory(process.pid).resident, open_files(process.pid))
                    life = self._known.setdefault((name, process.pid), Life(name, process.pid))
                    life.samples.append(newest[name])
        return newest
