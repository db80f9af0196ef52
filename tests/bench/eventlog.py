"""How fast the log is: `python -m tests.bench.eventlog` starts a server and prints a table.

Compare ratios, not figures: they depend on the disk (every append is synced) and on who else uses the machine.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop

from shared.eventlog import Entry, EventLog
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up

ONE_BY_ONE = 1_000
SCOPES = 64
EACH = 100
REPLAYED = 50_000
FILLERS = 512
BODY = (
    b'{"pods":['
    + b",".join(b'{"name":"resnet-worker-%d","phase":"Running","ready":true}' % i for i in range(9))
    + b"]}"
)
WARM_UP = 50


def entry(scope: int, number: int) -> Entry:
    return Entry(
        subject=f"jobs.bench.job-{scope}.2f1d7a60-0000-4000-8000-{scope:012d}.scheduler.SlotsAssigned",
        event_id=f"01997b1e-7f00-7000-{scope:04x}-{number:012x}",
        time="2026-01-01T00:00:00.000Z",
        body=BODY,
        basis=f"{number}:{'0' * 64}",
    )


async def appends_one_by_one(log: EventLog) -> str:
    sequence = 0
    took = []
    for number in range(WARM_UP + ONE_BY_ONE):
        begin = time.perf_counter()
        sequence = await log.append(entry(0, number), expect=sequence)
        took.append(time.perf_counter() - begin)
    took = sorted(took[WARM_UP:])
    return f"p50 {took[len(took) // 2] * 1e3:.2f} ms, p99 {took[len(took) * 99 // 100] * 1e3:.2f} ms"


async def appends_over_scopes(log: EventLog) -> str:
    async def scope(number: int) -> None:
        sequence = 0
        for each in range(EACH):
            sequence = await log.append(entry(number, each), expect=sequence)

    begin = time.perf_counter()
    await asyncio.gather(*(scope(number) for number in range(1, SCOPES + 1)))
    return f"{SCOPES * EACH / (time.perf_counter() - begin):,.0f} appends/s"


async def fill(log: EventLog) -> None:
    """Enough events for reading; a job each for the writers, so that the guards do not wait for each other."""

    async def writer(first: int) -> None:
        sequence = 0
        for each in range(REPLAYED // FILLERS):
            sequence = await log.append(entry(first, each), expect=sequence)

    await asyncio.gather(*(writer(SCOPES + 1 + number) for number in range(FILLERS)))


async def reads(log: EventLog) -> str:
    count = batches = 0
    begin = time.perf_counter()
    async for batch in log.read():
        count += len(batch.events)
        batches += 1
        if batch.pending == 0:
            break
    rate = count / (time.perf_counter() - begin)
    return f"{rate:,.0f} events/s ({count:,} of {len(BODY)} B in batches of {count / batches:.0f})"


async def measure() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with NatsServer(Path(directory)) as server:
            await set_up(server.url, password=server.users["admin"])
            log = await JetStreamEventLog.connect(
                server.url, name="bench", user="scheduler", password=server.users["scheduler"]
            )
            rows: tuple[tuple[str, Callable[[EventLog], Coroutine[Any, Any, str | None]]], ...] = (
                ("append with guard, one by one", appends_one_by_one),
                (f"append with guard, {SCOPES} scopes at once", appends_over_scopes),
                ("", fill),
                ("read from the beginning, headers parsed", reads),
            )
            for name, run in rows:
                result = await run(log)
                if result is not None:
                    print(f"{name:42} {result}")
            await log.close()


def main() -> None:
    uvloop.run(measure())


if __name__ == "__main__":
    main()
