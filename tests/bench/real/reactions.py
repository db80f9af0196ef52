"""A worker fails → the status tells it all: ten times a second over fifty jobs, alone and while a job of 400 starts;
and a hundred times a second over a thousand jobs.

The clock starts when the pod's status is about to be written and stops when a watch shows a job's status that counts
the worker and no longer lists it: until then a part of the truth is out.
The bare client sees the pod in a watch and writes a status of the same shape, and nothing else; Muster also takes
the worker out of the hosts files and tells its launcher.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from tests.bench.real import starts
from tests.bench.real.client import MERGE, Job, Pod, Watch, encode
from tests.bench.real.manifests import BARE_GROUP, collection
from tests.bench.real.table import Figure, milliseconds
from tests.bench.real.world import Run, World, patiently, progress

CONDITIONS = ("Created", "WorkersCreated", "LauncherCreated", "Running")
"""Of a running job's status."""


class Size(msgspec.Struct, frozen=True):
    jobs: int
    workers: int
    alone: int
    """Changes while nothing else happens; the others are left for the time when a job starts."""
    starting: int = 0
    """Workers of the job that starts."""
    starts: int = 0
    a_second: int = 10
    """Changes."""

    @property
    def what(self) -> str:
        return f"worker failed → status, {self.a_second}/s over {self.jobs:,} jobs: p50 / p99"


FULL = Size(jobs=50, workers=10, alone=200, starting=400, starts=3)
QUICK = Size(jobs=5, workers=6, alone=15, starting=20, starts=2)
CROWD = Size(jobs=1_000, workers=2, alone=1_000, a_second=100)
QUICK_CROWD = Size(jobs=10, workers=2, alone=10, a_second=100)


async def reactions(run: Run) -> list[Figure]:
    size = QUICK if run.quick else FULL
    ours, theirs = await _both(size)
    return [
        milliseconds(size.what, ours[0], theirs[0], "≤ 18 / 38 ms"),
        milliseconds(f"the same while a job of {size.starting} starts", ours[1], theirs[1], "≤ 26 / 84 ms"),
    ]


async def in_a_crowd(run: Run) -> list[Figure]:
    size = QUICK_CROWD if run.quick else CROWD
    (ours, _), (theirs, _) = await _both(size)
    return [milliseconds(size.what, ours, theirs, "p99 ≤ 150 ms")]


Taken = tuple[list[float], list[float]]
"""Seconds of each change: alone, and while a job starts."""


async def _both(size: Size) -> tuple[Taken, Taken]:
    """Muster's and the bare client's."""
    async with World() as world:
        progress(f"reaction of a bare client, {size.jobs} jobs x {size.workers}")
        theirs = await _bare(world, size)
        await world.clear("theirs")
        progress(f"reaction of Muster, {size.jobs} jobs x {size.workers}")
        return await _muster(world, size), theirs


async def _muster(world: World, size: Size) -> Taken:
    await world.namespace("ours")
    await starts.muster(world, "ours", size.jobs, size.workers)
    await world.quiet()

    async def start(namespace: str) -> None:
        await starts.muster(world, namespace, 1, size.starting)

    return await _measure(world, world.jobs, "ours", size, start)


async def _bare(world: World, size: Size) -> Taken:
    await world.namespace("theirs")
    await starts.bare(world, "theirs", size.jobs, size.workers)
    failed = {f"job-{job}": 0 for job in range(size.jobs)}
    under_way: set[asyncio.Task[bytes]] = set()
    at = collection("trainingjobs", "theirs", BARE_GROUP)

    def react(_: str, pod: Pod, __: float) -> None:
        if pod.status.phase == "Failed" and pod.metadata.namespace == "theirs":
            job = pod.metadata.name.rpartition("-worker-")[0]
            failed[job] += 1
            status = encode({"status": _document(job, size.workers, failed[job])})
            task = asyncio.create_task(world.aside.call("PATCH", f"{at}/{job}/status", status, MERGE))
            under_way.add(task)
            task.add_done_callback(under_way.discard)

    async def start(namespace: str) -> None:
        await starts.bare(world, namespace, 1, size.starting)

    end = world.pods.listen(react)
    try:
        return await _measure(world, world.bare_jobs, "theirs", size, start)
    finally:
        end()


async def _measure(
    world: World, jobs: Watch[Job], namespace: str, size: Size, start: Callable[[str], Awaitable[None]]
) -> Taken:
    """Seconds of each change, alone and while `start(namespace)` runs."""
    changes = iter([(f"job-{job}", worker) for worker in range(size.workers - 1) for job in range(size.jobs)])
    alone = await changed(world, jobs, namespace, changes, size.a_second, lambda done: done >= size.alone)
    beside: list[float] = []
    for number in range(size.starts):
        name = f"{namespace}-start-{number}"
        await world.namespace(name)
        starting = asyncio.ensure_future(start(name))
        beside += await changed(
            world, jobs, namespace, changes, size.a_second, lambda _, starting=starting: starting.done()
        )
        await starting
        await world.quiet()
    progress(f"  {namespace}: {len(alone)} changes alone, {len(beside)} while a job starts")
    return alone, beside


async def changed(
    world: World,
    jobs: Watch[Job],
    namespace: str,
    changes: Iterator[tuple[str, int]],
    a_second: float,
    enough: Callable[[int], bool],
) -> list[float]:
    """One change after another at their pace, whether or not the one before was seen, until it is `enough`."""
    loop = asyncio.get_running_loop()
    began, tasks = loop.time(), list[asyncio.Task[float]]()
    while not enough(len(tasks)) and (change := next(changes, None)) is not None:
        tasks.append(asyncio.create_task(change_seen(world, jobs, namespace, *change)))
        await asyncio.sleep(began + len(tasks) / a_second - loop.time())
    return [await patiently(task) for task in tasks]


async def change_seen(world: World, jobs: Watch[Job], namespace: str, job: str, worker: int) -> float:
    """Fail this worker, all of lower index having failed before; seconds until the job's status says so."""
    seen = jobs.seen(
        1,
        lambda _, found: (
            found.metadata.name == job and found.metadata.namespace == namespace and found.tells_of(worker + 1)
        ),
    )
    ended = {"name": "main", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}, "ready": False}
    ended |= {"image": "registry.example/train:1", "imageID": "", "restartCount": 0}
    status = encode({"status": {"phase": "Failed", "containerStatuses": [ended]}})
    began = time.perf_counter()
    await world.aside.call("PATCH", f"{collection('pods', namespace)}/{job}-worker-{worker}/status", status, MERGE)
    return await seen - began


def _document(job: str, workers: int, failed: int) -> dict[str, object]:
    """As much as Muster writes."""
    names = [f"{job}-worker-{index}" for index in range(failed, workers)]
    moment = "2030-01-01T00:00:00Z"
    condition = {"type": "Running", "status": "True", "reason": "TrainingJobRunning", "message": ""}
    condition |= {"lastUpdateTime": moment, "lastTransitionTime": moment}
    return {
        "phase": "Running",
        "conditions": [
            condition | {"type": kind} for kind in ("Created", "WorkersCreated", "LauncherCreated", "Running")
        ],
        "replicaStatuses": {
            "Launcher": {"active": 1, "succeeded": 0, "failed": 0},
            "Worker": {"active": len(names), "succeeded": 0, "failed": failed},
        },
        "startTime": moment,
        "restartCount": 0,
        "targetWorkers": names,
        "currentWorkers": names,
        "observedGeneration": 1,
        "replicas": workers,
        "selector": "muster.dev/job-uid=00000000-0000-4000-8000-000000000000",
        "workers": f"{len(names)}/{len(names)}",
        "lastReconcileTime": moment,
        "history": {"log": "0" * 32, "sequence": failed, "hash": "0" * 64},
    }
