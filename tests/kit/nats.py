"""Real NATS servers for tests: one that is shared, ones to break, and clusters of three."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest

from shared.errors import Transient
from shared.eventlog import Entry, EventLog, Stored
from shared.eventlog.account import AUTHORS, LEASES
from shared.eventlog.connection import Connection
from shared.eventlog.inspection import look
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from shared.eventlog.tls import Tls
from shared.ports import HOST, free_port

A_LONG_TIME = 600.0
"""Seconds that a lease of these tests lasts; no test takes so long."""

READY = 60.0
"""Seconds that anything expected may take: an election takes ten on a quiet machine, many more on a busy one."""

_S = TypeVar("_S", NatsServer, "NatsCluster")


class NatsCluster:
    """Three servers on this machine; every event is on all of them."""

    def __init__(self, directory: Path) -> None:
        ports = {f"n{number}": free_port() for number in range(3)}
        users = _one_set_of_users(directory)
        self.servers = {
            name: NatsServer(
                directory / name, users=users, more={"server_name": name, "cluster": _cluster(name, ports)}
            )
            for name in ports
        }

    @property
    def url(self) -> str:
        return ",".join(server.url for server in self.servers.values())

    @property
    def users(self) -> dict[str, str]:
        return next(iter(self.servers.values())).users

    async def __aenter__(self) -> Self:
        """Started and set up: every stream is on all three."""
        try:
            await self.start()
            await set_up(self.url, password=self.users["admin"], replicas=3)
        except BaseException:
            self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    async def start(self) -> None:
        for server in self.servers.values():
            await server.start()

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()


def certified(tls: Tls) -> dict[str, Any]:
    """The settings of a server with this certificate; with an authority in it, clients need a certificate too."""
    settings: dict[str, Any] = {"cert_file": str(tls.certificate), "key_file": str(tls.key)}
    return {"tls": settings | ({"ca_file": str(tls.ca), "verify": True} if tls.ca is not None else {})}


def _cluster(me: str, ports: Mapping[str, int]) -> dict[str, Any]:
    routes = [f"nats://{HOST}:{port}" for name, port in ports.items() if name != me]
    return {"name": "muster", "listen": f"{HOST}:{ports[me]}", "routes": routes}


def _one_set_of_users(directory: Path) -> dict[str, str]:
    return NatsServer(directory / "users").users


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One server for all tests that leave it whole."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    yield from started(server, replicas=1)


@pytest.fixture(scope="session")
def nats_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Three servers for all tests that leave them whole."""
    cluster = NatsCluster(tmp_path_factory.mktemp("cluster"))
    yield from started(cluster, replicas=3)


@asynccontextmanager
async def a_server(directory: Path) -> AsyncIterator[NatsServer]:
    """One server of the test's own, set up."""
    async with NatsServer(directory) as server:
        await set_up(server.url, password=server.users["admin"])
        yield server


@asynccontextmanager
async def at(server: NatsServer, user: str) -> AsyncIterator[Connection]:
    """A bare connection of this user."""
    connection = await Connection.open(server.url, name=user, user=user, password=server.users[user])
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def connected(
    server: NatsServer | NatsCluster, user: str = "scheduler", *, url: str = "", patience: float = READY
) -> AsyncIterator[JetStreamEventLog]:
    log = await JetStreamEventLog.connect(
        url or server.url, name=f"test-{user}", user=user, password=server.users[user], patience=patience
    )
    try:
        yield log
    finally:
        await log.close()


@asynccontextmanager
async def owners(server: NatsServer, scope: str = "") -> AsyncIterator[None]:
    """A replica holds the lease of each service."""
    async with AsyncExitStack() as stack:
        for author in AUTHORS:
            leases = await (await stack.enter_async_context(connected(server, author))).bucket(LEASES)
            key = f"{author}.{scope}" if scope else author
            await leases.put(key, f"muster-{author}/1".encode(), ttl=A_LONG_TIME)
            stack.push_async_callback(leases.delete, key)
        yield


def a_namespace() -> str:
    """One that no other test on the same server uses."""
    return f"ns-{uuid.uuid4().hex[:12]}"


def a_decision(namespace: str = "team-a", number: int = 0, *, job: str = "resnet", body: bytes = b"{}") -> Entry:
    return Entry(
        subject=f"jobs.{namespace}.{job}.u-1.scheduler.SlotsAssigned",
        event_id=f"{namespace}-{job}-{number}",
        time="2026-01-01T00:00:00.000Z",
        body=body,
        basis=f"{number}:abc",
    )


async def read_to_end(log: EventLog, *subjects: str, after: int = 0) -> list[Stored]:
    """Everything that the log holds now."""
    events: list[Stored] = []
    async with aclosing(log.read(after=after, subjects=subjects)) as batches:
        async for batch in batches:
            events += batch.events
            if batch.pending == 0:
                break
    return events


async def nothing_is_lost_or_doubled(
    log: EventLog,
    trouble: Callable[[Callable[[int], Awaitable[None]]], Awaitable[None]],
    *,
    reader: EventLog | None = None,
    namespace: str = "team-a",
    jobs: int = 10,
    each: int = 40,
    within: float = 2 * READY,
) -> None:
    """So many jobs write while there is `trouble`, which may wait for a number of acknowledged events.

    Then the log has what it acknowledged, once, and a `reader` saw each once and in order.
    """
    acknowledged: dict[str, int] = {}
    seen: list[int] = []

    async def write(job: str) -> None:
        sequence = 0
        for number in range(each):
            entry = a_decision(namespace, number, job=job)
            sequence = await log.append(entry, expect=sequence)
            acknowledged[entry.event_id] = sequence

    async def reached(count: int) -> None:
        async def so() -> bool:
            return len(acknowledged) >= count

        await until(so)

    async def follow() -> None:
        if reader is not None:
            async with aclosing(reader.read(subjects=(f"jobs.{namespace}.>",))) as batches:
                async for batch in batches:
                    seen.extend(event.sequence for event in batch.events)
                    if len(seen) >= jobs * each:
                        return

    async with asyncio.timeout(within):
        await asyncio.gather(trouble(reached), follow(), *(write(f"job-{number}") for number in range(jobs)))
    events = await read_to_end(log, f"jobs.{namespace}.>")
    assert {event.event_id: event.sequence for event in events} == acknowledged, "neither lost nor doubled"
    assert len(events) == len(acknowledged) == jobs * each
    assert reader is None or seen == sorted(acknowledged.values())


async def risks_now(log: JetStreamEventLog, monitors: Iterable[str] = ()) -> list[str] | None:
    """None while the log cannot be asked: it has just lost its leader, or the server that we talked to."""
    with suppress(Transient):
        return (await look(log, monitors)).risks
    return None


async def until(
    condition: Callable[[], Awaitable[bool]], *, within: float = READY, tick: Callable[[], None] = lambda: None
) -> None:
    """Wait for a condition; `tick` moves a clock that does not move by itself."""
    async with asyncio.timeout(within):
        while not await condition():
            tick()
            await asyncio.sleep(0.01)


def started(server: _S, *, replicas: int) -> Iterator[_S]:
    async def start() -> None:
        await server.start()
        await set_up(server.url, password=server.users["admin"], replicas=replicas)

    asyncio.run(start())
    yield server
    server.stop()
