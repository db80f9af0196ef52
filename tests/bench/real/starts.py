"""Applied → every worker pod created → Running: one job of 10, 100, 1,000 workers; 200 and 1,000 jobs of four.

The launcher is not among the pods that have to be created: Muster makes it when all workers are Ready, so that it
finds every one of them, while the bare client makes it with the others and does not wait.
`Running` is the phase in the status, launcher and all; for the bare client it is that every pod runs.
"""

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import msgspec

from shared.frameworks.scale_requests import GROUP
from tests.bench.real.client import Pod, each, encode
from tests.bench.real.manifests import BARE_GROUP, BareJob, collection, training_job
from tests.bench.real.meter import Calls, Meter, listed
from tests.bench.real.peers import Peer
from tests.bench.real.table import Figure, seconds
from tests.bench.real.world import PATIENCE, Run, World, path_of, patiently, progress

A_FEW = 4
"""Workers of the job that has goals of its own."""
STATUS = "patch trainingjobs/status"


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
    used: float
    """Processor seconds of the operator until then: Muster's four services, or a peer."""
    calls: Calls
    """About the namespace until then."""


Side = Callable[[World, str, int, int], Awaitable[Took]]
"""Makes so many jobs of so many workers in a namespace, and waits until all run."""


async def muster(world: World, namespace: str, jobs: int, workers: int, *, patience: float = PATIENCE) -> Took:
    """Apply TrainingJobs and wait until the status of each is Running."""
    path = collection("trainingjobs", namespace, GROUP)
    bodies = [(path, encode(training_job(f"job-{job}", namespace, workers))) for job in range(jobs)]
    seen = _worker_pods(world, namespace, jobs * workers)
    running = world.jobs.seen(
        jobs, lambda _, job: job.status.phase == "Running" and job.metadata.namespace == namespace
    )
    clock = Clock(world, namespace)
    await world.client.flood(bodies)
    return await clock.took("Muster", (*seen, running), patience)


async def peer(of: Peer, world: World, namespace: str, jobs: int, workers: int) -> Took:
    """Apply the peer's jobs and wait until the status of each says that it runs."""
    manifests = [of.manifest(f"job-{job}", namespace, workers) for job in range(jobs)]
    bodies = [(path_of(manifest), encode(manifest)) for manifest in manifests]
    seen = _worker_pods(world, namespace, jobs * workers, of.is_worker)
    running = world.peer_jobs.seen(
        jobs, lambda _, job: job.metadata.namespace == namespace and of.running(job.spec, job.status)
    )
    clock = Clock(world, namespace)
    await world.client.flood(bodies)
    return await clock.took(of.NAME, (*seen, running))


async def bare(world: World, namespace: str, jobs: int, workers: int) -> Took:
    """Make the same objects, all at once."""
    made = [BareJob(f"job-{job}", namespace, workers) for job in range(jobs)]
    seen = _worker_pods(world, namespace, jobs * workers)
    pods = jobs * (workers + 1)
    running = world.pods.seen(pods, lambda _, pod: _runs(pod) and pod.metadata.namespace == namespace)
    clock = Clock(world, namespace)
    await make(world, made)
    return await clock.took("bare client", (*seen, running))


async def make(world: World, jobs: Sequence[BareJob]) -> None:
    """Create bare jobs and all that they consist of."""

    async def own(job: BareJob) -> None:
        job.made(await world.client.call("POST", collection("trainingjobs", job.namespace, BARE_GROUP), job.resource))

    await each(jobs, own)
    await world.client.flood(request for job in jobs for request in job.children())


def _no_launcher(pod: str) -> bool:
    return not pod.endswith("launcher")


def _worker_pods(
    world: World, namespace: str, count: int, fits: Callable[[str], bool] = _no_launcher
) -> tuple[asyncio.Future[float], asyncio.Future[float]]:
    def is_worker(pod: Pod) -> bool:
        return pod.metadata.namespace == namespace and fits(pod.metadata.name)

    return (
        world.pods.seen(count, lambda kind, pod: kind == "ADDED" and is_worker(pod)),
        world.pods.seen(count, lambda _, pod: _runs(pod) and is_worker(pod)),
    )


def _runs(pod: Pod) -> bool:
    return pod.status.phase == "Running"


class Clock:
    """Runs from its construction."""

    def __init__(self, world: World, namespace: str) -> None:
        self._meter = Meter(world, namespace)
        self._began = time.perf_counter()

    async def took(self, who: str, moments: Sequence[asyncio.Future[float]], patience: float = PATIENCE) -> Took:
        seen = [await patiently(moment, patience) - self._began for moment in moments]
        used = self._meter.used()
        took = Took(*seen, self._meter.apiserver(), sum(used.values()), self._meter.calls())
        progress(f"  {who}: created {took.created:.2f} s, ready {took.ready:.2f} s, running {took.running:.2f} s")
        progress("  processor seconds: " + ", ".join(f"{name} {spent:.2f}" for name, spent in used.items()))
        return took


Goals = tuple[str, str, str]
"""Of the last pod created, of Running, and of kube-apiserver's processor time."""
NO_GOALS = ("", "", "")


Beside = Mapping[str, Sequence[Took]]
"""What each peer took, by its name."""


def figures(
    jobs: int, workers: int, ours: Sequence[Took], theirs: Sequence[Took], goals: Goals, peers: Beside
) -> list[Figure]:
    """The lines of one size."""
    what = f"{jobs:,} jobs x {workers}" if jobs > 1 else f"{workers:,} workers"

    def line(words: str, of: Callable[[Took], float], goal: str = "") -> Figure:
        beside = {name: [of(one) for one in took] for name, took in peers.items()}
        return seconds(f"{what}: {words}", [of(one) for one in ours], [of(one) for one in theirs], goal, beside)

    def made(words: str, shown: Callable[[Took], str], goal: str = "") -> Figure:
        beside = {name: shown(took[-1]) for name, took in peers.items()}
        return Figure(f"{what}: {words}", shown(ours[-1]), shown(theirs[-1]), "", goal, beside)

    def spent(took: Sequence[Took]) -> str:
        return f"{statistics.median(one.used for one in took) / jobs * 1e3:.0f} ms"

    return [
        line("applied → last worker pod created", lambda took: took.created, goals[0]),
        line("→ last worker Running", lambda took: took.ready),
        line("→ Running in status / all pods Running", lambda took: took.running, goals[1]),
        line("processor time of kube-apiserver", lambda took: took.apiserver, goals[2]),
        Figure(
            f"{what}: processor time of the operator for each",
            spent(ours),
            goal="≤ 15 ms" if workers == A_FEW else "",
            peers={name: spent(took) for name, took in peers.items()},
        ),
        made("calls for each", lambda took: f"{took.calls.total() / jobs:.1f}", "≤ 36" if workers == A_FEW else ""),
        made("of these by verb and resource", lambda took: listed(took.calls, jobs)),
        Figure(
            f"{what}: status patches for each",
            f"{ours[-1].calls[STATUS] / jobs:.1f}",
            goal="≤ 4" if workers == A_FEW else "",
        ),
    ]


async def one_job(run: Run) -> list[Figure]:
    """A job alone in the cluster, of several sizes, several times."""
    sizes = {10: 2, 50: 1} if run.quick else {10: 5, 100: 3, 1_000: 3}
    goals = {10: ("≤ 0.10 s", "", ""), 100: ("", "≤ 1.3x", ""), 1_000: ("", "≤ 1.1x", "")}
    turns = [(workers, turn) for workers, times in sizes.items() for turn in range(times)]

    async def alone(world: World, side: Side, workers: int, turn: int, who: str) -> Took:
        progress(f"one job of {workers} workers, {turn + 1} of {sizes[workers]}")
        namespace = f"{who}-{workers}-{turn}"
        await world.namespace(namespace)
        took = await side(world, namespace, 1, workers)
        await world.clear(namespace)
        return took

    ours, theirs = defaultdict[int, list[Took]](list), defaultdict[int, list[Took]](list)
    async with World(writers=run.writers) as world:
        for workers, turn in turns:
            theirs[workers].append(await alone(world, bare, workers, turn, "bare"))
            ours[workers].append(await alone(world, muster, workers, turn, "muster"))
    peers = defaultdict[int, dict[str, list[Took]]](lambda: defaultdict(list))
    for of in run.peers:
        async with World(peer=of, writers=run.writers) as world:
            for workers, turn in turns:
                peers[workers][of.NAME].append(await alone(world, partial(peer, of), workers, turn, "peer"))
    return [
        figure
        for workers in sizes
        for figure in figures(1, workers, ours[workers], theirs[workers], goals.get(workers, NO_GOALS), peers[workers])
    ]
