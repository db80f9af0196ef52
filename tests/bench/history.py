"""How fast the history service answers, and what it holds: `python -m tests.bench.history [JOBS]` prints a table.

With JOBS there are so many more, of ten events each.
Asked through the embedded API server, for a job of 10,000 events; cold is the first answer, warm the second one.
"""

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import aiohttp

from devcluster.child import Child
from devcluster.cluster import Devcluster
from shared.eventlog import EventLog
from shared.eventlog.account import ADMIN
from shared.history_api import ROOT
from shared.job.events.catalog import AnyEvent
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from tests.history.conftest import Site, a_site, record
from tests.kit.builders import a_running_job, pods, worker
from tests.kit.nats import connected

EVENTS = 10_000
USERS = 100
JOBS = 20
EACH = 500
"""Events of each of the other jobs."""
BIG = f"{ROOT}/namespaces/team-a/jobhistories/trainingjob.big"


def a_long_life(events: int) -> Iterator[AnyEvent]:
    life = a_running_job(2)
    yield from life
    for number in range(len(life), events):
        yield pods(worker(number % 2, version=100 + number, ready=bool(number % 4 > 1)))


class Service:
    """The service as a process."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.environment = site.environment()
        self.child = Child("history", [sys.executable, "-m", "services.history"], folder / "log", self.environment)

    async def __aenter__(self) -> "Service":
        self.child.start()
        await self.child.line('{"port"', 30)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.child.stop()

    def holds(self, what: str) -> float:
        """MiB by the kernel: `VmRSS` now, `VmHWM` at the most."""
        lines = Path(f"/proc/{self.child.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))


async def asked(session: aiohttp.ClientSession, path: str) -> tuple[float, int]:
    began = time.perf_counter()
    async with session.get(path) as answer:
        body = await answer.read()
        assert answer.status == 200, body
    return time.perf_counter() - began, len(body)


async def many(log: EventLog, jobs: int) -> None:
    """Jobs of a namespace of their own, most of them recorded side by side."""

    async def one(number: int) -> None:
        async with places:
            key = JobKey("team-m", f"job-{number}", Uid(f"uid-m-{number}"))
            await record(log, [*a_long_life(10)], History(key))

    places = asyncio.Semaphore(64)
    await asyncio.gather(*map(one, range(jobs)))


async def at_once(session: aiohttp.ClientSession, paths: list[str]) -> str:
    async def one(path: str) -> int:
        async with session.get(path) as answer:
            await answer.read()
            return answer.status

    began = time.perf_counter()
    found = Counter(await asyncio.gather(*map(one, paths)))
    return f"{dict(found)} after {time.perf_counter() - began:.1f} s"


async def watched(session: aiohttp.ClientSession, path: str) -> int:
    """The status of a watch, once it told what there is."""
    async with session.get(path) as answer:
        if answer.status == 200:
            await answer.content.readline()
            await asyncio.sleep(3)
        return answer.status


async def measured(folder: Path, jobs: int) -> None:
    users = ["history", "reader"]
    async with Devcluster(folder / "cluster", users, nodes=0) as cluster, a_site(cluster, folder) as site:
        async with connected(site.nats, ADMIN) as log:
            await record(log, [*a_long_life(EVENTS)], History(JobKey("team-a", "big", Uid("uid-big"))))
            for number in range(JOBS):
                key = JobKey("team-a", f"job-{number}", Uid(f"uid-job-{number}"))
                await record(log, [*a_long_life(EACH)], History(key))
            await many(log, jobs)
        await site.stop()
        async with Service(site, folder) as service, cluster.session("reader") as session:
            began = time.perf_counter()
            while True:
                async with session.get(f"{ROOT}/namespaces/team-b/jobhistories") as answer:
                    if answer.status == 200:
                        break
                await asyncio.sleep(0.2)
            now, most = service.holds("VmRSS"), service.holds("VmHWM")
            print(f"holds {now:.0f} MiB, at the most {most:.0f}, {time.perf_counter() - began:.1f} s after its start")
            lists = f"{ROOT}/namespaces/team-m/jobhistories?limit=500"
            running = "labelSelector=history.muster.dev/phase%3DRunning"
            for name, path in (("a page", lists), ("a filtered page", f"{lists}&{running}")):
                print(f"{name}: {(await asked(session, path))[0] * 1000:.0f} ms")
            print(f"20 lists at once: {await at_once(session, [f'{lists}{n}&{running}' for n in range(20)])}")
            watch = f"{ROOT}/namespaces/team-a/jobhistories?watch=1&fieldSelector=metadata.name%3Dtrainingjob.big"
            statuses = await asyncio.gather(*(watched(session, watch) for _ in range(50)))
            print(f"50 watches at once: {dict(Counter(statuses))}")
            print(f"held at the most {service.holds('VmHWM'):.0f} MiB")
            for name, path in (
                ("a job", BIG),
                ("why", f"{BIG}/why"),
                ("at", f"{BIG}/at/5000"),
                ("events", f"{BIG}/events"),
                (f"list of {JOBS + 3} jobs", f"{ROOT}/namespaces/team-a/jobhistories"),
            ):
                (cold, size), (warm, _) = await asked(session, path), await asked(session, path)
                print(f"{name:<18} cold {cold * 1000:6.0f} ms  warm {warm * 1000:5.0f} ms  {size / 1024:7.0f} KiB")
            print(f"held at the most {service.holds('VmHWM'):.0f} MiB")
            paths = [f"{BIG}/why?about=worker-{number % 2}&uid=uid-big&n={number}" for number in range(USERS)]
            paths[::2] = [f"{BIG.removesuffix('big')}job-{number % JOBS}/why" for number in range(0, USERS, 2)]
            began = time.perf_counter()
            took = sorted(each for each, _ in await asyncio.gather(*(asked(session, path) for path in paths)))
            print(f"{USERS} users at once: all after {time.perf_counter() - began:.1f} s, half within {took[50]:.1f} s")
            began = time.perf_counter()
            again = sorted(each for each, _ in await asyncio.gather(*(asked(session, path) for path in paths)))
            print(f"again: all after {time.perf_counter() - began:.1f} s, half within {again[50]:.1f} s")
            print(f"held at the most {service.holds('VmHWM'):.0f} MiB")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="muster-") as scratch:
        asyncio.run(measured(Path(scratch), int(sys.argv[1]) if len(sys.argv) > 1 else 0))
