"""What a subscriber's password reaches: its copy, and nothing of the log.  Each is tried as an attacker would."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from shared.eventlog import api
from shared.eventlog.account import ADMIN, COPY_API, FED, FEED, LOG_API, MAX_CONSUMERS
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import STREAMS
from shared.eventlog.subscribers import INACTIVE_SECONDS
from tests.kit.nats import READY, a_decision, at, connected
from tests.kit.subscribers import a_log_for_subscribers, stranger, write

pytestmark = [pytest.mark.nats, pytest.mark.attack("the password of a subscriber at NATS", "the log")]

JOB = "team-a.resnet.u-1"
TARGETS = (
    f"facts.{JOB}.watcher.Forged",
    f"jobs.{JOB}.scheduler.Forged",
    "$KV.LEASES.watcher",
    "$KV.HEADS.a",
    f"stored.jobs.{JOB}.scheduler.Forged",
    FED,
    f"$JS.FC.JOBS.{FEED}.x",
    "$JS.API.STREAM.DELETE.JOBS",
    "$JS.API.STREAM.PURGE.JOBS",
    "$JS.API.STREAM.UPDATE.JOBS",
    "$JS.API.STREAM.CREATE.MINE",
    f"{LOG_API}.STREAM.PURGE.JOBS",
    f"{LOG_API}.STREAM.DELETE.JOBS",
    f"{LOG_API}.CONSUMER.CREATE.JOBS.mine",
    f"{LOG_API}.CONSUMER.DELETE.JOBS.{FEED}",
    f"{LOG_API}.CONSUMER.RESET.JOBS.{FEED}",
    f"{COPY_API}.STREAM.DELETE.JOBS",
    "$SYS.REQ.SERVER.PING",
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with a_log_for_subscribers(tmp_path) as server:
        await write(server, 3)
        yield server


async def held(server: NatsServer) -> dict[str, Any]:
    """The content of each stream, the consumers of the log, and the copy's settings and content."""
    async with at(server, ADMIN) as admin:
        found = {name: (await api.call(admin, f"STREAM.INFO.{name}", None, dict)) for name in STREAMS}
        copy = await api.call(admin, "STREAM.INFO.JOBS", None, dict, prefix=COPY_API)
        names = (await api.call(admin, "CONSUMER.NAMES.JOBS", None, dict))["consumers"]
        sizes = {name: info["state"]["last_seq"] for name, info in found.items()}
        return {"streams": sizes, "consumers": names, "copy": (copy["config"], copy["state"]["messages"])}


async def copied(server: NatsServer) -> None:
    """Wait until the copy has all of the log."""
    async with at(server, ADMIN) as admin, asyncio.timeout(READY):
        while True:
            log, copy = [
                (await api.call(admin, "STREAM.INFO.JOBS", None, dict, prefix=prefix))["state"]["last_seq"]
                for prefix in ("$JS.API", COPY_API)
            ]
            if log == copy:
                return
            await asyncio.sleep(0.02)


async def ask(client: Client, request: str, body: Any = None) -> dict[str, Any]:
    answer = await client.request(f"$JS.API.{request}", b"" if body is None else json.dumps(body).encode(), timeout=2)
    found: dict[str, Any] = json.loads(answer.data)
    return found


def consumer(name: str, **config: Any) -> dict[str, Any]:
    return {"stream_name": "JOBS", "config": {"name": name, "ack_policy": "none", "deliver_policy": "all"} | config}


async def still_works(server: NatsServer, before: dict[str, Any]) -> None:
    """Nothing changed; a new event is stored, and reaches a subscriber."""
    assert await held(server) == before
    (sequence,) = await write(server, 1, "team-z")
    async with stranger(server) as client:
        subscription = await client.jetstream().subscribe("jobs.team-z.>", ordered_consumer=True)
        assert (await subscription.next_msg(timeout=READY)).metadata.sequence.stream == sequence


@pytest.mark.parametrize("body", [b"", b"{}", b'{"forged":true}'])
async def test_nothing_is_published_beside_requests(server: NatsServer, body: bytes):
    await copied(server)
    before = await held(server)
    async with stranger(server) as client:
        for target in TARGETS:
            await client.publish(target, body)
        await client.flush()
    await still_works(server, before)


@pytest.mark.parametrize("headers_only", [False, True])
async def test_a_consumer_that_sends_elsewhere_reaches_nothing(server: NatsServer, headers_only: bool):
    await copied(server)
    before = await held(server)
    async with stranger(server) as client:
        for number, target in enumerate(TARGETS):
            request = consumer(f"p{number}", deliver_subject=target, headers_only=headers_only)
            await ask(client, f"CONSUMER.CREATE.JOBS.p{number}", request)
        await write(server, 1, "team-b")
        await copied(server)
    after = await held(server)
    assert after["streams"] == before["streams"] | {"JOBS": before["streams"]["JOBS"] + 1}
    assert after["copy"] == (before["copy"][0], before["copy"][1] + 1)
    await still_works(server, after)


async def test_an_answer_that_is_sent_elsewhere_reaches_nothing(server: NatsServer):
    """The answer about a consumer looks like the request for one."""
    await copied(server)
    before = await held(server)
    async with stranger(server) as client:
        await ask(client, "CONSUMER.CREATE.JOBS.mine", consumer("mine", deliver_subject="$KV.HEADS.a"))
        questions = ("CONSUMER.INFO.JOBS.mine", "STREAM.INFO.JOBS", "STREAM.MSG.GET.JOBS", "INFO", "CONSUMER.LIST.JOBS")
        for target in TARGETS:
            for question in questions:
                await client.publish(f"$JS.API.{question}", b'{"seq":2}' * ("GET" in question), reply=target)
            await client.publish("$JS.API.DIRECT.GET.JOBS", b'{"seq":2}', reply=target)
        await client.flush()
    await still_works(server, before)


@pytest.mark.parametrize("verb", ["CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "SNAPSHOT", "RESTORE"])
async def test_no_stream_is_made_or_changed(server: NatsServer, verb: str):
    await copied(server)
    before = await held(server)
    async with stranger(server) as client:
        for stream in ("JOBS", "KV_LEASES", "KV_HEADS", "MINE"):
            for prefix in ("$JS.API", LOG_API, COPY_API):
                body = json.dumps({"name": stream, "subjects": ["a.>"], "seq": 1}).encode()
                with suppress(NatsError):
                    await client.request(f"{prefix}.STREAM.{verb}.{stream}", body, timeout=0.1)
    await still_works(server, before)


@pytest.mark.parametrize("stream", ["KV_LEASES", "KV_HEADS"])
async def test_leases_and_heads_are_not_read(server: NatsServer, stream: str):
    async with stranger(server) as client:
        for request in (f"STREAM.INFO.{stream}", f"STREAM.MSG.GET.{stream}", f"DIRECT.GET.{stream}"):
            with pytest.raises(NatsError):
                await client.request(f"$JS.API.{request}", b'{"seq":1}', timeout=0.2)


@pytest.mark.parametrize("durable", [False, True])
async def test_a_consumer_without_its_subscriber_is_removed_in_time(server: NatsServer, durable: bool):
    def names(name: str) -> dict[str, str]:
        return {"durable_name": name} if durable else {}

    async with stranger(server) as client:
        made = await ask(client, "CONSUMER.CREATE.JOBS.mine", consumer("mine", **names("mine")))
        assert made["config"]["inactive_threshold"] == INACTIVE_SECONDS * 1_000_000_000
        longer = {"inactive_threshold": (INACTIVE_SECONDS + 1) * 1_000_000_000}
        refused = await ask(client, "CONSUMER.CREATE.JOBS.other", consumer("other", **names("other"), **longer))
        assert "inactive threshold" in refused["error"]["description"]


async def test_many_consumers_hold_up_nobody_at_the_log(server: NatsServer):
    async with stranger(server) as client, connected(server, "status") as log:
        made = [
            await ask(client, f"CONSUMER.CREATE.JOBS.c{number}", consumer(f"c{number}", durable_name=f"c{number}"))
            for number in range(MAX_CONSUMERS + 20)
        ]
        assert sum("error" not in answer for answer in made) == MAX_CONSUMERS
        async with connected(server) as writer, aclosing(log.read(after=await log.end())) as batches:
            await anext(batches)
            sequence = await writer.append(a_decision("team-b"), expect=0)
            async with asyncio.timeout(5):
                assert [event.sequence for event in (await anext(batches)).events] == [sequence]


async def test_the_consumer_that_feeds_the_copy_is_out_of_reach(server: NatsServer):
    await copied(server)
    before = await held(server)
    async with stranger(server) as client:
        js = client.jetstream()
        with pytest.raises(APIError):
            await js.consumer_info("JOBS", FEED)
        for verb in ("DELETE", "RESET", "PAUSE", "INFO"):
            with suppress(NatsError):
                await client.request(f"{LOG_API}.CONSUMER.{verb}.JOBS.{FEED}", b'{"seq":1}', timeout=0.1)
            with suppress(NatsError):
                await client.request(f"$JS.API.CONSUMER.{verb}.JOBS.{FEED}", b"", timeout=0.1)
    await still_works(server, before)
