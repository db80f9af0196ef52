"""From a watch event to its fact, to the decision that it calls for, to the status that users see.

    python -m tests.bench.reaction

A real NATS server that syncs every append; the cluster is in memory, so that only Muster and its log are measured.
A worker of a running job fails; the watcher records it, the scaler takes it out of the hosts files, status counts it.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import uvloop

from shared.cluster.kinds import PODS
from shared.eventlog.account import ADMIN, READER
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from shared.telemetry.logs import configure
from tests.kit.services import AUTHORS
from tests.kit.world import NAMESPACE, TRAININGJOBS, World, a_training_job

JOBS = 60
PACE_SECONDS = 0.02


async def main() -> None:
    configure("bench", level="error")
    with tempfile.TemporaryDirectory() as folder:
        async with NatsServer(Path(folder)) as server:
            await set_up(server.url, user=ADMIN, password=server.users[ADMIN])
            logs = {
                user: await JetStreamEventLog.connect(server.url, name=user, user=user, password=server.users[user])
                for user in (*AUTHORS, READER)
            }
            try:
                await _measure(logs)
            finally:
                for log in logs.values():
                    await log.close()


async def _measure(logs: dict[str, JetStreamEventLog]) -> None:
    arrived: dict[tuple[str, str], float] = {}

    async def listen() -> None:
        async for batch in logs[READER].read(after=await logs[READER].end()):
            for stored in batch.events:
                _, _, name, _, _, tag = stored.subject.split(".")
                arrived.setdefault((name, tag), time.perf_counter())

    async with World(logs=logs) as world:
        names = [f"job-{number}" for number in range(JOBS)]
        for name in names:
            world.apply(TRAININGJOBS, a_training_job(name, workers=2))
        for name in names:
            await world.running(name)
        await world.quiet()
        listening = asyncio.create_task(listen())
        await asyncio.sleep(0.2)
        figures: dict[str, list[float]] = {"fact": [], "decision": [], "status": []}
        for name in names:
            began = time.perf_counter()
            world.exit_codes[f"{name}-worker-1"] = 1
            await world.until(lambda name=name: not _alive(world, name))
            began = time.perf_counter()
            await world.until(lambda name=name: world.status(TRAININGJOBS, name)["workers"] == "1/1")
            figures["status"].append(time.perf_counter() - began)
            await world.until(lambda name=name: (name, "HostsPublished") in arrived)
            figures["fact"].append(arrived[name, "PodsObserved"] - began)
            figures["decision"].append(arrived[name, "HostsPublished"] - began)
            await asyncio.sleep(PACE_SECONDS)
        listening.cancel()
    for what, seconds in figures.items():
        cut = statistics.quantiles(seconds, n=100)
        print(f"watch event -> {what:<9} p50 {cut[49] * 1e3:6.1f} ms   p99 {cut[98] * 1e3:6.1f} ms")


def _alive(world: World, name: str) -> bool:
    held = world.store.get(PODS, NAMESPACE, f"{name}-worker-1")
    return held is not None and held.manifest["status"]["phase"] == "Running"


if __name__ == "__main__":
    uvloop.run(main())
