"""Applied → every worker pod created → Running: one job of 10, 100, 1,000 workers; 200 and 1,000 jobs of four.

The launcher is not among the pods that have to be created: Muster makes it when all workers are Ready, so that it
finds every one of them, while the bare client makes it with the others and does not wait.
`Running` is the phase in the status, launcher and all; for the bare client it is that every pod runs.
"""

import asyncio
import statistics
import time
from collections.abc import Sequence

import msgspec

from shared.frameworks.scale_requests import GROUP
from tests.bench.real.client import Pod, each, encode
from tests.bench.real.manifests import BARE_GROUP, BareJob, collection, training_job
from tests.bench.real.table import Figure, seconds
from tests.bench.real.world import PATIENCE, World, patiently, progress


class Took(msgspec.Struct, frozen=True):
    """Seconds since the first request was sent."""

    created: float
    """The last worker pod was seen."""
    ready: float
    """The last worker pod was seen to run."""
    running: float
    """The status of the last job was seen to say so; of the bare client, the last pod was seen to run."""
    apiserver: float
    """Processor seconds of kube-apiserver until then."""
    used: float = 0.0
    """Processor seconds of the four services until then."""


async def muster(world: World, namespace: str, jobs: int, workers: int, *, patience: float = PATIENCE) -> Took:
    """Apply TrainingJobs and wait until the status of each is Running."""
    path = collection("trainingjobs", namespace, GROUP)
    bodies = [(path, encode(training_job(f"job-{job}", namespace, workers))) for job in range(jobs)]
    seen = _worker_pods(world, namespace, jobs * workers)
    running = world.jobs.seen(
        jobs, lambda _, job: job.status.phase == "Running" and job.metadata.namespace == namespace
    )
    clock, before = Clock(world), world.used()
    await world.client.flood(bodies)
    took = await clock.took("Muster", (*seen, running), patience)
    used = {name: spent - before[name] for name, spent in world.used().items()}
    progress("  processor seconds: " + ", ".join(f"{name} {spent:.2f}" for name, spent in used.items()))
    return msgspec.structs.replace(took, used=sum(used.values()))


async def bare(world: World, namespace: str, jobs: int, workers: int) -> Took:
    """Make the same objects, all at once."""
    made = [BareJob(f"job-{job}", namespace, workers) for job in range(jobs)]
    seen = _worker_pods(world, namespace, jobs * workers)
    pods = jobs * (workers + 1)
    running = world.pods.seen(pods, lambda _, pod: _runs(pod) and pod.metadata.namespace == namespace)
    clock = Clock(world)
    await make(world, made)
    return await clock.took("bare client", (*seen, running))


async def make(world: World, jobs: Sequence[BareJob]) -> None:
    """Create bare jobs and all that they consist of."""

    async def own(job: BareJob) -> None:
        job.made(await world.client.call("POST", collection("trainingjobs", job.namespace, BARE_GROUP), job.resource))

    await each(jobs, own)
    await world.client.flood(request for job in jobs for request in job.children())


def _worker_pods(world: World, namespace: str, count: int) -> tuple[asyncio.Future[float], asyncio.Future[float]]:
    def is_worker(pod: Pod) -> bool:
        return pod.metadata.namespace == namespace and not pod.metadata.name.endswith("launcher")

    return (
        world.pods.seen(count, lambda kind, pod: kind == "ADDED" and is_worker(pod)),
        world.pods.seen(count, lambda _, pod: _runs(pod) and is_worker(pod)),
    )


def _runs(pod: Pod) -> bool:
    return pod.status.phase == "Running"


class Clock:
    """Runs from its construction."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._began, self._used = time.perf_counter(), world.apiserver_used()

    async def took(self, who: str, moments: Sequence[asyncio.Future[float]], patience: float = PATIENCE) -> Took:
        seen = [await patiently(moment, patience) - self._began for moment in moments]
        took = Took(*seen, self._world.apiserver_used() - self._used)
        progress(f"  {who}: created {took.created:.2f} s, ready {took.ready:.2f} s, running {took.running:.2f} s")
        return took


Goals = tuple[str, str, str]
"""Of the last pod created, of Running, and of kube-apiserver's processor time."""
NO_GOALS = ("", "", "")


def figures(what: str, ours: Sequence[Took], theirs: Sequence[Took], goals: Goals = NO_GOALS) -> list[Figure]:
    """The lines of one size."""
    return [
        seconds(
            f"{what}: applied → last worker pod created",
            [took.created for took in ours],
            [took.created for took in theirs],
            goals[0],
        ),
        seconds(f"{what}: → last worker Running", [took.ready for took in ours], [took.ready for took in theirs]),
        seconds(
            f"{what}: → Running in status / all pods Running",
            [took.running for took in ours],
            [took.running for took in theirs],
            goals[1],
        ),
        seconds(
            f"{what}: processor time of kube-apiserver",
            [took.apiserver for took in ours],
            [took.apiserver for took in theirs],
            goals[2],
        ),
        Figure(f"{what}: processor time of all four", f"{statistics.median(took.used for took in ours):.2f} s"),
    ]


async def one_job(*, quick: bool) -> list[Figure]:
    """A job alone in the cluster, of several sizes, several times."""
    sizes = {10: 2, 50: 1} if quick else {10: 5, 100: 3, 1_000: 2}
    goals = {10: ("≤ 0.10 s", "", ""), 100: ("", "≤ 1.3x", ""), 1_000: ("", "≤ 1.1x", "")}
    lines: list[Figure] = []
    async with World() as world:
        for workers, times in sizes.items():
            ours, theirs = [], []
            for turn in range(times):
                progress(f"one job of {workers} workers, {turn + 1} of {times}")
                for side, took in ((bare, theirs), (muster, ours)):
                    namespace = f"{side.__name__}-{workers}-{turn}"
                    await world.namespace(namespace)
                    took.append(await side(world, namespace, 1, workers))
                    await world.clear(namespace)
            lines += figures(f"{workers:,} workers", ours, theirs, goals.get(workers, NO_GOALS))
    return lines
