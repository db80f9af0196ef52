"""One who reads the log at one server of the three, from its beginning, and remembers what was delivered."""

import asyncio
import hashlib
from typing import NamedTuple, Self

from shared.eventlog import Stored
from shared.eventlog.account import READER
from shared.eventlog.jetstream import JetStreamEventLog
from tests.kit.nats import NatsCluster


class Print(NamedTuple):
    """What may never change of an event."""

    subject: str
    event_id: str
    digest: str
    """Of time, body and basis."""


def print_of(stored: Stored) -> Print:
    whole = b"\n".join((stored.time.encode(), stored.body, stored.basis.encode()))
    return Print(stored.subject, stored.event_id, hashlib.sha256(whole).hexdigest())


class Witness:
    """`async with Witness(cluster, "n0")`: reads there whenever that server lives."""

    def __init__(self, cluster: NatsCluster, server: str) -> None:
        self.server = server
        self._url = cluster.servers[server].url
        self._password = cluster.users[READER]
        self.seen: list[tuple[int, Print]] = []

    async def __aenter__(self) -> Self:
        self._log = await JetStreamEventLog.connect(
            self._url, name=f"witness-{self.server}", user=READER, password=self._password
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._log.close()

    async def reached(self, sequence: int) -> bool:
        if self._reading.done():
            self._reading.result()
        return bool(self.seen) and self.seen[-1][0] >= sequence

    async def _read(self) -> None:
        async for batch in self._log.read():
            self.seen += [(stored.sequence, print_of(stored)) for stored in batch.events]
