"""What the copies for subscribers hold, when they are made, and what `muster doctor` tells of them."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from muster.doctor import log as of_log
from shared.eventlog import api, inspection
from shared.eventlog.account import ADMIN, READER, STREAM, Copy
from shared.eventlog.connection import Connection
from shared.eventlog.setup import set_up
from tests.kit.nats import READY, connected
from tests.kit.subscribers import ALL, COPY_BYTES, TEAM_A, Log, a_log_for_subscribers, stranger, write

pytestmark = pytest.mark.nats
WAIT_AT_THE_LOG = 20.0
"""Seconds for 400 events, one after the other, each synced to a disk that is busy."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Log]:
    async with a_log_for_subscribers(tmp_path) as server:
        yield server


@pytest.fixture(params=[ALL, TEAM_A], ids=["all namespaces", "one namespace"])
def copy(request: pytest.FixtureRequest) -> Copy:
    """The copy that the subscriber reads."""
    found: Copy = request.param
    return found


def place(message: Msg) -> int:
    return message.metadata.sequence.stream


async def test_the_copy_begins_with_events_that_were_there_before_it(tmp_path: Path):
    async with Log(tmp_path) as server:
        admin = server.users["admin"]
        await set_up(server.url, password=admin)
        wanted = await write(server, 3)
        made = [(await set_up(server.url, password=admin, subscribers={Copy(): COPY_BYTES})).created for _ in range(2)]
        assert made == [("JOBS of copies", "JOBS of COPY"), ()]
        async with stranger(server) as client:
            subscription = await client.jetstream().subscribe("jobs.team-a.>", ordered_consumer=True)
            assert [place(await subscription.next_msg(timeout=READY)) for _ in wanted] == wanted


async def test_another_size_is_given_to_the_copy_that_is_there(server: Log, copy: Copy):
    admin = server.users["admin"]
    done = await set_up(server.url, password=admin, subscribers={copy: 2 * COPY_BYTES})
    assert done.created == ()
    assert done.grown == (f"{copy.name}: max_bytes is {2 * COPY_BYTES} now, and was {COPY_BYTES}",)


async def test_a_log_that_is_made_anew_has_a_copy_of_its_own(server: Log, copy: Copy):
    admin = server.users["admin"]
    await write(server, 5)
    connection = await Connection.open(server.url, name="admin", user="admin", password=admin)
    await api.call(connection, "STREAM.DELETE.JOBS", None, dict)
    await connection.close()
    done = await set_up(server.url, password=admin, subscribers={copy: COPY_BYTES})
    assert done.created == ("JOBS", "JOBS of copies", copy.name)
    wanted = await write(server, 3)
    async with stranger(server, copy.user) as client:
        subscription = await client.jetstream().subscribe("jobs.team-a.>", ordered_consumer=True)
        assert [place(await subscription.next_msg(timeout=READY)) for _ in wanted] == wanted


@pytest.mark.parametrize(("away", "back"), [(signal.SIGKILL, None), (signal.SIGSTOP, signal.SIGCONT)])
async def test_the_log_goes_on_while_the_copies_are_away_and_they_have_everything_once_they_are_back(
    server: Log, copy: Copy, away: signal.Signals, back: signal.Signals | None
):
    wanted = await write(server, 3)
    async with stranger(server, copy.user) as client:
        subscription = await client.jetstream().pull_subscribe("jobs.team-a.>", durable="kept", stream=STREAM)
        # An answer ends with what the copy has by then.
        for sequence in wanted:
            (message,) = await subscription.fetch(1, timeout=READY)
            await message.ack_sync()
            assert place(message) == sequence
    os.kill(server.copies.pid, away)
    async with asyncio.timeout(WAIT_AT_THE_LOG):
        wanted += await write(server, 400, body=b'{"x":"%s"}' % (b"x" * 10_000))
    if back is None:
        await server.copies.restart()
    else:
        os.kill(server.copies.pid, back)
    async with stranger(server, copy.user) as client:
        subscription = await client.jetstream().pull_subscribe_bind("kept", stream=STREAM)
        found = list[int]()
        async with asyncio.timeout(60):
            while wanted[-1] not in found:
                with suppress(TimeoutError):
                    found += [place(message) for message in await subscription.fetch(100, timeout=1)]
    # At least once: a server that is killed forgets the acknowledgements of its last moment.
    acknowledged = wanted[:3] if back is None else []
    assert [sequence for sequence in found if sequence not in acknowledged] == wanted[3:]


async def test_a_purge_of_the_log_leaves_the_copy_and_its_consumers(server: Log, copy: Copy):
    admin = server.users["admin"]
    await write(server, 3)
    async with stranger(server, copy.user) as client:
        await client.jetstream().pull_subscribe("jobs.>", durable="kept", stream=STREAM)
    connection = await Connection.open(server.url, name="admin", user="admin", password=admin)
    await api.call(connection, f"STREAM.PURGE.{STREAM}", {"filter": "jobs.team-a.>"}, dict)
    await connection.close()
    assert (await set_up(server.url, password=admin, subscribers={copy: COPY_BYTES})).created == ()
    async with stranger(server, copy.user) as client:
        assert (await client.jetstream().consumer_info(STREAM, "kept")).name == "kept"


async def test_a_copy_that_is_fed_and_one_that_is_gone(tmp_path: Path):
    async with a_log_for_subscribers(tmp_path) as server:
        await write(server, 3, "team-a")
        async with connected(server, ADMIN) as log:
            async with asyncio.timeout(READY):
                while [each.status for each in of_log.subscribers(await inspection.copies(log) or {})] != ["ok"]:
                    await asyncio.sleep(0.2)
            await api.call(log.connection, f"STREAM.DELETE.{STREAM}", None, dict, prefix=TEAM_A.api)
            [finding] = of_log.subscribers(await inspection.copies(log) or {})
            assert (finding.status, TEAM_A.user in finding.message) == ("fail", True)
        async with connected(server, READER) as log:
            assert await inspection.copies(log) is None
        assert "Violation" not in server.log.read_text()
