"""A job of twenty workers, out and in by one and by ten.

Out: asked for → the new pods seen → all Running → the hosts file seen → succeeded.
In: asked for → the hosts file seen → the pods gone → succeeded; leaving workers get no time to let go here.
The bare client makes the pods, waits until they run, and patches the ConfigMap; in, the other way round.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from shared.frameworks.scale_requests import GROUP
from shared.job.naming import config_name
from tests.bench.real import starts
from tests.bench.real.client import MERGE, Pod, each, encode
from tests.bench.real.manifests import BareJob, collection, scale_in, scale_out
from tests.bench.real.meter import Calls, Meter, listed
from tests.bench.real.table import Figure, seconds
from tests.bench.real.world import Run, World, patiently, progress

WORKERS = 20
JOB = "job-0"


class Out(msgspec.Struct, frozen=True):
    """Seconds since it was asked for; `hosts` since the last new pod ran."""

    created: float
    hosts: float
    done: float


class In(msgspec.Struct, frozen=True):
    """Seconds since it was asked for."""

    hosts: float
    done: float


class Cost:
    """What several turns cost until nothing more happened."""

    def __init__(self) -> None:
        self._calls, self._apiserver = Calls(), 0.0

    @asynccontextmanager
    async def of(self, world: World, namespace: str) -> AsyncIterator[None]:
        """Of what is done inside."""
        meter = Meter(world, namespace)
        yield
        await world.quiet()
        self._calls += meter.calls()
        self._apiserver += meter.apiserver()

    def told(self, times: int) -> list[tuple[str, str]]:
        return [
            ("calls", f"{self._calls.total() / times:.1f}"),
            ("of these by verb and resource", listed(self._calls, times)),
            ("processor time of kube-apiserver", f"{self._apiserver / times * 1e3:.0f} ms"),
        ]


async def scaling(run: Run) -> list[Figure]:
    counts = {1: 2} if run.quick else {1: 5, 10: 3}
    lines: list[Figure] = []
    async with World() as world:
        await world.namespace("ours")
        await starts.muster(world, "ours", 1, WORKERS)
        await world.namespace("theirs")
        job = BareJob(JOB, "theirs", WORKERS)
        await starts.make(world, [job])
        await world.quiet()
        version, size = 1, WORKERS
        for count, times in counts.items():
            costs = {side: [Cost(), Cost()] for side in ("ours", "theirs")}
            out, out_bare, inward, in_bare = list[Out](), list[Out](), list[In](), list[In]()
            for turn in range(times):
                progress(f"scale out and in by {count}, {turn + 1} of {times}")
                # Indices are never given twice.
                pods = range(size, size := size + count)
                async with costs["theirs"][0].of(world, "theirs"):
                    out_bare.append(await _bare_out(world, job, pods, version := version + 1))
                async with costs["theirs"][1].of(world, "theirs"):
                    in_bare.append(await _bare_in(world, job, pods, version := version + 1))
                async with costs["ours"][0].of(world, "ours"):
                    out.append(await _out(world, f"out-{count}-{turn}", count))
                async with costs["ours"][1].of(world, "ours"):
                    inward.append(await _in(world, f"in-{count}-{turn}", count))
            done = "≤ 0.1 s" if count == 1 else ""
            lines += [
                seconds(f"scale out by {count}: → pods created", _of(out, "created"), _of(out_bare, "created")),
                seconds(
                    f"scale out by {count}: pods Running → hosts file",
                    _of(out, "hosts"),
                    _of(out_bare, "hosts"),
                    "≤ 0.2 s",
                ),
                seconds(f"scale out by {count}: → succeeded", _of(out, "done"), _of(out_bare, "done"), done),
                seconds(f"scale in by {count}: → hosts file", _of(inward, "hosts"), _of(in_bare, "hosts"), "≤ 0.2 s"),
                seconds(f"scale in by {count}: → succeeded", _of(inward, "done"), _of(in_bare, "done"), done),
            ]
            for what, ours, theirs in zip(("out", "in"), costs["ours"], costs["theirs"], strict=True):
                lines += [
                    Figure(f"scale {what} by {count}: {words}", mine, bare)
                    for (words, mine), (_, bare) in zip(ours.told(times), theirs.told(times), strict=True)
                ]
    return lines


def _of(taken: list[Out] | list[In], what: str) -> list[float]:
    return [getattr(one, what) for one in taken]


async def _out(world: World, name: str, count: int) -> Out:
    created, running = _new_pods(world, count)
    hosts, done = _hosts(world, "ours"), _succeeded(world, name)
    body = encode(scale_out(name, "ours", JOB, count))
    began = time.perf_counter()
    await world.client.call("POST", collection("scaleouts", "ours", GROUP), body)
    ran = await patiently(running)
    return Out(await patiently(created) - began, await patiently(hosts) - ran, await patiently(done) - began)


async def _in(world: World, name: str, count: int) -> In:
    hosts, done = _hosts(world, "ours"), _succeeded(world, name)
    body = encode(scale_in(name, "ours", JOB, count))
    began = time.perf_counter()
    await world.client.call("POST", collection("scaleins", "ours", GROUP), body)
    return In(await patiently(hosts) - began, await patiently(done) - began)


async def _bare_out(world: World, job: BareJob, pods: range, version: int) -> Out:
    requests = job.workers(pods.start, len(pods))
    created, running = _new_pods(world, len(pods))
    hosts = _hosts(world, "theirs")
    began = time.perf_counter()
    await world.client.flood(requests)
    ran = await patiently(running)
    await _publish(world, job, WORKERS + len(pods), version)
    done = await patiently(hosts)
    return Out(await patiently(created) - began, done - ran, done - began)


async def _bare_in(world: World, job: BareJob, pods: range, version: int) -> In:
    names = [f"{JOB}-worker-{index}" for index in pods]
    hosts = _hosts(world, "theirs")
    gone = world.pods.seen(len(pods), lambda kind, pod: kind == "DELETED" and pod.metadata.name in names)
    began = time.perf_counter()
    await _publish(world, job, WORKERS, version)
    seen = await patiently(hosts)
    path = collection("pods", "theirs")
    await each(names, lambda name: world.client.call("DELETE", f"{path}/{name}"))
    return In(seen - began, await patiently(gone) - began)


async def _publish(world: World, job: BareJob, workers: int, version: int) -> None:
    files = job.hosts(workers, version)
    patch = encode({"metadata": {"annotations": files["metadata"]["annotations"]}, "data": files["data"]})
    await world.client.call("PATCH", f"{collection('configmaps', 'theirs')}/{job.config}", patch, MERGE)


def _new_pods(world: World, count: int) -> tuple[asyncio.Future[float], asyncio.Future[float]]:
    """When `count` pods that are not there yet were seen, and when they were seen to run."""
    before = frozenset(world.pods.there)

    def is_new(pod: Pod) -> bool:
        return (pod.metadata.namespace, pod.metadata.name) not in before

    return (
        world.pods.seen(count, lambda _, pod: is_new(pod)),
        world.pods.seen(count, lambda _, pod: is_new(pod) and pod.status.phase == "Running"),
    )


def _hosts(world: World, namespace: str) -> asyncio.Future[float]:
    """When the next version of the hosts files was seen."""
    return world.configs.seen(
        1,
        lambda kind, found: (
            kind == "MODIFIED" and found.metadata.namespace == namespace and found.metadata.name == config_name(JOB)
        ),
    )


def _succeeded(world: World, name: str) -> asyncio.Future[float]:
    return world.requests.seen(
        1, lambda _, found: found.metadata.name == name and found.status.phase == "ScaleSucceeded"
    )
