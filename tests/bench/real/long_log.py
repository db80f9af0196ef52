"""How soon a service is ready over a log of a million events, all of jobs that are not over.

The log is written by a server that does not sync, with the administrator's rights, and read from one that does.
"""

import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import aiohttp
import msgspec
import nats

from shared.eventlog import Entry, Stored, wire
from shared.eventlog.account import ADMIN
from shared.eventlog.server import NatsServer, configuration
from shared.eventlog.setup import set_up
from shared.eventlog.subject import Subject
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from tests.bench.fold import JOBS, a_life, a_log, rate
from tests.bench.real.processes import memory
from tests.bench.real.services import ready
from tests.bench.real.table import Figure
from tests.bench.real.world import Run, World, patiently, progress
from tests.kit.histories import stored

EVENTS = 1_000_000
AT_ONCE = 100
"""Jobs whose events alternate."""
UNACKNOWLEDGED = 1_000
"""Events that are sent before an answer is waited for: the server buffers ten times as many."""
TIMES = 3


async def starts_over_a_long_log(run: Run) -> list[Figure]:
    """The scheduler alone: nothing is to be done, so that the start is reading and folding."""
    events = 10_000 if run.quick else EVENTS
    with tempfile.TemporaryDirectory(prefix="muster-long-") as folder:
        log = Path(folder) / "nats"
        await _written(log, events)
        async with World(muster=False, log=log) as world:
            world.start_services(["scheduler"])
            scheduler = world.services["scheduler"]
            taken = []
            async with aiohttp.ClientSession() as session:
                for _ in range(TIMES):
                    await patiently(ready(session, world.health["scheduler"]))
                    await scheduler.stop()
                    began = time.perf_counter()
                    scheduler.start()
                    await patiently(ready(session, world.health["scheduler"]))
                    taken.append(time.perf_counter() - began)
                    progress(f"  ready after {taken[-1]:.2f} s")
            held = memory(scheduler.pid)
    what = f"scheduler over {events:,} events of open jobs"
    return [
        Figure(f"{what}: from start to ready", f"{sorted(taken)[TIMES // 2]:.1f} s", goal="≤ 8 s"),
        Figure(f"{what}: memory, resident", f"{held.resident:.0f} MiB"),
    ]


async def folding(run: Run) -> list[Figure]:
    """How many events a service folds in a second, decoding included: needs no cluster."""
    events, _ = rate(a_log(20 if run.quick else JOBS))
    return [Figure("fold with decode, one core", f"{events / 1e3:.0f},000 events/s", goal="≥ 150,000")]


async def _written(folder: Path, events: int) -> None:
    server = NatsServer(folder)
    settings = configuration(folder, server.port, server.users)["jetstream"] | {"sync_interval": "120s"}
    server = NatsServer(folder, port=server.port, more={"jetstream": settings})
    await server.start()
    try:
        made = await set_up(server.url, password=server.users[ADMIN])
        progress(f"writing {events:,} events")
        client = await nats.connect(server.url, user=ADMIN, password=server.users[ADMIN])
        try:
            stream = client.jetstream()
            for line in _lives(events, made.identity):
                entry = Entry(
                    subject=line.subject, event_id=line.event_id, time=line.time, body=line.body, basis=line.basis
                )
                headers = wire.headers(entry, log=made.identity, expect=0)
                # This is the only writer, and it sends each event once.
                for guard in (wire.EXPECTED, wire.EXPECTED_SCOPE):
                    del headers[guard]
                if line.sequence % UNACKNOWLEDGED:
                    await client.publish(line.subject, line.body, headers=headers)
                else:
                    answer = await stream.publish(line.subject, line.body, headers=headers)
                    assert answer.seq == line.sequence, f"{line.sequence} was stored as {answer.seq}"
        finally:
            await client.drain()
    finally:
        server.stop()


def _lives(events: int, log: str) -> Iterator[Stored]:
    """The lives of as many jobs as it takes, from the second event of the log on."""
    life, sequence = a_life(), 1
    for first in count(0, AT_ONCE):
        names = range(first, first + AT_ONCE)
        histories = [History(JobKey("long", f"job-{name}", Uid(f"uid-{name}"))) for name in names]
        for event in life:
            for history in histories:
                sequence += 1
                line = stored(history, event, sequence=sequence)
                # The source is in the chain.
                source = wire.source(log, Subject.parse(line.subject).author)
                line = msgspec.structs.replace(line, source=source)
                history.fold(line)
                yield line
                if sequence > events:
                    return
