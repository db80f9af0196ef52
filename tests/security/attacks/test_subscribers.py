"""Attacks with a namespace's subscriber password on the resources of NATS: the log and its services do not notice.

`MUSTER_ATTACK_SECONDS=600` attacks for longer.
"""

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from nats.errors import Error as NatsError

from shared.eventlog import api
from shared.eventlog.account import LOG_API, STREAM
from shared.ports import HOST
from tests.kit.nats import READY, a_decision, connected
from tests.kit.subscribers import TEAM_A, Log, a_log_for_subscribers, stranger, write

pytestmark = [
    pytest.mark.nats,
    pytest.mark.attack("the password of a subscriber at NATS", "the log"),
]

SECONDS = float(os.environ.get("MUSTER_ATTACK_SECONDS", "5"))
EVENTS, BODY = 5000, b'{"padding":"%s"}' % (b"x" * 1000)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Log]:
    async with a_log_for_subscribers(tmp_path) as server:
        await write(server, EVENTS, body=BODY)
        yield server


async def resets(server: Log) -> None:
    """A hundred push consumers that send all events to the request that resets the feed of their copy, made anew."""
    target = TEAM_A.reset.replace("$JS.API", LOG_API)
    config = {"deliver_subject": target, "ack_policy": "none", "deliver_policy": "all", "mem_storage": True}
    async with stranger(server, TEAM_A.user) as client:
        while True:
            for number in range(100):
                request = json.dumps({"stream_name": STREAM, "config": {"name": f"c{number}", **config}}).encode()
                for verb, body in (("CREATE", request), ("DELETE", b"")):
                    with suppress(NatsError):
                        await client.request(f"$JS.API.CONSUMER.{verb}.{STREAM}.c{number}", body, timeout=0.3)
                    await asyncio.sleep(0.02)


async def names(server: Log) -> None:
    """Requests without end to what all subscribers share."""
    async with stranger(server, TEAM_A.user) as one, stranger(server, TEAM_A.user) as two:
        while True:
            for client in (one, two):
                for _ in range(500):
                    await client.publish("$JS.API.STREAM.NAMES", b"", reply="_INBOX.nobody")
                await client.flush(timeout=READY)


async def unread(server: Log) -> None:
    """Many connections that ask for everything and read nothing."""
    copies, user = server.copies, TEAM_A.user
    hello = json.dumps({"verbose": False, "user": user, "pass": copies.users[user], "headers": True}).encode()
    ask = json.dumps({"batch": EVENTS, "next_by_subj": ">", "seq": 1}).encode()
    request = b"PUB $JS.API.DIRECT.GET.%s _INBOX.x %d\r\n%s\r\n" % (STREAM.encode(), len(ask), ask)
    while True:
        with ExitStack() as held:
            for _ in range(150):
                one = held.enter_context(socket.create_connection((HOST, copies.port)))
                one.sendall(b"CONNECT %s\r\nSUB _INBOX.x 1\r\n%sPING\r\n" % (hello, request * 40))
            await asyncio.sleep(3)


class Felt(NamedTuple):
    """What the log's users feel."""

    memory: float
    """The most mebibytes of the log's server."""
    asked: float
    """Seconds for a question about the stream, of the slowest twentieth the fastest."""
    appended: float
    """Seconds for an append, likewise."""


async def felt(server: Log, seconds: float) -> Felt:
    memory, asked, appended = 0.0, [], []
    until = time.monotonic() + seconds
    async with connected(server) as log:
        number = 0
        job = f"job-{time.monotonic_ns()}"
        sequence = 0
        while time.monotonic() < until:
            began = time.monotonic()
            await api.stream_info(log.connection, STREAM)
            asked.append(time.monotonic() - began)
            began, number = time.monotonic(), number + 1
            sequence = await log.append(a_decision("team-b", number, job=job), expect=sequence)
            appended.append(time.monotonic() - began)
            memory = max(memory, _memory(server.pid))
            await asyncio.sleep(0.05)
    return Felt(memory, _slow(asked), _slow(appended))


def _slow(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.95)]


def _memory(pid: int) -> float:
    fields = dict(line.split(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


@asynccontextmanager
async def attacked(work: Callable[[Log], Coroutine[Any, Any, None]], server: Log) -> AsyncIterator[None]:
    async def on() -> None:
        while True:
            with suppress(NatsError, OSError, asyncio.TimeoutError):
                await work(server)
            await asyncio.sleep(0.1)

    task = asyncio.create_task(on())
    try:
        await asyncio.sleep(1)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("attack", [resets, names, unread])
async def test_the_log_does_not_notice(server: Log, attack: Callable[[Log], Coroutine[Any, Any, None]]):
    quiet = await felt(server, 2)
    async with attacked(attack, server):
        under = await felt(server, SECONDS)
        copies = _memory(server.copies.pid)
    print(attack.__name__, "quiet", quiet, "under", under, "copies", copies)
    assert under.memory <= 2 * quiet.memory
    # A machine that is busy with the attacker takes longer, too.
    assert under.asked < 1
    assert under.appended < 1
