"""Ten thousand jobs of four workers, applied at once: what another namespace feels of it, and what they cost then.

While they start, a worker of another namespace's running jobs fails once a second, and the clock runs until the status
tells it all.  Then everything is stopped, a worker of one more job fails, and all four services start again.
"""

import asyncio
import time
from collections import Counter

from tests.bench.real import starts
from tests.bench.real.footprint import WORKERS, idle
from tests.bench.real.reactions import Changes, change_seen, changed
from tests.bench.real.table import Figure, percentiles
from tests.bench.real.world import Run, World, patiently, progress
from tests.kit.operator import audited

JOBS = 10_000
PATIENCE = 3_600.0
"""Seconds until all of them run."""
OTHERS, OTHER_WORKERS = 50, 10


async def ten_thousand_jobs(run: Run) -> list[Figure]:
    jobs = 20 if run.quick else JOBS
    async with World() as world:
        for name in ("others", "ours", "last"):
            await world.namespace(name)
        await starts.muster(world, "others", OTHERS, OTHER_WORKERS)
        await starts.muster(world, "last", 1, 2)
        await world.quiet()
        progress(f"{jobs:,} jobs of {WORKERS} workers")
        starting = asyncio.ensure_future(starts.muster(world, "ours", jobs, WORKERS, patience=PATIENCE))
        changes = iter([(f"job-{job}", worker) for worker in range(OTHER_WORKERS - 1) for job in range(OTHERS)])
        found = Changes()
        await changed(world, world.jobs, "others", changes, 1, lambda _: starting.done(), found)
        took = await starting
        p50, p99 = percentiles(found.taken)
        what = f"{jobs:,} jobs x {WORKERS}"
        lines = [
            Figure(f"{what}: → Running in status", f"{took.running:.0f} s"),
            Figure(f"{what}: processor time of kube-apiserver", f"{took.apiserver:.0f} s"),
            Figure(f"{what}: processor time of all four", f"{took.used:.0f} s"),
            Figure(
                "worker failed → status in another namespace meanwhile, 1/s: p50 / p99",
                f"{p50:.0f} / {p99:.0f} ms of {len(found.taken)}",
                goal="p99 ≤ 1,000 ms",
            ),
        ]
        held = await idle(world, quick=run.quick)
        lines.append(Figure(f"{what}: memory of all four, resident / unique", held.memory, goal="≤ 1,024 MiB"))
        return [*lines, *await _restarted(world, jobs)]


async def _restarted(world: World, jobs: int) -> list[Figure]:
    """All four at once; nothing but the failed worker calls for a decision."""
    await world.stop_services()
    written = world.audit.stat().st_size
    seen = asyncio.create_task(change_seen(world, world.jobs, "last", "job-0", 0))
    await asyncio.sleep(1)
    began = time.perf_counter()
    for service in world.services.values():
        service.start()
    await patiently(seen)
    first = time.perf_counter() - began
    await world.quiet()
    services = {f"system:serviceaccount:muster:{name}" for name in world.services}
    calls = [call for call in audited(world.audit, after=written) if call["user"]["username"] in services]
    progress(f"  a restart: first change told after {first:.2f} s, {len(calls)} calls")
    kinds = Counter(f"{call['verb']} {call['objectRef']['resource']}" for call in calls if "objectRef" in call)
    progress("  " + ", ".join(f"{kind} {number}" for kind, number in kinds.most_common()))
    return [
        Figure(f"{jobs:,} jobs x {WORKERS}: restart of all four → first change told", f"{first:.1f} s", goal="≤ 5 s"),
        Figure(f"{jobs:,} jobs x {WORKERS}: calls of that restart for each", f"{len(calls) / jobs:.2f}", goal="≤ 2"),
    ]
