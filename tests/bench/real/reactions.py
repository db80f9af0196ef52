"""A worker fails → the status tells it all: ten times a second over fifty jobs, alone and while a job of 400 starts;
and a hundred times a second over a thousand jobs.

The clock starts when the pod's status is about to be written and stops at the whole truth: when a watch shows the
job's status as it stays until the next change of that job, which counts the worker and no longer lists it.
The bare client sees the pod in a watch and writes a status of the same shape, and nothing else; Muster also takes
the worker out of the hosts files and tells its launcher.
"""

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from math import inf

import msgspec

from tests.bench.real import starts
from tests.bench.real.client import MERGE, Job, Pod, Watch, encode
from tests.bench.real.manifests import BARE_GROUP, collection
from tests.bench.real.meter import Calls, Meter, listed
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
    ours, theirs = await _both(size, run.turns, run.writers)
    meanwhile = f"the same while a job of {size.starting} starts"
    return [
        milliseconds(size.what, ours.alone.taken, theirs.alone.taken, "≤ 18 / 38 ms"),
        *_costs(size.what, ours.alone, theirs.alone),
        milliseconds(meanwhile, ours.beside.taken, theirs.beside.taken, "≤ 26 / 84 ms"),
        *_costs(meanwhile, ours.beside, theirs.beside)[:2],
        Figure(
            "that job's own start → Running in status, without changes / meanwhile",
            ours.starts,
            theirs.starts,
            goal="≤ 1.1x",
        ),
    ]


async def in_a_crowd(run: Run) -> list[Figure]:
    size = QUICK_CROWD if run.quick else CROWD
    ours, theirs = await _both(size, run.turns, run.writers)
    return [
        milliseconds(size.what, ours.alone.taken, theirs.alone.taken, "p99 ≤ 150 ms"),
        *_costs(size.what, ours.alone, theirs.alone),
    ]


class Changes(msgspec.Struct):
    """What changes took."""

    taken: list[float] = []
    """Seconds of each."""
    calls: Calls = msgspec.field(default_factory=Calls)
    apiserver: float = 0.0
    """Processor seconds of kube-apiserver."""

    def add(self, other: "Changes") -> None:
        """Those of another turn."""
        self.taken += other.taken
        self.calls += other.calls
        self.apiserver += other.apiserver


class Reactions(msgspec.Struct):
    """Changes alone, and while a job starts."""

    alone: Changes = msgspec.field(default_factory=Changes)
    beside: Changes = msgspec.field(default_factory=Changes)
    without: list[float] = []
    """Seconds of a start of that job without changes."""
    meanwhile: list[float] = []

    def add(self, other: "Reactions") -> None:
        """Those of another turn."""
        self.alone.add(other.alone)
        self.beside.add(other.beside)
        self.without += other.without
        self.meanwhile += other.meanwhile

    @property
    def starts(self) -> str:
        if not self.meanwhile:
            return ""
        without, meanwhile = statistics.median(self.without), statistics.median(self.meanwhile)
        return f"{without:.2f} / {meanwhile:.2f} s ({meanwhile / without:.2f}x)"


def _costs(what: str, ours: Changes, theirs: Changes) -> list[Figure]:
    def of(words: str, cost: Callable[[Changes], str]) -> Figure:
        return Figure(f"{what}: {words}", cost(ours), cost(theirs))

    return [
        of("calls for each", lambda found: f"{found.calls.total() / len(found.taken):.1f}"),
        of("of these by verb and resource", lambda found: listed(found.calls, len(found.taken))),
        of(
            "processor time of kube-apiserver for each",
            lambda found: f"{found.apiserver / len(found.taken) * 1e3:.0f} ms",
        ),
    ]


async def _both(size: Size, turns: int, writers: int) -> tuple[Reactions, Reactions]:
    """Muster's and the bare client's, of so many turns together."""
    ours, theirs = Reactions(), Reactions()
    for turn in range(turns):
        async with World(writers=writers) as world:
            progress(f"reaction of a bare client, {size.jobs} jobs x {size.workers}, {turn + 1} of {turns}")
            theirs.add(await _bare(world, size))
            await world.clear("theirs")
            progress(f"reaction of Muster, {size.jobs} jobs x {size.workers}, {turn + 1} of {turns}")
            ours.add(await _muster(world, size))
    return ours, theirs


async def _muster(world: World, size: Size) -> Reactions:
    await world.namespace("ours")
    await starts.muster(world, "ours", size.jobs, size.workers)
    await world.quiet()

    async def start(namespace: str) -> float:
        return (await starts.muster(world, namespace, 1, size.starting)).running

    return await _measure(world, world.jobs, "ours", size, start)


async def _bare(world: World, size: Size) -> Reactions:
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

    async def start(namespace: str) -> float:
        return (await starts.bare(world, namespace, 1, size.starting)).running

    end = world.pods.listen(react)
    try:
        return await _measure(world, world.bare_jobs, "theirs", size, start)
    finally:
        end()


async def _measure(
    world: World, jobs: Watch[Job], namespace: str, size: Size, start: Callable[[str], Awaitable[float]]
) -> Reactions:
    """The changes alone and while `start(namespace)` runs, which returns its seconds."""
    changes = iter([(f"job-{job}", worker) for worker in range(size.workers - 1) for job in range(size.jobs)])
    found = Reactions()
    await changed(world, jobs, namespace, changes, size.a_second, lambda done: done >= size.alone, found.alone)
    for number in range(size.starts):
        for which, taken in (("without", found.without), ("meanwhile", found.meanwhile)):
            name = f"{namespace}-start-{which}-{number}"
            await world.namespace(name)
            starting = asyncio.ensure_future(start(name))
            if taken is found.meanwhile:
                await changed(
                    world,
                    jobs,
                    namespace,
                    changes,
                    size.a_second,
                    lambda _, starting=starting: starting.done(),
                    found.beside,
                )
            taken.append(await starting)
            await world.clear(name)
    progress(f"  {namespace}: {len(found.alone.taken)} changes alone, {len(found.beside.taken)} while a job starts")
    return found


async def changed(
    world: World,
    jobs: Watch[Job],
    namespace: str,
    changes: Iterator[tuple[str, int]],
    a_second: float,
    enough: Callable[[int], bool],
    into: Changes,
    *,
    settle: bool = True,
) -> None:
    """One change after another at their pace, whether or not the one before was seen, until it is `enough`.

    Without `settle` other work goes on without end, and what is told after the last change was seen does not count.
    """
    loop = asyncio.get_running_loop()
    meter, shown = Meter(world, namespace), defaultdict[str, list[Shown]](list)

    def note(_: str, job: Job, now: float) -> None:
        if job.metadata.namespace == namespace:
            shown[job.metadata.name].append((now, job))

    end = jobs.listen(note)
    began, tasks = loop.time(), list[asyncio.Task[float]]()
    asked: list[tuple[str, int, float]] = []
    while not enough(len(tasks)) and (change := next(changes, None)) is not None:
        asked.append((*change, time.perf_counter()))
        tasks.append(asyncio.create_task(change_seen(world, jobs, namespace, *change)))
        await asyncio.sleep(began + len(tasks) / a_second - loop.time())
    for task in tasks:
        await patiently(task)
    # What is still to come belongs to the truth, too.
    if settle:
        await world.quiet()
    end()
    into.apiserver += meter.apiserver()
    into.calls += meter.calls()
    until = dict[str, float]()
    for job, worker, moment in reversed(asked):
        into.taken.append(whole(shown[job], worker + 1, moment, until.get(job, inf)) - moment)
        until[job] = moment


Shown = tuple[float, Job]
"""A job as a watch showed it, and when."""


def whole(shown: Sequence[Shown], failed: int, after: float, until: float) -> float:
    """When the status first was as it stayed from then on, between a change of the job and its next one.

    A status that tells of this change only after the next one tells of both.
    """
    between = [(moment, job) for moment, job in shown if after <= moment < until and job.tells_of(failed)]
    if not between:
        return next(moment for moment, job in shown if moment >= until and job.tells_of(failed))
    moment, last = between[-1]
    for earlier, job in reversed(between):
        if job.status != last.status:
            break
        moment = earlier
    return moment


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
