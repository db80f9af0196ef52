"""What a subscriber's password reaches: its copy, and nothing of the log or of another copy.

Each is tried as an attacker would, with the password for all events and with that for one namespace.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from shared.eventlog import api
from shared.eventlog.account import (
    ACCOUNT,
    ADMIN,
    LOG_API,
    MAX_CONNECTIONS,
    MAX_CONSUMERS,
    RELAY,
    STREAM,
    USERS,
    Copy,
    accounts,
    accounts_of_copies,
)
from shared.eventlog.connection import Connection
from shared.eventlog.server import LIMITS_OF_COPIES
from shared.eventlog.streams import STREAMS
from shared.eventlog.subscribers import INACTIVE_SECONDS
from shared.ports import HOST
from tests.kit.nats import READY, a_decision, at, connected
from tests.kit.subscribers import ALL, TEAM_A, TEAM_B, Log, a_log_for_subscribers, stranger, write

pytestmark = [pytest.mark.nats, pytest.mark.attack("the password of a subscriber at NATS", "the log")]

JOB = "team-a.resnet.u-1"


def targets(copy: Copy) -> tuple[str, ...]:
    """Subjects at which a message would do harm."""
    return (*TARGETS, copy.flow.replace(">", "x"), f"{copy.api}.STREAM.DELETE.JOBS", *OTHERS)


OTHERS = tuple(
    subject
    for copy in (RELAY, ALL, TEAM_A, TEAM_B)
    for subject in (
        copy.fed,
        f"{LOG_API}.CONSUMER.DELETE.JOBS.{copy.feed}",
        copy.reset.replace("$JS.API", LOG_API),
        f"{copy.api}.CONSUMER.DELETE.JOBS.mine",
        f"{copy.api}.STREAM.DELETE.JOBS",
    )
)
TARGETS = (
    f"facts.{JOB}.watcher.Forged",
    f"jobs.{JOB}.scheduler.Forged",
    "$KV.LEASES.watcher",
    "$KV.HEADS.a",
    f"stored.jobs.{JOB}.scheduler.Forged",
    "$JS.API.STREAM.DELETE.JOBS",
    "$JS.API.STREAM.PURGE.JOBS",
    "$JS.API.STREAM.UPDATE.JOBS",
    "$JS.API.STREAM.CREATE.MINE",
    f"{LOG_API}.STREAM.PURGE.JOBS",
    f"{LOG_API}.STREAM.DELETE.JOBS",
    f"{LOG_API}.CONSUMER.CREATE.JOBS.mine",
    "$SYS.REQ.SERVER.PING",
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Log]:
    async with a_log_for_subscribers(tmp_path) as server:
        await write(server, 3)
        await write(server, 2, "team-b")
        yield server


@pytest.fixture(params=[ALL, TEAM_A], ids=["all namespaces", "one namespace"])
def copy(request: pytest.FixtureRequest) -> Copy:
    """The copy that the attacker reads."""
    found: Copy = request.param
    return found


async def held(server: Log) -> dict[str, Any]:
    """The content of each stream, the feeds' places, and the copies' settings, content and consumers."""
    async with at(server, ADMIN) as admin:
        found = {name: (await api.call(admin, f"STREAM.INFO.{name}", None, dict)) for name in STREAMS}
        feeds = [
            feed
            for prefix in (RELAY.source, RELAY.api)
            for feed in (await api.call(admin, "CONSUMER.LIST.JOBS", None, dict, prefix=prefix))["consumers"]
        ]
        places = {feed["name"]: {key: _place(feed[key]) for key in ("delivered", "ack_floor")} for feed in feeds}
        copies = {each: await _info(admin, each.api) for each in (RELAY, ALL, TEAM_A, TEAM_B)}
        return {
            "streams": {name: info["state"]["last_seq"] for name, info in found.items()},
            "feeds": places,
            "copies": {each: (info["config"], info["state"]["messages"]) for each, info in copies.items()},
        }


def _place(found: dict[str, Any]) -> tuple[int, int]:
    return found["consumer_seq"], found["stream_seq"]


async def _info(admin: Connection, prefix: str) -> dict[str, Any]:
    return await api.call(admin, "STREAM.INFO.JOBS", None, dict, prefix=prefix)


async def copied(server: Log) -> None:
    """Wait until each copy has what it should have, and said so."""
    async with at(server, ADMIN) as admin, asyncio.timeout(READY):
        for copy in (RELAY, ALL, TEAM_A, TEAM_B):
            wanted = await api.end(admin, STREAM, copy.filters)
            while True:
                feed = await api.call(admin, f"CONSUMER.INFO.JOBS.{copy.feed}", None, dict, prefix=copy.source)
                stored = (await _info(admin, copy.api))["state"]["last_seq"]
                if (
                    wanted == stored
                    and _place(feed["delivered"]) == _place(feed["ack_floor"])
                    and not feed["num_pending"]
                ):
                    break
                await asyncio.sleep(0.02)


async def ask(client: Client, request: str, body: Any = None) -> dict[str, Any]:
    answer = await client.request(f"$JS.API.{request}", b"" if body is None else json.dumps(body).encode(), timeout=2)
    found: dict[str, Any] = json.loads(answer.data)
    return found


def consumer(name: str, **config: Any) -> dict[str, Any]:
    return {"stream_name": "JOBS", "config": {"name": name, "ack_policy": "none", "deliver_policy": "all"} | config}


async def still_works(server: Log, before: dict[str, Any], copy: Copy) -> None:
    """Nothing changed; a new event is stored, and reaches a subscriber."""
    assert await held(server) == before
    (sequence,) = await write(server, 1)
    async with stranger(server, copy.user) as client, asyncio.timeout(READY):
        subscription = await client.jetstream().subscribe("jobs.team-a.>", ordered_consumer=True)
        while (await subscription.next_msg(timeout=READY)).metadata.sequence.stream != sequence:
            pass


async def publishes(client: Client, copy: Copy) -> None:
    for target in targets(copy):
        for body in (b"", b"{}", b'{"forged":true}'):
            await client.publish(target, body)


async def sends_answers_elsewhere(client: Client, copy: Copy) -> None:
    """The answer about a consumer looks like the request for one."""
    await ask(client, "CONSUMER.CREATE.JOBS.mine", consumer("mine", deliver_subject="$KV.HEADS.a"))
    questions = ("CONSUMER.INFO.JOBS.mine", "STREAM.INFO.JOBS", "STREAM.MSG.GET.JOBS", "INFO", "CONSUMER.LIST.JOBS")
    for target in targets(copy):
        for question in questions:
            await client.publish(f"$JS.API.{question}", b'{"seq":2}' * ("GET" in question), reply=target)
        await client.publish("$JS.API.DIRECT.GET.JOBS", b'{"seq":2}', reply=target)


async def makes_and_changes_streams(client: Client, copy: Copy) -> None:
    for stream in ("JOBS", "KV_LEASES", "KV_HEADS", "MINE"):
        body = json.dumps({"name": stream, "subjects": ["a.>"], "seq": 1}).encode()
        for verb in ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "SNAPSHOT", "RESTORE"):
            for prefix in ("$JS.API", LOG_API, copy.api):
                await client.publish(f"{prefix}.STREAM.{verb}.{stream}", body, reply=client.new_inbox())


async def reaches_for_the_feed(client: Client, copy: Copy) -> None:
    """The consumer that feeds the copy."""
    with pytest.raises(APIError):
        await client.jetstream().consumer_info("JOBS", copy.feed)
    for verb in ("DELETE", "RESET", "PAUSE", "INFO"):
        with suppress(NatsError):
            await client.request(f"{LOG_API}.CONSUMER.{verb}.JOBS.{copy.feed}", b'{"seq":1}', timeout=0.1)
        with suppress(NatsError):
            await client.request(f"$JS.API.CONSUMER.{verb}.JOBS.{copy.feed}", b"", timeout=0.1)


async def test_what_is_published_and_asked_changes_nothing(server: Log, copy: Copy):
    for attack in (publishes, sends_answers_elsewhere, makes_and_changes_streams, reaches_for_the_feed):
        await copied(server)
        before = await held(server)
        async with stranger(server, copy.user) as client:
            await attack(client, copy)
            await client.flush()
        await still_works(server, before, copy)


async def test_a_consumer_that_sends_elsewhere_reaches_nothing(server: Log, copy: Copy):
    await copied(server)
    before = await held(server)
    async with stranger(server, copy.user) as client:
        for number, target in enumerate(targets(copy)):
            for headers_only in (False, True):
                name = f"p{number}-{headers_only}"
                request = consumer(name, deliver_subject=target, headers_only=headers_only)
                await ask(client, f"CONSUMER.CREATE.JOBS.{name}", request)
        await write(server, 1)
        await copied(server)
        after = await held(server)
        # A push consumer may reset the feed of its copy, which then repeats events that the copy has: its count alone.
        for found in (before, after):
            found["feeds"] = found["feeds"].keys()
        stored = before["streams"] | {"JOBS": before["streams"]["JOBS"] + 1}
        for each in (RELAY, ALL, TEAM_A):
            config, messages = before["copies"][each]
            before["copies"][each] = (config, messages + 1)
        assert after == before | {"streams": stored}


async def test_leases_and_heads_are_not_read(server: Log, copy: Copy):
    async with stranger(server, copy.user) as client:
        for stream in ("KV_LEASES", "KV_HEADS"):
            for request in (f"STREAM.INFO.{stream}", f"STREAM.MSG.GET.{stream}", f"DIRECT.GET.{stream}"):
                with pytest.raises(NatsError):
                    await client.request(f"$JS.API.{request}", b'{"seq":1}', timeout=0.2)


async def test_a_consumer_without_its_subscriber_is_removed_in_time(server: Log, copy: Copy):
    longer = {"inactive_threshold": (INACTIVE_SECONDS + 1) * 1_000_000_000}
    async with stranger(server, copy.user) as client:
        for durable in (False, True):
            mine, other = ({"durable_name": name} if durable else {} for name in ("mine", "other"))
            made = await ask(client, "CONSUMER.CREATE.JOBS.mine", consumer("mine", **mine))
            assert made["config"]["inactive_threshold"] == INACTIVE_SECONDS * 1_000_000_000
            refused = await ask(client, "CONSUMER.CREATE.JOBS.other", consumer("other", **other, **longer))
            assert "inactive threshold" in refused["error"]["description"]
            await ask(client, "CONSUMER.DELETE.JOBS.mine")


async def test_many_consumers_hold_up_nobody_at_the_log(server: Log, copy: Copy):
    async with stranger(server, copy.user) as client, connected(server, "status") as log:
        made = [
            await ask(client, f"CONSUMER.CREATE.JOBS.c{number}", consumer(f"c{number}", durable_name=f"c{number}"))
            for number in range(MAX_CONSUMERS + 20)
        ]
        assert sum("error" not in answer for answer in made) == MAX_CONSUMERS
        async with connected(server) as writer, aclosing(log.read(after=await log.end())) as batches:
            await anext(batches)
            sequence = await writer.append(a_decision("team-c"), expect=0)
            async with asyncio.timeout(5):
                assert [event.sequence for event in (await anext(batches)).events] == [sequence]


async def test_a_consumer_has_at_most_as_much_under_way_as_any_client_asks_for(server: Log, copy: Copy):
    async with stranger(server, copy.user) as client:
        greedy = consumer("greedy", ack_policy="explicit", max_ack_pending=1_000_000)
        refused = await ask(client, "CONSUMER.CREATE.JOBS.greedy", greedy)
        assert refused["error"]["description"] == "consumer max ack pending exceeds system limit of 524288"
        usual = await ask(client, "CONSUMER.CREATE.JOBS.usual", consumer("usual", ack_policy="explicit"))
        assert usual["config"]["max_ack_pending"] == 1000


async def heard(server: Log, copy: Copy, lines: list[str]) -> list[str]:
    """What a connection of this subscriber hears after these lines, until its `PING` is answered or it is closed."""
    reader, writer = await asyncio.open_connection(HOST, server.copies.port)
    login = {"user": copy.user, "pass": server.copies.users[copy.user], "verbose": False}
    writer.write("\r\n".join((f"CONNECT {json.dumps(login)}", *lines, "PING", "")).encode())
    found = list[str]()
    async with asyncio.timeout(READY):
        await reader.readline()
        while found[-1:] != ["PONG"] and (line := (await reader.readline()).decode().strip()):
            found.append(line)
    writer.transport.abort()
    return found


async def test_a_subscriber_has_so_many_connections_and_others_notice_nothing(server: Log, copy: Copy):
    async with AsyncExitStack() as held:
        for _ in range(MAX_CONNECTIONS):
            await held.enter_async_context(stranger(server, copy.user))
        assert await heard(server, copy, []) == ["-ERR 'maximum account active connections exceeded'"]
        assert await heard(server, TEAM_B, []) == ["PONG"]


async def test_a_connection_of_a_subscriber_has_so_many_subscriptions(server: Log, copy: Copy):
    most = [f"SUB _INBOX.{number} {number}" for number in range(LIMITS_OF_COPIES["max_subscriptions"])]
    assert await heard(server, copy, most) == ["PONG"]
    [refused, *_] = await heard(server, copy, [*most, "SUB _INBOX.more more"])
    assert refused == "-ERR 'maximum subscriptions exceeded'"


async def test_a_subscriber_that_reads_nothing_is_cut_off(server: Log, copy: Copy):
    large, number, times = 200_000, 30, 7
    asked = json.dumps({"seq": 1, "batch": 100})
    await write(server, number, body=b'{"x":"%s"}' % (b"x" * large))
    await copied(server)
    question = f"PUB $JS.API.DIRECT.GET.JOBS _INBOX.x {len(asked)}\r\n{asked}\r\n"
    login = {"user": copy.user, "pass": server.copies.users[copy.user], "verbose": False, "headers": True}
    reader, writer = await asyncio.open_connection(HOST, server.copies.port)
    writer.write(f"CONNECT {json.dumps(login)}\r\nSUB _INBOX.x 1\r\n{question * times}".encode())
    # NATS would wait ten seconds for a client that reads, and keep 64 MB for it.
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.sleep(4)
    writer.transport.resume_reading()  # type: ignore[attr-defined]
    got = 0
    async with asyncio.timeout(READY):
        with suppress(ConnectionError):
            while part := await reader.read(2**20):
                got += len(part)
    writer.transport.abort()
    assert got < number * large * times / 2


def test_every_account_has_limits():
    """But for those of the administrator and of the streams, which have no other users."""
    subscribers = dict.fromkeys((ALL.user, TEAM_A.user), "secret")
    for table in (accounts(dict.fromkeys(USERS, "secret")), accounts_of_copies(subscribers)):
        for name, account in table.items():
            users = [user["user"] for user in account.get("users", ())]
            assert (account.get("limits", {}).keys() == {"max_connections", "max_subscriptions"}) == (
                users not in ([], [ADMIN])
            ), name
            # A JetStream without limits has no users whom it serves, or the administrator alone.
            assert name == ACCOUNT or account.get("jetstream", {"max_consumers": 0})["max_consumers"] <= MAX_CONSUMERS
