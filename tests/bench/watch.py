"""How long a Pod's watch event takes to the consumer, and what its decoding costs.

    python -m tests.bench.watch [--events N]

A second process plays the API server and stamps each event with the machine's monotonic clock; one watch of a
`KubeCluster` in this process reads them.
"""

import argparse
import asyncio
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from contextlib import aclosing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import web
from rich.console import Console
from rich.table import Table

from shared.cluster import Applied
from shared.cluster.decoding import read_event
from shared.cluster.kinds import PODS
from shared.cluster.kube import KubeCluster
from tests.kit.apiserver import write_kubeconfig

RATES = (100, 1_000, 0)
"""Events a second; 0 is as fast as the connection takes them, where the times are those of waiting in buffers."""
SENT = "bench/sent"


def a_pod(number: int, version: int) -> dict[str, Any]:
    """About 6 KB, shaped as a training worker's pod is."""
    name = f"resnet-worker-{number}"
    env = [{"name": f"SETTING_{index}", "value": "value-" * 6} for index in range(40)]
    mounts = [{"name": f"volume-{index}", "mountPath": f"/mnt/volume-{index}"} for index in range(12)]
    volumes = [{"name": f"volume-{index}", "configMap": {"name": f"settings-{index}"}} for index in range(12)]
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": "2030-01-01T00:00:00Z"}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    owner = {"apiVersion": "kai.alibabacloud.com/v1alpha1", "kind": "TrainingJob", "name": "resnet", "uid": "job"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": f"00000000-0000-4000-8000-{number:012x}",
            "resourceVersion": str(version),
            "creationTimestamp": "2030-01-01T00:00:00Z",
            "labels": {"muster.dev/job-uid": "job", "muster.dev/attempt": "0", "replica-index": str(number)},
            "annotations": {SENT: "0"},
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
            "managedFields": [{"manager": "kubelet", "fieldsV1": {f"f:field-{index}": {} for index in range(40)}}],
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "main", "image": "train", "env": env, "volumeMounts": mounts}],
            "volumes": volumes,
        },
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "containerStatuses": [
                {"name": "main", "ready": True, "state": {"running": {"startedAt": "2030-01-01T00:00:00Z"}}}
            ],
        },
    }


def serve(events: int, ready: Connection) -> None:
    """The other process: an empty list, then on each watch `events` events at the next rate."""
    uvloop.run(_serve(events, ready))


async def _serve(events: int, ready: Connection) -> None:
    rates = iter(RATES)

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        rate = next(rates)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        texts = [
            json.dumps({"type": "MODIFIED", "object": a_pod(number % 1_000, number + 2)}).split(f'"{SENT}": "0"')
            for number in range(count_for(rate, events))
        ]
        begun = time.monotonic()
        for number, (before, after) in enumerate(texts):
            if rate:
                await asyncio.sleep(begun + number / rate - time.monotonic())
            await response.write(f'{before}"{SENT}": "{time.monotonic_ns()}"{after}\n'.encode())
        await asyncio.Event().wait()
        return response

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    ready.send(runner.addresses[0][1])
    await asyncio.Event().wait()


def count_for(rate: int, events: int) -> int:
    """A slow rate gets fewer events, so that no row takes longer than about 3 s."""
    return min(events, rate * 3) if rate else events


async def follow(kubeconfig: Path, count: int) -> tuple[list[float], float, float]:
    """Milliseconds from sent to seen of each event; processor seconds and seconds of all."""
    cluster = await KubeCluster.connect(kubeconfig)
    took: list[float] = []
    async with aclosing(cluster.watch(PODS)) as watch:
        await anext(watch)
        processor, begun = time.process_time(), time.monotonic()
        async for seen in watch:
            assert isinstance(seen, Applied), seen
            sent = (seen.object.metadata.annotations or {})[SENT]
            took.append((time.monotonic_ns() - int(sent)) / 1e6)
            if len(took) == count:
                break
        processor, elapsed = time.process_time() - processor, time.monotonic() - begun
    await cluster.close()
    return sorted(took), processor, elapsed


def microseconds(work: Callable[[], object], *, repeat: int = 5, loops: int = 2_000) -> float:
    """Of one call; the best of some rounds, because the rest is noise of other processes."""
    best = float("inf")
    for _ in range(repeat):
        begun = time.perf_counter()
        for _ in range(loops):
            work()
        best = min(best, time.perf_counter() - begun)
    return best / loops * 1e6


def decoding(console: Console) -> None:
    line = json.dumps({"type": "MODIFIED", "object": a_pod(1, 2)}, separators=(",", ":")).encode()
    table = Table("decoding one event", "bytes", "µs")
    table.add_row(
        "typed (the reflector's way)", str(len(line)), f"{microseconds(lambda: read_event(PODS, line, '')):.1f}"
    )
    table.add_row("json.loads, to compare", str(len(line)), f"{microseconds(lambda: json.loads(line)):.1f}")
    console.print(table)


async def latency(console: Console, kubeconfig: Path, events: int) -> None:
    table = Table("watch event → Applied", "events", "p50 ms", "p99 ms", "max ms", "events/s", "processor µs per event")
    for rate in RATES:
        count = count_for(rate, events)
        took, processor, elapsed = await follow(kubeconfig, count)
        table.add_row(
            f"{rate}/s" if rate else "flood",
            str(count),
            *(f"{took[min(int(count * share), count - 1)]:.2f}" for share in (0.5, 0.99, 1.0)),
            f"{count / elapsed:,.0f}",
            f"{processor / count * 1e6:.0f}",
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000, help="events of the flood")
    events = parser.parse_args().events
    console = Console(width=120)
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(events, there), daemon=True)
    server.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            url = f"http://127.0.0.1:{here.recv()}"
            kubeconfig = write_kubeconfig(Path(folder) / "kubeconfig", url, {"token": "bench"})
            decoding(console)
            uvloop.run(latency(console, kubeconfig, events))
    finally:
        server.terminate()
        server.join()


if __name__ == "__main__":
    main()
