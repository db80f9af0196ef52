"""Three servers of which one is killed: the leader of the stream, or a follower that comes back behind."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlparse

import pytest
from nats.aio.client import Server

from shared.errors import Conflict, Transient
from shared.eventlog import Entry, inspection, wire
from shared.eventlog.account import STREAM
from shared.eventlog.connection import NoAnswer
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import NatsServer
from shared.eventlog.streams import StreamInfo, StreamState
from tests.kit.nats import READY, NatsCluster, a_decision, connected, nothing_is_lost_or_doubled, read_to_end, until
from tests.kit.stopping import stopped

pytestmark = pytest.mark.nats

JOBS = 8
EACH = 60

SOON = 10.0
"""Seconds; a server that stands still is noticed after three, and a client that asks it again waits five more."""


async def test_a_killed_leader_loses_and_doubles_nothing(tmp_path: Path):
    async with NatsCluster(tmp_path) as cluster, connected(cluster) as log, connected(cluster, "status") as follower:

        async def kill(reached: Callable[[int], Awaitable[None]]) -> None:
            await reached(JOBS * EACH // 2)
            cluster.servers[await leader(cluster)].kill()

        await nothing_is_lost_or_doubled(log, kill, reader=follower, jobs=JOBS, each=EACH)


async def test_a_server_that_comes_back_behind_ends_no_reading(tmp_path: Path):
    # A consumer that is made there has nothing pending, or less than the log holds.
    jobs, each = 40, 60
    async with NatsCluster(tmp_path) as cluster:
        async with connected(cluster) as log:
            # Without the other follower nothing would be stored meanwhile.
            await until(lambda: all_current(log))
        leading = await leader(cluster)
        follower = next(server for name, server in cluster.servers.items() if name != leading)
        others = ",".join(server.url for server in cluster.servers.values() if server is not follower)
        async with connected(cluster, url=others) as log, asyncio.timeout(READY):
            follower.kill()

            async def write(job: str) -> None:
                sequence = 0
                for number in range(each):
                    entry = a_decision("team-a", number, job=job, body=b"x" * 2_000)
                    sequence = await log.append(entry, expect=sequence)

            await asyncio.gather(*(write(f"job-{number}") for number in range(jobs)))
            counted: dict[tuple[str, ...], set[int]] = {(): set(), ("jobs.>",): set(), ("jobs.*.job-1.>",): set()}

            async def read(subjects: tuple[str, ...]) -> None:
                while not (back.done() and await all_current(log)):
                    counted[subjects].add(len(await read_to_end(log, *subjects)))

            back = asyncio.create_task(follower.start())
            await asyncio.gather(back, *(read(subjects) for subjects in counted))
    assert list(counted.values()) == [{jobs * each + 1}, {jobs * each}, {each}]


async def test_a_server_that_stands_still_is_soon_left_for_another(tmp_path: Path):
    # As one whose node lost its power: no connection to it is refused or ends.
    async with NatsCluster(tmp_path) as cluster:
        _, (follower, _) = await apart(cluster)
        async with connected(cluster, url=follower.url) as log:
            await log.append(a_decision(number=1), expect=0)
            with stopped(follower.pid):
                async with asyncio.timeout(SOON):
                    await log.append(a_decision(number=2, job="bert"), expect=0)


async def test_a_log_without_most_of_its_servers_is_said_to_be_so(tmp_path: Path):
    async with NatsCluster(tmp_path) as cluster, connected(cluster, patience=1) as log:
        await log.append(a_decision(number=1), expect=0)
        for server in [*cluster.servers.values()][1:]:
            server.kill()

        async def told() -> bool:
            with pytest.raises(Transient) as trouble:
                await log.append(a_decision(number=2, job="bert"), expect=0)
            return "most of its servers are away" in str(trouble.value)

        async with asyncio.timeout(READY):
            await until(told)


async def test_a_lost_connection_is_not_sought_where_it_was(nats_cluster: NatsCluster):
    async with connected(nats_cluster) as log:
        servers = [Server(urlparse(server.url)) for server in nats_cluster.servers.values()]
        place = log.connection._client.connected_url
        assert place is not None
        here = [server for server in servers if server.uri.netloc == place.netloc]
        assert len(here) == 1
        for _ in range(50):
            chosen, _ = log.connection._next_server(servers, {})
            assert chosen not in here
        # Of one server there is no other.
        assert log.connection._next_server(here, {})[0] in here


async def test_what_is_in_flight_has_no_outcome_yet(tmp_path: Path):
    async with NatsCluster(tmp_path) as cluster:
        leading, followers = await apart(cluster)
        async with connected(cluster, url=leading.url) as log, connected(cluster, url=leading.url) as other:
            # Their connections look alive.
            with stopped(*(follower.pid for follower in followers)):
                first = asyncio.create_task(log.append(a_decision(number=1), expect=0))
                await until(lambda: in_flight(other, a_decision(number=1)))
                again = asyncio.create_task(other.append(a_decision(number=1), expect=0))
                rival = asyncio.create_task(other.append(a_decision(number=2), expect=0))
                done, _ = await asyncio.wait((first, again, rival), timeout=2)
                assert not done, "nothing is stored, and nothing can be said"
            with pytest.raises(Conflict, match="came first"):
                await rival
            assert await first == await again


async def test_what_waited_for_a_write_that_was_lost_is_stored(tmp_path: Path):
    async with NatsCluster(tmp_path) as cluster:
        leading, followers = await apart(cluster)
        async with connected(cluster, url=leading.url) as log, connected(cluster) as other:
            for follower in followers:
                follower.kill()
            lost = asyncio.create_task(log.append(a_decision(number=1), expect=0))
            await until(lambda: in_flight(log, a_decision(number=1)))
            kept = asyncio.create_task(other.append(a_decision(number=2), expect=0))
            done, _ = await asyncio.wait((lost, kept), timeout=2)
            assert not done
            lost.cancel()
            # What only it has is gone with it.
            leading.kill()
            await asyncio.gather(*(follower.start() for follower in followers))
            sequence = await kept
            events = await read_to_end(other, "jobs.>")
    assert [(event.event_id, event.sequence) for event in events] == [(a_decision(number=2).event_id, sequence)]


async def apart(cluster: NatsCluster) -> tuple[NatsServer, list[NatsServer]]:
    """The leader of the stream, and the others once they have all that it has."""
    async with connected(cluster) as log:
        await until(lambda: all_current(log))
    leading = cluster.servers[await leader(cluster)]
    return leading, [server for server in cluster.servers.values() if server is not leading]


async def in_flight(log: JetStreamEventLog, entry: Entry) -> bool:
    """Whether the leader has it and waits for the others: its guard then refuses, and names no sequence."""
    headers = wire.headers(entry, log=await log.identity(), expect=0)
    with suppress(NoAnswer):
        return b"10164" in (await log.connection.request(entry.subject, entry.body, headers, timeout=0.5)).body
    return False


async def all_current(log: JetStreamEventLog) -> bool:
    replicas = (await jobs_stream(log)).cluster.replicas
    return len(replicas) == 2 and all(replica.current for replica in replicas)


async def leader(cluster: NatsCluster) -> str:
    async with connected(cluster, "admin") as log, asyncio.timeout(READY):
        while not (name := (await jobs_stream(log)).cluster.leader):
            await asyncio.sleep(0.05)
    return name


async def jobs_stream(log: JetStreamEventLog) -> StreamInfo:
    """As its leader knows it; nothing is known of it between two leaders."""
    with suppress(Transient):
        if (found := await inspection.stream(log, STREAM)) is not None:
            return found
    return StreamInfo({"name": STREAM}, StreamState())
