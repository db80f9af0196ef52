"""A log with its subscribers' copies, and the NATS client of strangers: nats-py, with a subscriber's credentials."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import nats
from nats.aio.client import Client

from shared.eventlog.account import SUBSCRIBER, Copy
from shared.eventlog.server import CopiesServer, NatsServer, copies_of
from shared.eventlog.setup import set_up
from shared.private import write_private
from tests.kit.nats import a_decision, connected

COPY_BYTES = 100_000_000
GONE = 2.1
"""Seconds after which the request of a client that is gone takes no event any more.

A server with leaf nodes sends it the next event until then, which comes again once the client has not acknowledged it.
"""
ALL, TEAM_A, TEAM_B = Copy(), Copy.of("team-a"), Copy.of("team-b")


class Log(NatsServer):
    """A log's server, and the one of the copies beside it."""

    copies: CopiesServer
    _left = -GONE
    """When a client last left."""

    def left(self) -> None:
        """Note that a client left: its last request may still take an event, for which `forgets` waits."""
        self._left = time.monotonic()

    async def forgets(self) -> None:
        """Wait until no request of a client that is gone takes an event."""
        await asyncio.sleep(self._left + GONE - time.monotonic())

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.copies = await CopiesServer(self).__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.copies.__aexit__()
        await super().__aexit__()


@asynccontextmanager
async def a_log_for_subscribers(directory: Path) -> AsyncIterator[Log]:
    users = {copy.user: secrets.token_hex(8) for copy in (ALL, TEAM_A, TEAM_B)}
    copies_of(directory).mkdir(parents=True)
    write_private(copies_of(directory) / "users.json", json.dumps(users))
    async with Log(directory) as server:
        sizes = dict.fromkeys((ALL, TEAM_A, TEAM_B), COPY_BYTES)
        await set_up(server.url, password=server.users["admin"], subscribers=sizes)
        yield server


@asynccontextmanager
async def stranger(server: Log, user: str = SUBSCRIBER) -> AsyncIterator[Client]:
    """As its documentation connects it."""
    copies = server.copies
    await server.forgets()
    client = await nats.connect(
        copies.url, user=user, password=copies.users[user], max_reconnect_attempts=-1, reconnect_time_wait=0.1
    )
    try:
        yield client
    finally:
        await client.close()


async def write(server: NatsServer, number: int, namespace: str = "team-a", *, body: bytes = b"{}") -> list[int]:
    """Append so many decisions of one job; their sequences."""
    if isinstance(server, Log):
        await server.forgets()
    async with connected(server) as log:
        sequence = await log.end((f"jobs.{namespace}.>",))
        sequences = []
        for _ in range(number):
            sequence = await log.append(a_decision(namespace, sequence, body=body), expect=sequence)
            sequences.append(sequence)
        return sequences
