"""kill -9 of the server under load: nothing acknowledged is lost, nothing is doubled, readers go on.

`MUSTER_KILLS=1000` kills it more often.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from shared.errors import Refused
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from tests.kit.nats import READY, a_decision, a_server, connected, nothing_is_lost_or_doubled

pytestmark = pytest.mark.nats

KILLS = int(os.environ.get("MUSTER_KILLS", "4"))
JOBS = 10
EACH = max(150, 5 * KILLS)


async def test_a_killed_server_loses_and_doubles_nothing_and_readers_go_on(tmp_path: Path):
    async with a_server(tmp_path) as server, connected(server) as log, connected(server, "status") as follower:

        async def kill(reached: Callable[[int], Awaitable[None]]) -> None:
            for number in range(1, KILLS + 1):
                await reached(number * JOBS * EACH // (KILLS + 1))
                server.kill()
                await server.restart()

        within = 2 * READY + 2 * KILLS
        await nothing_is_lost_or_doubled(log, kill, reader=follower, jobs=JOBS, each=EACH, within=within)


async def test_another_log_in_its_place_is_noticed(tmp_path: Path):
    """An empty stream of the same name must never look like a history without jobs."""
    async with (
        a_server(tmp_path / "one") as server,
        connected(server) as log,
        asyncio.timeout(READY),
        aclosing(log.read()) as batches,
    ):
        await anext(batches)
        server.stop()
        async with NatsServer(tmp_path / "two", port=server.port, users=server.users) as other:
            await set_up(other.url, password=other.users["admin"])
            while (await anext(batches)).events:
                pass  # what had arrived before
            with pytest.raises(Refused) as refusal:
                await anext(batches)
    assert refusal.value.reason == "LogReplaced"


async def test_a_user_who_is_turned_away_is_told_so(tmp_path: Path):
    """Without this the client would close for good and everybody would wait for ever."""
    async with (
        a_server(tmp_path / "one") as server,
        connected(server) as log,
        asyncio.timeout(READY),
        aclosing(log.read()) as batches,
    ):
        while (await anext(batches)).events:
            pass
        server.stop()
        strangers = {user: f"{password}x" for user, password in server.users.items()}
        async with NatsServer(tmp_path / "two", port=server.port, users=strangers):
            with pytest.raises(Refused) as read:
                await anext(batches)
            with pytest.raises(Refused) as append:
                await log.append(a_decision(), expect=0)
    assert read.value.reason == append.value.reason == "Unauthorized"
    assert not log.connected
