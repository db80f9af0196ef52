"""A reader that is disturbed, slow, or one of many."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from shared.eventlog import Batch, api, reader
from shared.eventlog.client import RawClient
from shared.eventlog.connection import Connection
from shared.eventlog.server import NatsServer
from shared.telling.reading import everything
from tests.kit.nats import READY, a_decision, a_namespace, a_server, connected, read_to_end, until
from tests.kit.place import administrator, edit
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.nats

NOTICED = 5.0
"""Seconds after which a reader that is sent nothing has noticed."""


async def test_a_reader_makes_nothing_at_the_server(nats_server: NatsServer):
    async with connected(nats_server) as log, administrator(nats_server) as admin, aclosing(log.read()) as batches:
        await anext(batches)
        assert (await api.call(admin, "CONSUMER.NAMES.JOBS", None, dict))["consumers"] in (None, [])


@pytest.mark.parametrize("subjects", [(), ("jobs.team-a.>",), ("facts.team-a.>", "jobs.team-a.>")], ids=len)
async def test_a_reader_whose_live_subject_is_silent_goes_on_within_five_seconds(
    tmp_path: Path, subjects: tuple[str, ...]
):
    told: list[str] = []
    async with a_server(tmp_path) as server, connected(server) as log, connected(server) as writer:
        await edit(server, "JOBS", {"republish": None})
        async with aclosing(log.read(subjects=subjects, trouble=told.append)) as batches:
            async for batch in batches:
                if batch == Batch((), 0):
                    break
            expect = 0
            for number in range(3):
                expect = await writer.append(a_decision(number=number), expect=expect)
                async with asyncio.timeout(NOTICED):
                    while expect not in [event.sequence for event in (await anext(batches)).events]:
                        pass
    assert told == []


async def test_a_reader_that_no_copy_answers_says_so_within_five_seconds_and_mends_itself(tmp_path: Path):
    told: asyncio.Queue[str] = asyncio.Queue()
    read: list[int] = []
    async with a_server(tmp_path) as server, connected(server) as log, connected(server) as writer:

        async def follow() -> None:
            async for batch in log.read(trouble=told.put_nowait):
                read.extend(event.sequence for event in batch.events)

        following = asyncio.create_task(follow())
        await until(lambda: _same(read, [1]))
        await edit(server, "JOBS", {"republish": None, "allow_direct": False})
        sequence = await writer.append(a_decision(), expect=0)
        async with asyncio.timeout(NOTICED):
            assert (await told.get()).startswith("read the log: ")
        await edit(server, "JOBS", {"allow_direct": True})
        async with asyncio.timeout(READY):
            while await told.get():
                pass
        await until(lambda: _same(read, [1, sequence]))
        following.cancel()


@pytest.mark.parametrize(("subjects", "first"), [((), 1), (("jobs.team-a.>",), 2)], ids=["all", "some"])
async def test_a_mirror_that_an_administrator_made_with_fewer_events_hides_none(
    tmp_path: Path, subjects: tuple[str, ...], first: int
):
    async with a_server(tmp_path) as server, connected(server) as log, administrator(server) as admin:
        for number in range(20):
            await log.append(a_decision(number=number, job=f"job-{number}"), expect=0)
        source = {"name": "JOBS"}
        mirror = {"name": "FEW", "mirror": source, "mirror_direct": True, "max_msgs": 5, "storage": "memory"}
        await api.call(admin, "STREAM.CREATE.FEW", mirror, dict)
        await until(lambda: _has(admin, "FEW", 5))
        for _ in range(6):
            async with connected(server) as reading:
                assert [event.sequence for event in await read_to_end(reading, *subjects)] == [*range(first, 22)]


@pytest.mark.unrecorded
async def test_a_purged_log_is_read_as_fast_as_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    number = 200
    async with a_server(tmp_path) as server:
        async with connected(server) as log, administrator(server) as admin:
            ends = {"kept": 0, "purged": 0}
            for count in range(number):
                for job, end in ends.items():
                    ends[job] = await log.append(a_decision(number=count, job=job), expect=end)
            await api.call(admin, "STREAM.PURGE.JOBS", {"filter": "jobs.team-a.purged.>"}, dict)
        received = _calls(monkeypatch, "_process_msg")
        async with connected(server) as log:
            sent = _calls(monkeypatch, "publish")
            events = await read_to_end(log)
    assert [event.sequence for event in events] == [1, *range(2, 2 * number + 1, 2)]
    assert len(received) <= 1.1 * number
    assert len(sent) <= number / 20


def _calls(monkeypatch: pytest.MonkeyPatch, method: str) -> list[None]:
    """One entry for each call of a client's method from now on."""
    calls: list[None] = []
    wrapped = getattr(RawClient, method)

    async def counted(*arguments: Any) -> Any:
        calls.append(None)
        return await wrapped(*arguments)

    monkeypatch.setattr(RawClient, method, counted)
    return calls


async def _has(admin: Connection, stream: str, number: int) -> bool:
    known = await api.call(admin, f"STREAM.INFO.{stream}", None, dict)
    return bool(known["state"]["messages"] == number)


async def test_an_end_that_no_server_can_read_is_an_end(tmp_path: Path):
    async with a_server(tmp_path) as server:
        async with connected(server) as log:
            for number in range(3):
                await log.append(a_decision(number=number, job=f"job-{number}"), expect=0)
        server.stop()
        _spoil(tmp_path, b"team-a-job-2-2")
        await server.start()
        told: list[str] = []
        async with connected(server) as log, aclosing(log.read(trouble=told.append)) as batches:
            async with asyncio.timeout(READY):
                read: list[int] = []
                while (batch := await anext(batches)) != Batch((), 0):
                    read += [event.sequence for event in batch.events]
                assert read == [1, 2, 3]
                sequence = await log.append(a_decision(number=5, job="job-5"), expect=0)
                assert [event.sequence for event in (await anext(batches)).events] == [sequence]
        assert told == []


async def test_a_reader_that_dawdles_keeps_a_bounded_number_and_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reader, "_WINDOW", 100)
    monkeypatch.setattr(reader, "BATCH", 50)
    async with a_server(tmp_path) as server, connected(server) as log, connected(server) as writer:
        feed = reader._Feed(log.connection, lambda end, after: None, after=0, subjects=())
        await feed.start()
        received = [event.sequence for event in (await feed.next()).events]

        async def write(job: str) -> None:
            sequence = 0
            for number in range(20):
                sequence = await writer.append(a_decision(number=number, job=job), expect=sequence)

        await asyncio.gather(*(write(f"job-{number}") for number in range(20)))
        # The server sent all of them again behind the last append; this answer is behind them.
        end = await log.end()
        await until(lambda: _same(feed._end, end))
        assert len(feed._events) == 100
        while received[-1] < end:
            received += [event.sequence for event in (await feed.next()).events]
            assert len(feed._events) <= 100
        await feed.close()
    assert received == list(range(1, end + 1))


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
        _spoil(tmp_path, b"team-a-job-2-2")
        await server.start()
        async with connected(server) as log, aclosing(log.read()) as batches, asyncio.timeout(READY):
            read: list[int] = []
            while (batch := await anext(batches)) != Batch((), 0):
                read += [event.sequence for event in batch.events]
            assert read == [number for number in range(1, last + 1) if number != last - 2]
            sequence = await log.append(a_decision(number=5, job="job-5"), expect=0)
            later = await anext(batches)
            assert ([event.sequence for event in later.events], later.pending) == ([sequence], 0)


def _spoil(directory: Path, event_id: bytes) -> None:
    """Change a byte of the event on the disk of a server that is stopped."""
    (block,) = (directory / "store").glob("jetstream/*/streams/JOBS/msgs/*.blk")
    kept = block.read_bytes()
    assert kept.count(event_id) == 1
    block.write_bytes(kept.replace(event_id, event_id[:-1] + b"X"))
