"""Attacks with a stolen password of NATS, of the reader or of a service: what counts is what the server holds then.

The sender ignores every refusal and goes on.
"""

import asyncio
import json
from contextlib import aclosing, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from shared.errors import Trouble
from shared.eventlog import MAX_BODY, api
from shared.eventlog.account import ADMIN, AUDIT, AUTHORS, HEADS, HISTORY, LEASES, READER, STREAM
from shared.eventlog.connection import Connection
from shared.eventlog.server import NatsServer, configuration
from shared.eventlog.setup import set_up
from shared.eventlog.streams import STREAMS
from tests.kit.nats import READY, a_decision, a_namespace, at, connected

pytestmark = pytest.mark.nats

THIEVES = (READER, HISTORY, AUDIT, *AUTHORS)
NOTICED = 5.0
"""Seconds in which a reader gets an event, whatever another user does."""
QUESTIONS = (
    "STREAM.INFO.JOBS",
    "STREAM.INFO.KV_LEASES",
    "STREAM.INFO.KV_HEADS",
    "STREAM.MSG.GET.JOBS",
    "STREAM.MSG.GET.KV_LEASES",
    "DIRECT.GET.JOBS",
    "DIRECT.GET.JOBS.jobs.>",
    "CONSUMER.CREATE.JOBS.mine",
    "INFO",
)
"""Requests of JetStream that answer to a subject of the sender's choice."""


async def _tried(connection: Connection, subject: str, body: bytes, reply: str = "") -> None:
    """Send it, and wait until the server has looked at it."""
    with suppress(Trouble):
        await connection.send(subject, body, reply=reply)
    await connection._client.flush()


class _Held(NamedTuple):
    """What a stream holds."""

    sequence: int
    consumers: int


async def _held(server: NatsServer, thief: str) -> dict[str, _Held]:
    """By stream, once everything that the thief sent before is done."""
    async with at(server, thief) as connection:
        # Behind the thief's own requests in the queues of the server, and then behind their answers in each stream.
        await api.stream_info(connection, STREAM)
        await connection.request("$JS.API.DIRECT.GET.JOBS", b'{"seq":1}', timeout=READY)
    async with at(server, ADMIN) as admin:
        found = {}
        for name, subject in zip(STREAMS, ("facts.a.b.c.setup.Last", "$KV.LEASES.last", "$KV.HEADS.last"), strict=True):
            last = await api.publish(admin, subject, b"", {})
            state = (await api.call(admin, f"STREAM.INFO.{name}", None, dict))["state"]
            found[name] = _Held(last.seq, state["consumer_count"])
        return found


async def _changes(server: NatsServer, thief: str, before: dict[str, _Held]) -> dict[str, _Held]:
    """By stream, how many messages and consumers it has more than `before`; nothing of a stream that is as it was."""
    now = await _held(server, thief)
    grown = {
        name: _Held(now[name].sequence - was.sequence - 1, now[name].consumers - was.consumers)
        for name, was in before.items()
    }
    return {name: more for name, more in grown.items() if more != (0, 0)}


def _foreign(user: str, namespace: str) -> list[str]:
    """Subjects under which others write."""
    job = f"{namespace}.resnet.u-1"
    others = [author for author in (*AUTHORS, "setup") if author != user]
    subjects = [f"{family}.{job}.{author}.Forged" for family in ("facts", "jobs") for author in others]
    subjects += [f"$KV.LEASES.{author}" for author in others]
    return subjects if user == "status" else [*subjects, f"$KV.HEADS.{namespace}"]


@pytest.mark.attack("the password of a service, or of the reader, at NATS", "events, leases and heads of others")
@pytest.mark.parametrize("thief", THIEVES)
async def test_no_answer_to_a_request_is_stored(nats_server: NatsServer, thief: str):
    """The reply subject of a request is an event, a lease or a head of somebody else."""
    targets = _foreign(thief, a_namespace())
    before = await _held(nats_server, thief)
    async with at(nats_server, thief) as connection:
        for question in QUESTIONS:
            for target in targets:
                await _tried(connection, f"$JS.API.{question}", b'{"seq":1,"next_by_subj":">","batch":3}', target)
        for target in targets:
            await _tried(connection, "$SYS.REQ.USER.INFO", b"", target)
    assert await _changes(nats_server, thief, before) == {}


@pytest.mark.attack("the password of a service, or of the reader, at NATS", "events, leases and heads of others")
@pytest.mark.parametrize("thief", AUTHORS)
async def test_no_acknowledgement_is_stored(nats_server: NatsServer, thief: str):
    namespace = a_namespace()
    targets = _foreign(thief, namespace)
    before = await _held(nats_server, thief)
    async with at(nats_server, thief) as connection:
        for target in targets:
            await _tried(connection, f"facts.{namespace}.resnet.u-1.{thief}.Own", b"{}", target)
    assert await _changes(nats_server, thief, before) == {"JOBS": (len(targets), 0)}


@pytest.mark.attack("the password of a service, or of the reader, at NATS", "the start of every service")
@pytest.mark.parametrize("thief", THIEVES)
async def test_no_user_makes_a_consumer(nats_server: NatsServer, thief: str):
    """A thousand of them kept every service from starting; one that pushes writes where it is told."""
    before = await _held(nats_server, thief)
    async with at(nats_server, thief) as connection:
        for number in range(990):
            config = {"durable_name": f"c{number}", "ack_policy": "none"}
            request = json.dumps({"stream_name": "JOBS", "config": config}).encode()
            with suppress(Trouble):
                await connection.send(f"$JS.API.CONSUMER.CREATE.JOBS.c{number}", request, reply="nowhere")
        for number, target in enumerate(_foreign(thief, a_namespace())):
            config = {"name": f"p{number}", "deliver_subject": target, "ack_policy": "none", "deliver_policy": "all"}
            request = json.dumps({"stream_name": "JOBS", "config": config}).encode()
            for form in (f"CREATE.JOBS.p{number}", "CREATE.JOBS", f"DURABLE.CREATE.JOBS.p{number}"):
                await _tried(connection, f"$JS.API.CONSUMER.{form}", request, "nowhere")
    assert await _changes(nats_server, thief, before) == {}


@pytest.mark.attack("the password of a service, or of the reader, at NATS", "what a service reads")
@pytest.mark.parametrize("thief", THIEVES)
async def test_no_reader_is_blinded(nats_server: NatsServer, thief: str):
    """The thief filters every consumer that is there to nothing, and sends the victim's account events of its own."""
    namespace = a_namespace()
    victim = "scheduler" if thief != "scheduler" else "status"
    async with (
        connected(nats_server, victim) as log,
        connected(nats_server, "scheduler") as writer,
        at(nats_server, ADMIN) as admin,
        at(nats_server, thief) as connection,
        aclosing(log.read(after=await log.end())) as batches,
    ):
        await anext(batches)
        for name in (await api.call(admin, "CONSUMER.NAMES.JOBS", None, dict))["consumers"] or []:
            config = {
                "name": name,
                "ack_policy": "none",
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": await writer.end() + 1,
                "mem_storage": True,
                "num_replicas": 1,
                "inactive_threshold": 60_000_000_000,
                "filter_subject": "facts.nothing.>",
            }
            request = json.dumps({"stream_name": "JOBS", "config": config}).encode()
            await _tried(connection, f"$JS.API.CONSUMER.CREATE.JOBS.{name}", request, "nowhere")
        for reply in (f"stored.jobs.{namespace}.a.u-1.watcher.Forged", f"_INBOX_{victim}.x"):
            await _tried(connection, "$JS.API.DIRECT.GET.JOBS", b'{"seq":1}', reply)
        sequence = await writer.append(a_decision(namespace), expect=0)
        async with asyncio.timeout(NOTICED):
            assert [event.sequence for event in (await anext(batches)).events] == [sequence]


@pytest.mark.attack("the password of a service, or of the reader, at NATS", "room in the log")
@pytest.mark.parametrize("thief", AUTHORS)
async def test_a_message_is_no_larger_than_an_event_or_a_lease(nats_server: NatsServer, thief: str):
    before = await _held(nats_server, thief)
    async with at(nats_server, thief) as connection:
        large = {f"facts.{a_namespace()}.a.u-1.{thief}.Large": 2 * MAX_BODY, f"$KV.LEASES.{thief}.large": 8 * 1024}
        if thief == "status":
            large["$KV.HEADS.large"] = 8 * 1024
        for subject, size in large.items():
            await _tried(connection, subject, b"x" * size)
    assert await _changes(nats_server, thief, before) == {}


@pytest.mark.attack("the password of a service, or of the reader, at NATS", "room in the log")
@pytest.mark.parametrize("thief", AUTHORS)
async def test_a_log_that_a_service_fills_takes_leases_and_heads(tmp_path: Path, thief: str):
    """With the share of the disk that the chart gives to the log."""
    users = NatsServer(tmp_path).users
    stores = configuration(tmp_path, 0, users)["jetstream"] | {"max_file_store": 90 * 1024 * 1024}
    async with NatsServer(tmp_path, more={"jetstream": stores}) as server:
        await set_up(server.url, password=users[ADMIN], max_bytes=10 * 1024 * 1024)
        async with at(server, thief) as connection:
            with pytest.raises(Trouble, match="the log is full"):
                await _flood(connection, thief)
        for author in AUTHORS:
            async with connected(server, author) as log:
                leases = await log.bucket(LEASES)
                revision = await leases.put(author, b"me", expect=0, ttl=5)
                await leases.put(author, b"me", expect=revision, ttl=5)
        async with connected(server, "status") as log:
            await (await log.bucket(HEADS)).put("a", b"7:abc")


async def _flood(connection: Connection, author: str) -> None:
    for number in range(100):
        await api.publish(connection, f"facts.a.b.u-{number}.{author}.Flood", b"x" * MAX_BODY, {}, timeout=READY)
