"""Many jobs: how soon all of them run, what the four services hold in memory then, and what idling costs."""

import asyncio
import time
from collections import defaultdict

import msgspec

from tests.bench.real import starts
from tests.bench.real.processes import Held, memory, processor
from tests.bench.real.table import Figure
from tests.bench.real.world import Run, World, progress

WORKERS = 4
IDLE_SECONDS = 15.0


class Idle(msgspec.Struct, frozen=True):
    """How it stands with all four while nothing happens."""

    by_service: dict[str, Held]
    processor: float
    """Percent of one core."""

    @property
    def memory(self) -> str:
        parts = self.by_service.values()
        each = ", ".join(f"{name} {held.unique:.0f}" for name, held in self.by_service.items())
        return f"{sum(p.resident for p in parts):.0f} / {sum(p.unique for p in parts):.0f} MiB ({each})"


async def many_jobs(run: Run) -> list[Figure]:
    """200 jobs of four workers; all services at none and at 200."""
    jobs = 10 if run.quick else 200
    ours, theirs = list[starts.Took](), list[starts.Took]()
    lines, held = list[Figure](), list[Figure]()
    for turn in range(run.turns):
        progress(f"{jobs} jobs of {WORKERS} workers, {turn + 1} of {run.turns}")
        async with World(writers=run.writers) as world:
            lines = _lines(0, await idle(world, quick=run.quick))
            await world.namespace("theirs")
            theirs.append(await starts.bare(world, "theirs", jobs, WORKERS))
            await world.clear("theirs")
            await world.namespace("ours")
            ours.append(await starts.muster(world, "ours", jobs, WORKERS))
            held = _lines(jobs, await idle(world, quick=run.quick))
    peers = await _peers(run, jobs)
    return [*lines, *starts.figures(jobs, WORKERS, ours, theirs, ("", "≤ 1.5x", ""), peers), *held]


async def a_thousand_jobs(run: Run) -> list[Figure]:
    """1,000 jobs of four workers, each side in an empty cluster of its own."""
    jobs = 20 if run.quick else 1_000
    ours, theirs, held = list[starts.Took](), list[starts.Took](), list[Figure]()
    for turn in range(run.turns):
        progress(f"{jobs} jobs of {WORKERS} workers, {turn + 1} of {run.turns}")
        async with World(muster=False, writers=run.writers) as world:
            await world.namespace("theirs")
            theirs.append(await starts.bare(world, "theirs", jobs, WORKERS))
        async with World(writers=run.writers) as world:
            await world.namespace("ours")
            ours.append(await starts.muster(world, "ours", jobs, WORKERS))
            held = _lines(jobs, await idle(world, quick=run.quick), goal="≤ 300 MiB")
    peers = await _peers(run, jobs)
    return [*starts.figures(jobs, WORKERS, ours, theirs, ("", "≤ 1.5x", "≤ 1.6x"), peers), *held]


async def _peers(run: Run, jobs: int) -> starts.Beside:
    """Each in a cluster of its own."""
    beside = defaultdict[str, list[starts.Took]](list)
    for peer in [peer for peer in run.peers for _ in range(run.turns)]:
        async with World(peer=peer, writers=run.writers) as world:
            await world.namespace("peer")
            beside[peer.NAME].append(await starts.peer(peer, world, "peer", jobs, WORKERS))
    return beside


async def idle(world: World, *, quick: bool) -> Idle:
    """Measured after the last event, over some seconds in which nothing changes."""
    await world.quiet()
    pids = {name: service.pid for name, service in world.services.items()}
    before, began = processor(pids.values()), time.perf_counter()
    await asyncio.sleep(IDLE_SECONDS / 5 if quick else IDLE_SECONDS)
    used = (processor(pids.values()) - before) / (time.perf_counter() - began)
    found = Idle({name: memory(pid) for name, pid in pids.items()}, used * 100)
    progress(f"  idle: {found.memory}, {found.processor:.2f} % of a core")
    return found


def _lines(jobs: int, found: Idle, goal: str = "") -> list[Figure]:
    held = Figure(f"{jobs:,} jobs: memory of all four, resident / unique", found.memory, goal=goal)
    return [held, Figure(f"{jobs:,} jobs: idle, all four", f"{found.processor:.2f} % of a core", goal="≤ 1 %")]
