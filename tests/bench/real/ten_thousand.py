"""Ten thousand jobs of four workers: what another namespace feels when they are applied at once, and what they cost.

While those of one namespace start, a worker of another namespace's running jobs fails once a second.  One clock runs
until all that follows stands in the status, by the API server's audit log, another until a watch shows it: while a
client applies ten thousand jobs, each watch of TrainingJobs shows a change seconds after it was written.

They do not all start within the hour: for each pod kube-controller-manager looks at every Service of the namespace.
Those that are held come from fifty namespaces, therefore.  Then everything is stopped, a worker of one more job fails,
and all four services start again.
"""

import asyncio
import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from shared.frameworks.scale_requests import GROUP
from tests.bench.real import starts
from tests.bench.real.client import encode
from tests.bench.real.footprint import WORKERS, idle
from tests.bench.real.manifests import collection, training_job
from tests.bench.real.meter import Meter
from tests.bench.real.reactions import Changes, change_seen, changed
from tests.bench.real.table import Figure, percentiles
from tests.bench.real.world import BARE, Run, World, patiently, progress
from tests.kit.operator import audited

JOBS = 10_000
NAMESPACES = 50
PATIENCE = 3_600.0
"""Seconds until all of them run."""
OTHERS, OTHER_WORKERS = 50, 10


async def ten_thousand_jobs(run: Run) -> list[Figure]:
    jobs = 100 if run.quick else JOBS
    return [*await _flood(jobs), *await _held(jobs, quick=run.quick)]


async def _flood(jobs: int) -> list[Figure]:
    """All in one namespace, at once."""
    async with World() as world:
        for name in ("others", "ours"):
            await world.namespace(name)
        await starts.muster(world, "others", OTHERS, OTHER_WORKERS)
        await world.quiet()
        progress(f"{jobs:,} jobs of {WORKERS} workers in one namespace")
        bodies = _bodies("ours", jobs)
        applying = asyncio.ensure_future(world.client.flood(bodies))
        turns = min(jobs // OTHERS, OTHER_WORKERS - 1)
        changes = iter([(f"job-{job}", worker) for worker in range(turns) for job in range(OTHERS)])
        found, written = Changes(), world.audit.stat().st_size
        try:
            await changed(world, world.jobs, "others", changes, 1, lambda _: False, found, settle=False)
        finally:
            applying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await applying
        taken = stood(audited(world.audit, after=written), "others")
    what = f"worker failed → status while another namespace's {jobs:,} jobs x {WORKERS} start, 1/s: p50 / p99"
    (p50, p99), (seen50, seen99) = percentiles(taken), percentiles(found.taken)
    return [
        Figure(what, f"{p50:.0f} / {p99:.0f} ms of {len(taken)}", goal="p99 ≤ 1,000 ms"),
        Figure(f"{what}, shown by a watch", f"{seen50:.0f} / {seen99:.0f} ms of {len(found.taken)}"),
    ]


def stood(calls: Iterable[dict[str, Any]], namespace: str) -> list[float]:
    """Seconds from each worker that failed to the last write of its job's status before that job's next one."""
    failed, written = list[tuple[str, datetime]](), defaultdict[str, list[datetime]](list)
    for call in calls:
        of = call.get("objectRef", {})
        what = call["verb"], of.get("resource"), of.get("subresource"), of.get("namespace")
        if what == ("patch", "pods", "status", namespace) and call["user"]["username"].endswith(f":{BARE}"):
            at = datetime.fromisoformat(call["requestReceivedTimestamp"])
            failed.append((of["name"].rpartition("-worker-")[0], at))
        elif what == ("patch", "trainingjobs", "status", namespace):
            written[of["name"]].append(datetime.fromisoformat(call["stageTimestamp"]))
    found, until = list[float](), dict[str, datetime]()
    for job, moment in sorted(failed, key=lambda change: change[1], reverse=True):
        later = [at for at in sorted(written[job]) if at > moment]
        between = [at for at in later if job not in until or at < until[job]]
        found.append(((between or later[:1])[-1] - moment).total_seconds())
        until[job] = moment
    return found


async def _held(jobs: int, *, quick: bool) -> list[Figure]:
    async with World() as world:
        await world.namespace("last")
        await starts.muster(world, "last", 1, 2)
        spaces = [f"ours-{number}" for number in range(NAMESPACES)]
        for name in spaces:
            await world.namespace(name)
        await world.quiet()
        progress(f"{jobs:,} jobs of {WORKERS} workers in {NAMESPACES} namespaces")
        meter, began = Meter(world, spaces[0]), time.perf_counter()
        running = world.jobs.seen(
            jobs, lambda _, job: job.status.phase == "Running" and job.metadata.namespace in spaces
        )
        await world.client.flood(body for name in spaces for body in _bodies(name, jobs // NAMESPACES))
        took = await patiently(running, PATIENCE) - began
        what = f"{jobs:,} jobs x {WORKERS}"
        lines = [
            Figure(f"{what}: → Running in status", f"{took:.0f} s"),
            Figure(f"{what}: processor time of kube-apiserver", f"{meter.apiserver():.0f} s"),
            Figure(f"{what}: processor time of all four", f"{sum(meter.used().values()):.0f} s"),
        ]
        held = await idle(world, quick=quick)
        lines.append(Figure(f"{what}: memory of all four, resident / unique", held.memory, goal="≤ 1,024 MiB"))
        return [*lines, *await _restarted(world, jobs)]


def _bodies(namespace: str, jobs: int) -> list[tuple[str, bytes]]:
    path = collection("trainingjobs", namespace, GROUP)
    return [(path, encode(training_job(f"job-{job}", namespace, WORKERS))) for job in range(jobs)]


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
