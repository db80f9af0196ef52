"""nats-py as its documentation shows it, with a subscriber's credentials and no other setting."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NothingCame
from nats.js.api import ConsumerConfig, DeliverPolicy

from shared.eventlog import api
from shared.eventlog.account import STREAM, Copy
from shared.eventlog.connection import Connection
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from tests.kit.nats import READY
from tests.kit.subscribers import ALL, COPY_BYTES, TEAM_A, a_log_for_subscribers, stranger, write

pytestmark = pytest.mark.nats


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with a_log_for_subscribers(tmp_path) as server:
        yield server


@pytest.fixture(params=[ALL, TEAM_A], ids=["all namespaces", "one namespace"])
def copy(request: pytest.FixtureRequest) -> Copy:
    """The copy that the subscriber reads."""
    found: Copy = request.param
    return found


def place(message: Msg) -> int:
    return message.metadata.sequence.stream


async def test_a_push_subscriber_is_sent_the_events_of_its_subjects(server: NatsServer, copy: Copy):
    wanted = await write(server, 3)
    await write(server, 2, "team-b")
    async with stranger(server, copy.user) as client:
        subscription = await client.jetstream().subscribe("jobs.team-a.>")
        wanted += await write(server, 2)
        for sequence in wanted:
            message = await subscription.next_msg(timeout=READY)
            assert place(message) == sequence
            await message.ack_sync(timeout=READY)
        with pytest.raises(NothingCame):
            await subscription.next_msg(timeout=0.2)


async def test_an_ordered_subscriber_is_sent_all_events_from_the_beginning(server: NatsServer, copy: Copy):
    wanted = await write(server, 5)
    async with stranger(server, copy.user) as client:
        subscription = await client.jetstream().subscribe("*.team-a.>", ordered_consumer=True)
        assert [place(await subscription.next_msg(timeout=READY)) for _ in wanted] == wanted


async def test_a_pull_subscriber_fetches_what_it_asks_for(server: NatsServer, copy: Copy):
    wanted = await write(server, 5)
    async with stranger(server, copy.user) as client:
        subscription = await client.jetstream().pull_subscribe("jobs.team-a.>")
        found: list[int] = []
        while len(found) < len(wanted):
            # As many as are there, and at most three.
            for message in await subscription.fetch(3, timeout=READY):
                found.append(place(message))
                await message.ack_sync(timeout=READY)
        assert found == wanted


@pytest.mark.parametrize("restarted", [False, True], ids=["the server stays", "the server is killed"])
async def test_a_durable_subscriber_goes_on_where_it_was(server: NatsServer, copy: Copy, restarted: bool):
    wanted = await write(server, 6)
    seen: list[int] = []
    for half in (3, 6):
        async with stranger(server, copy.user) as client:
            subscription = await client.jetstream().pull_subscribe("jobs.team-a.>", durable="reports")
            while len({*seen}) < half:
                (message,) = await subscription.fetch(1, timeout=READY)
                seen.append(place(message))
                await message.ack_sync(timeout=READY)
        if restarted:
            server.kill()
            await server.start()
    # NATS writes acknowledgements to disk some time later, so after its crash events come again.
    assert seen == wanted or (restarted and sorted({*seen}) == wanted)


async def test_a_subscriber_resumes_from_a_sequence(server: NatsServer, copy: Copy):
    """The sequence of the copy is that of the log."""
    wanted = await write(server, 5)
    config = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=wanted[2])
    async with stranger(server, copy.user) as client:
        subscription = await client.jetstream().subscribe("jobs.team-a.>", ordered_consumer=True, config=config)
        assert [place(await subscription.next_msg(timeout=READY)) for _ in wanted[2:]] == wanted[2:]


async def test_the_copy_begins_with_events_that_were_there_before_it(tmp_path: Path):
    async with NatsServer(tmp_path) as server:
        admin = server.users["admin"]
        await set_up(server.url, password=admin)
        wanted = await write(server, 3)
        made = [(await set_up(server.url, password=admin, subscribers={Copy(): COPY_BYTES})).created for _ in range(2)]
        assert made == [("JOBS of COPY",), ()]
        async with stranger(server) as client:
            subscription = await client.jetstream().subscribe("jobs.team-a.>", ordered_consumer=True)
            assert [place(await subscription.next_msg(timeout=READY)) for _ in wanted] == wanted


async def test_another_size_is_given_to_the_copy_that_is_there(server: NatsServer, copy: Copy):
    admin = server.users["admin"]
    done = await set_up(server.url, password=admin, subscribers={copy: 2 * COPY_BYTES})
    assert done.created == ()
    assert done.grown == (f"{copy.name}: max_bytes is {2 * COPY_BYTES} now, and was {COPY_BYTES}",)


async def test_a_log_that_is_made_anew_has_a_copy_of_its_own(server: NatsServer, copy: Copy):
    admin = server.users["admin"]
    await write(server, 5)
    connection = await Connection.open(server.url, name="admin", user="admin", password=admin)
    await api.call(connection, "STREAM.DELETE.JOBS", None, dict)
    await connection.close()
    done = await set_up(server.url, password=admin, subscribers={copy: COPY_BYTES})
    assert done.created == ("JOBS", copy.name)
    wanted = await write(server, 3)
    async with stranger(server, copy.user) as client:
        subscription = await client.jetstream().subscribe("jobs.team-a.>", ordered_consumer=True)
        assert [place(await subscription.next_msg(timeout=READY)) for _ in wanted] == wanted


async def test_a_purge_of_the_log_leaves_the_copy_and_its_consumers(server: NatsServer, copy: Copy):
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
