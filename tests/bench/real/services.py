"""What each service holds and how soon it is ready, with nothing to do and while jobs run; and all four in one process.

This is what requests and limits of pods go by.  A container that runs alone on a node does not share its
libraries: count what is *resident* then.
"""

import asyncio
import time

import aiohttp

from shared.ports import HOST
from tests.bench.real import starts
from tests.bench.real.processes import memory
from tests.bench.real.table import Figure
from tests.bench.real.world import Run, World, patiently, progress

WORKERS = 4


async def each_service(run: Run) -> list[Figure]:
    """Each of the four, then `muster run`; at none and at 100 jobs of four workers."""
    jobs = 10 if run.quick else 100
    return [*await _at(jobs, together=False), *await _at(jobs, together=True)]


async def _at(jobs: int, *, together: bool) -> list[Figure]:
    async with World(together=together) as world:
        await world.quiet()
        lines = [*_held(world, 0), *await _starts(world, 0)]
        progress(f"{jobs} jobs of {WORKERS} workers")
        before = world.used()
        await world.namespace("ours")
        await starts.muster(world, "ours", jobs, WORKERS)
        await world.quiet()
        lines += _held(world, jobs)
        lines += [
            Figure(f"{name}: processor time until {jobs} jobs run", f"{spent - before[name]:.2f} s")
            for name, spent in world.used().items()
        ]
        return [*lines, *await _starts(world, jobs)]


def _held(world: World, jobs: int) -> list[Figure]:
    lines = []
    for name, service in world.services.items():
        held = memory(service.pid)
        text = f"{held.resident:.0f} / {held.proportional:.0f} / {held.unique:.0f} / {held.peak:.0f} MiB"
        lines.append(Figure(f"{name}: memory at {jobs} jobs, resident / proportional / unique / peak", text))
    return lines


async def _starts(world: World, jobs: int) -> list[Figure]:
    """Stop and start each: one after the other, so that nothing else runs beside a start."""
    lines = []
    async with aiohttp.ClientSession() as session:
        for name, service in world.services.items():
            await service.stop()
            began = time.perf_counter()
            service.start()
            await patiently(ready(session, world.health[name]))
            took = time.perf_counter() - began
            lines.append(Figure(f"{name}: from start to ready at {jobs} jobs", f"{took:.2f} s"))
        await world.quiet()
    return lines


async def ready(session: aiohttp.ClientSession, port: int) -> None:
    """Wait until the service that answers probes there is ready."""
    while True:
        try:
            async with session.get(f"http://{HOST}:{port}/readyz") as answer:
                if answer.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.02)
