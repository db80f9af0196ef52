"""An append whose answer was lost is neither lost nor doubled, and its author learns the truth."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from shared.errors import Conflict, Transient
from shared.eventlog import api, jetstream
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import NatsServer
from tests.kit.nats import (
    READY,
    a_decision,
    a_namespace,
    a_server,
    connected,
    nothing_is_lost_or_doubled,
    read_to_end,
    until,
)
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.nats


def stored(log: JetStreamEventLog, namespace: str):
    async def condition() -> bool:
        return await log.last(f"jobs.{namespace}.>") is not None

    return condition


async def test_a_lost_acknowledgement_is_found_out_even_when_others_wrote_since(nats_server: NatsServer):
    namespace = a_namespace()
    async with (
        Proxy(nats_server.url) as proxy,
        connected(nats_server) as direct,
        connected(nats_server, url=proxy.url) as log,
    ):
        await log.identity()
        proxy.drop_answers()
        append = asyncio.create_task(log.append(a_decision(namespace, 1), expect=0))
        await until(stored(direct, namespace))
        first = await direct.last(f"jobs.{namespace}.>")
        assert first is not None
        await direct.append(a_decision(namespace, 2), expect=first.sequence)
        proxy.heal()
        assert await append == first.sequence


async def test_what_never_arrived_is_sent_again(nats_server: NatsServer):
    namespace = a_namespace()
    async with Proxy(nats_server.url) as proxy, connected(nats_server, url=proxy.url) as log:
        proxy.refuse()
        append = asyncio.create_task(log.append(a_decision(namespace, 1), expect=0))
        await until(lambda: _is_not(log.connected))
        proxy.heal()
        sequence = await append
        assert [event.sequence for event in await read_to_end(log, f"jobs.{namespace}.>")] == [sequence]


async def test_another_writer_meanwhile_is_a_conflict(nats_server: NatsServer):
    namespace = a_namespace()
    async with (
        Proxy(nats_server.url) as proxy,
        connected(nats_server) as direct,
        connected(nats_server, url=proxy.url) as log,
    ):
        proxy.refuse()
        append = asyncio.create_task(log.append(a_decision(namespace, 1), expect=0))
        await until(lambda: _is_not(log.connected))
        await direct.append(a_decision(namespace, 2), expect=0)
        proxy.heal()
        with pytest.raises(Conflict):
            await append


async def test_a_write_that_arrives_late_is_stored_once(nats_server: NatsServer):
    """The client gave up, tried again elsewhere, and only then the first attempt reaches the server."""
    namespace = a_namespace()
    async with Proxy(nats_server.url) as proxy, connected(nats_server) as direct:
        async with connected(nats_server, url=proxy.url, patience=0.2) as log:
            proxy.stall()
            with pytest.raises(Transient):
                async with asyncio.timeout(READY):
                    await log.append(a_decision(namespace, 1), expect=0)
            sequence = await direct.append(a_decision(namespace, 1), expect=0)
            proxy.heal()
            assert await log.append(a_decision(namespace, 1), expect=0) == sequence
        assert len(await read_to_end(direct, f"jobs.{namespace}.>")) == 1


async def test_cuts_under_load_lose_and_double_nothing(nats_server: NatsServer):
    async with Proxy(nats_server.url) as proxy, connected(nats_server, url=proxy.url) as log:

        async def cut(reached: Callable[[int], Awaitable[None]]) -> None:
            for count in range(50, 400, 50):
                await reached(count)
                proxy.drop_answers()
                proxy.heal()

        await nothing_is_lost_or_doubled(log, cut, namespace=a_namespace())


async def test_a_log_that_stays_away_is_reported_after_some_patience(tmp_path: Path):
    async with a_server(tmp_path) as server, connected(server, patience=0.5) as log:
        server.kill()
        with pytest.raises(Transient, match="given up after"):
            await log.append(a_decision(), expect=0)


async def test_a_lease_whose_answer_was_lost_is_ours(nats_server: NatsServer):
    key = f"scheduler.{a_namespace()}"
    async with (
        Proxy(nats_server.url) as proxy,
        connected(nats_server) as direct,
        connected(nats_server, url=proxy.url) as log,
    ):
        ours = await log.bucket("LEASES")
        bucket = await direct.bucket("LEASES")
        proxy.drop_answers()
        put = asyncio.create_task(ours.put(key, b"me", expect=0, ttl=10))

        async def taken() -> bool:
            return await bucket.get(key) is not None

        await until(taken)
        proxy.heal()
        revision = await put
        found = await bucket.get(key)
    assert found is not None
    assert found.revision == revision


async def test_a_checkpoint_that_arrives_after_the_deletion_of_its_key_is_refused(nats_server: NatsServer):
    """The key had no value when it was deleted: the first one was on its way."""
    uid = a_namespace()
    async with (
        Proxy(nats_server.url) as proxy,
        connected(nats_server, "status") as direct,
        connected(nats_server, "status", url=proxy.url) as log,
    ):
        ours, bucket = await log.bucket("HEADS"), await direct.bucket("HEADS")
        await ours.get(uid)
        proxy.stall()
        put = asyncio.create_task(ours.put(uid, b"head", expect=0))
        await asyncio.sleep(0)
        put.cancel()
        await bucket.delete(uid)
        proxy.heal()
        # What the same connection sends later arrives later.
        await ours.put(f"{uid}.later", b"later", expect=0)
        assert await bucket.get(uid) is None
        await ours.put(uid, b"new", expect=0)
        assert await bucket.get(uid) is not None


async def test_nothing_is_left_of_a_deleted_key(monkeypatch: pytest.MonkeyPatch, nats_server: NatsServer):
    monkeypatch.setattr(jetstream, "REMOVED_SECONDS", 1)
    uid = a_namespace()
    async with connected(nats_server, "status") as log:
        bucket = await log.bucket("HEADS")
        await bucket.put(uid, b"head", expect=0)
        await bucket.delete(uid)

        async def empty() -> bool:
            return await api.message(log.connection, "KV_HEADS", last_by_subj=f"$KV.HEADS.{uid}") is None

        assert not await empty()
        await until(empty)


async def _is_not(value: bool) -> bool:
    return not value
