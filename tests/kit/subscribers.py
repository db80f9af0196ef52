"""A log with its subscribers' copies, and the NATS client of strangers: nats-py, with a subscriber's credentials."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
from nats.aio.client import Client

from shared.eventlog.account import SUBSCRIBER, USERS, Copy
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from tests.kit.nats import a_decision, connected

COPY_BYTES = 100_000_000
ALL, TEAM_A, TEAM_B = Copy(), Copy.of("team-a"), Copy.of("team-b")


@asynccontextmanager
async def a_log_for_subscribers(directory: Path) -> AsyncIterator[NatsServer]:
    users = {user: secrets.token_hex(8) for user in (*USERS, TEAM_A.user, TEAM_B.user)}
    async with NatsServer(directory, users=users) as server:
        sizes = dict.fromkeys((ALL, TEAM_A, TEAM_B), COPY_BYTES)
        await set_up(server.url, password=users["admin"], subscribers=sizes)
        yield server


@asynccontextmanager
async def stranger(server: NatsServer, user: str = SUBSCRIBER) -> AsyncIterator[Client]:
    """As its documentation connects it."""
    client = await nats.connect(
        server.url, user=user, password=server.users[user], max_reconnect_attempts=-1, reconnect_time_wait=0.1
    )
    try:
        yield client
    finally:
        await client.close()


async def write(server: NatsServer, number: int, namespace: str = "team-a", *, body: bytes = b"{}") -> list[int]:
    """Append so many decisions of one job; their sequences."""
    async with connected(server) as log:
        sequence = await log.end((f"jobs.{namespace}.>",))
        sequences = []
        for _ in range(number):
            sequence = await log.append(a_decision(namespace, sequence, body=body), expect=sequence)
            sequences.append(sequence)
        return sequences
