"""A reader that is disturbed, slow, or one of many."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from muster.reading import everything
from shared.errors import Transient
from shared.eventlog import Batch, api
from shared.eventlog.connection import Connection
from shared.eventlog.reader import _Consumer
from shared.eventlog.server import NatsServer
from tests.kit.nats import READY, a_decision, a_namespace, a_server, connected, read_to_end, until
from tests.kit.place import administrator
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.nats


async def test_a_reader_whose_consumer_was_deleted_goes_on_without_a_word(tmp_path: Path):
    told: list[str] = []
    async with (
        a_server(tmp_path) as server,
        connected(server) as log,
        aclosing(log.read(trouble=told.append)) as batches,
        asyncio.timeout(READY),
    ):
        genesis = await anext(batches)
        assert (await anext(batches)).pending == 0
        async with administrator(server) as admin:
            await _delete_consumers(admin)
        sequence = await log.append(a_decision(), expect=0)
        assert sequence == genesis.events[-1].sequence + 1
        assert [event.sequence for event in (await anext(batches)).events] == [sequence]
    assert told == []


async def test_that_no_consumer_lasts_is_told_and_that_one_does(tmp_path: Path):
    told: list[str] = []

    async def follow() -> None:
        async for _ in log.read(trouble=told.append):
            pass

    async with a_server(tmp_path) as server, connected(server) as log, administrator(server) as admin:
        following = asyncio.create_task(follow())
        async with asyncio.timeout(READY):
            while not told:
                await _delete_consumers(admin)
            await until(lambda: _same(told[-1], ""))
        following.cancel()
    # The first pull finds it gone already, or waits there when it goes; a busy machine is late to hear of either.
    *troubles, over = told
    assert troubles
    assert {why.removeprefix("read the log: ") for why in troubles} <= {
        "409 Consumer Deleted",
        "its consumer is gone",
        "no word of its consumer for 3 s",
    }
    assert over == ""


async def test_a_consumer_that_is_gone_before_the_first_pull_is_said_in_words(tmp_path: Path):
    async with a_server(tmp_path) as server, connected(server) as log, administrator(server) as admin:
        consumer = _Consumer(log.connection, after=0, subjects=(), well=lambda: None)
        await consumer.start(end=1)
        await _delete_consumers(admin)
        with pytest.raises(Transient, match="its consumer is gone"):
            await consumer.next()
        await consumer.close()


async def _delete_consumers(admin: Connection) -> None:
    names = await api.call(admin, "CONSUMER.NAMES.JOBS", None, dict)
    for name in names["consumers"] or ():
        await api.call(admin, f"CONSUMER.DELETE.JOBS.{name}", None, dict)


async def test_a_slow_reader_is_sent_no_more_than_it_asked_for(nats_server: NatsServer):
    namespace = a_namespace()
    async with connected(nats_server) as log:

        async def write(job: str) -> None:
            sequence = 0
            for number in range(60):
                sequence = await log.append(a_decision(namespace, number, job=job), expect=sequence)

        await asyncio.gather(*(write(f"job-{number}") for number in range(60)))
        received = []
        async with asyncio.timeout(READY), aclosing(log.read(subjects=(f"jobs.{namespace}.>",))) as batches:
            async for batch in batches:
                received += [event.sequence for event in batch.events]
                # While this reader dawdles the server could send all; it holds what was not requested.
                await asyncio.gather(*(log.last(f"jobs.{namespace}.job-1.>") for _ in range(5)))
                if batch.pending == 0:
                    break
    assert len(received) == 3_600
    assert received == sorted(set(received))


async def test_a_silent_connection_is_noticed_and_nothing_is_missed(nats_server: NatsServer):
    namespace = a_namespace()
    async with (
        Proxy(nats_server.url) as proxy,
        connected(nats_server) as direct,
        connected(nats_server, url=proxy.url) as log,
        asyncio.timeout(READY),
        aclosing(log.read(subjects=(f"jobs.{namespace}.>",))) as batches,
    ):
        await anext(batches)
        proxy.drop_answers()
        sequence = await direct.append(a_decision(namespace, 1), expect=0)
        following = asyncio.ensure_future(anext(batches))
        proxy.heal()
        assert [event.sequence for event in (await following).events] == [sequence]


async def test_large_events_are_read_in_bounded_bites(nats_server: NatsServer):
    namespace = a_namespace()
    body = b"x" * 250_000
    async with connected(nats_server) as log:
        await asyncio.gather(
            *(log.append(a_decision(namespace, job=f"job-{number}", body=body), expect=0) for number in range(60))
        )
        events = await read_to_end(log, f"jobs.{namespace}.>")
    assert len(events) == 60
    assert all(event.body == body for event in events)


async def test_many_readers_each_see_everything(nats_server: NatsServer):
    namespace = a_namespace()
    async with connected(nats_server) as log:
        sequence = 0
        for number in range(20):
            sequence = await log.append(a_decision(namespace, number), expect=sequence)
        read = await asyncio.gather(*(read_to_end(log, f"jobs.{namespace}.>") for _ in range(8)))
    assert all(events == read[0] for events in read)
    assert len(read[0]) == 20


async def test_readers_that_stop_leave_nothing_behind(nats_server: NatsServer):
    async with connected(nats_server) as log:
        connection = log._connection
        before = len(connection._on_loss)
        async with aclosing(log.read()) as batches:
            await anext(batches)
        await until(lambda: _same(len(connection._on_loss), before))


async def test_a_log_that_was_read_to_its_end_is_let_go_at_once(nats_server: NatsServer):
    async with connected(nats_server) as log:
        before = len(log.connection._on_loss)
        await everything(log)
        assert len(log.connection._on_loss) == before


async def _same(one: object, other: object) -> bool:
    return one == other


async def test_an_event_that_the_server_cannot_read_is_not_awaited_for_ever(tmp_path: Path):
    async with a_server(tmp_path) as server:
        async with connected(server) as log:
            for number in range(5):
                last = await log.append(a_decision(number=number, job=f"job-{number}"), expect=0)
        server.stop()
        (block,) = (tmp_path / "store").glob("jetstream/*/streams/JOBS/msgs/*.blk")
        kept = block.read_bytes()
        assert kept.count(b"team-a-job-2-2") == 2, "as the event's id and as the message's"
        block.write_bytes(kept.replace(b"team-a-job-2-2", b"team-a-job-2-X"))
        await server.start()
        async with connected(server) as log, aclosing(log.read()) as batches, asyncio.timeout(READY):
            read = [event.sequence for event in (await anext(batches)).events]
            assert read == [number for number in range(1, last + 1) if number != last - 2]
            assert (await anext(batches)) == Batch((), 0)
            sequence = await log.append(a_decision(number=5, job="job-5"), expect=0)
            later = await anext(batches)
            assert ([event.sequence for event in later.events], later.pending) == ([sequence], 0)
