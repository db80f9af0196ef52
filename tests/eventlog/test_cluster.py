"""Three servers, and the leader of the stream is killed."""

import asyncio
from pathlib import Path

import pytest

from shared.eventlog import api
from shared.eventlog.connection import Connection
from shared.eventlog.setup import set_up
from tests.kit.nats import READY, NatsCluster, a_decision, connected, read_to_end, until

pytestmark = pytest.mark.nats

JOBS = 8
EACH = 60


async def test_a_killed_leader_loses_and_doubles_nothing(tmp_path: Path):
    cluster = NatsCluster(tmp_path)
    acknowledged: dict[str, int] = {}
    seen: list[int] = []
    try:
        await cluster.start()
        await set_up(cluster.url, password=cluster.users["admin"], replicas=3)
        async with connected(cluster) as log, connected(cluster, "status") as follower:

            async def write(job: str) -> None:
                sequence = 0
                for number in range(EACH):
                    entry = a_decision("team-a", number, job=job)
                    sequence = await log.append(entry, expect=sequence)
                    acknowledged[entry.event_id] = sequence

            async def kill() -> None:
                await until(half_way)
                cluster.servers[await leader(cluster)].kill()

            async def half_way() -> bool:
                return len(acknowledged) >= JOBS * EACH // 2

            async def follow() -> None:
                async for batch in follower.read(subjects=("jobs.>",)):
                    seen.extend(event.sequence for event in batch.events)
                    if len(seen) >= JOBS * EACH:
                        return

            async with asyncio.timeout(2 * READY):
                await asyncio.gather(kill(), follow(), *(write(f"job-{number}") for number in range(JOBS)))
            events = await read_to_end(log, "jobs.>")
    finally:
        cluster.stop()
    assert {event.event_id: event.sequence for event in events} == acknowledged
    assert len(events) == JOBS * EACH
    assert seen == sorted(acknowledged.values())


async def leader(cluster: NatsCluster) -> str:
    connection = await Connection.open(cluster.url, name="test", user="admin", password=cluster.users["admin"])
    try:
        info = await api.call(connection, "STREAM.INFO.JOBS", None, dict)
    finally:
        await connection.close()
    name: str = info["cluster"]["leader"]
    return name
