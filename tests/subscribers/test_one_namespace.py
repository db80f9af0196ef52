"""A reader of one namespace: each user and each question about another namespace, tried on a real server."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from shared.eventlog import api
from shared.eventlog.account import ADMIN, Copy
from tests.kit.nats import READY, at
from tests.kit.subscribers import TEAM_A, TEAM_B, Log, a_log_for_subscribers, stranger, write

pytestmark = [pytest.mark.nats, pytest.mark.attack("the password of a subscriber at NATS", "the log")]

SECRET = b"team-b"
HEARD_SECONDS = 3.0
"""Those of the page: a feed that has nothing to tell says so each second."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Log]:
    async with a_log_for_subscribers(tmp_path) as server:
        await write(server, 3, "team-a")
        await write(server, 3, "team-b")
        async with stranger(server, TEAM_B.user) as client:
            await client.jetstream().pull_subscribe("jobs.team-b.>", durable="theirs")
        yield server


async def asked(client: Client, request: str, body: Any = None) -> bytes:
    """All answers within a moment; an answer that never comes is empty, as is a refused request."""
    inbox, found = client.new_inbox(), []
    subscription = await client.subscribe(inbox)
    await client.publish(f"$JS.API.{request}", b"" if body is None else json.dumps(body).encode(), reply=inbox)
    try:
        while True:
            message = await subscription.next_msg(timeout=0.3)
            found.append(message.subject.encode() + message.data + str(message.headers).encode())
    except NatsError:
        return b"".join(found)


QUESTIONS: dict[str, tuple[str, Any]] = {
    "the stream and its subjects": ("STREAM.INFO.JOBS", {"subjects_filter": ">"}),
    "all streams": ("STREAM.LIST", None),
    "the names of streams by subject": ("STREAM.NAMES", {"subject": "jobs.team-b.>"}),
    "an event by its sequence": ("STREAM.MSG.GET.JOBS", {"seq": 6}),
    "the next event of a subject": ("STREAM.MSG.GET.JOBS", {"seq": 1, "next_by_subj": "jobs.team-b.>"}),
    "the last event of a subject": ("STREAM.MSG.GET.JOBS", {"last_by_subj": "jobs.team-b.>"}),
    "a direct get": ("DIRECT.GET.JOBS", {"seq": 6}),
    "many direct gets": ("DIRECT.GET.JOBS", {"seq": 1, "batch": 10, "next_by_subj": "jobs.team-b.>"}),
    "the last of many subjects": ("DIRECT.GET.JOBS", {"multi_last": ["*.team-b.>"], "batch": 10}),
    "all consumers": ("CONSUMER.LIST.JOBS", None),
    "the names of consumers": ("CONSUMER.NAMES.JOBS", None),
    "their consumer": ("CONSUMER.INFO.JOBS.theirs", None),
    "the next event of their consumer": ("CONSUMER.MSG.NEXT.JOBS.theirs", None),
    "the end of their consumer": ("CONSUMER.DELETE.JOBS.theirs", None),
    "the state of the account": ("INFO", None),
}


async def test_no_answer_tells_of_another_namespace(server: Log):
    async with stranger(server, TEAM_A.user) as client:
        for question, (request, body) in QUESTIONS.items():
            answer = await asked(client, request, body)
            assert SECRET not in answer, question
            assert b"theirs" not in answer.replace(request.encode(), b""), question
    async with stranger(server, TEAM_B.user) as client:
        assert (await client.jetstream().consumer_info("JOBS", "theirs")).name == "theirs"


async def test_a_consumer_of_everything_delivers_the_events_of_the_copy(server: Log):
    for copy, delivered in ((TEAM_A, {"team-a"}), (TEAM_B, {"team-b"}), (Copy(), {"team-a", "team-b"})):
        async with stranger(server, copy.user) as client:
            events = await client.jetstream().subscribe(">", ordered_consumer=True)
            await write(server, 1, "team-a")
            await write(server, 1, "team-b")
            namespaces: set[str] = set()
            with suppress(NatsError):
                while True:
                    namespaces.add((await events.next_msg(timeout=1)).subject.split(".")[1])
            # The genesis is about no namespace.
        assert namespaces - {"none"} == delivered


async def is_refused(client: Client, attempt: Awaitable[object], what: str) -> None:
    refused = asyncio.get_running_loop().create_future()

    async def complaint(error: Exception) -> None:
        if not refused.done():
            refused.set_result(str(error))

    client._error_cb = complaint
    await attempt
    said = (await asyncio.wait_for(refused, READY)).lower()
    assert "permissions violation" in said, what
    assert what.lower() in said


async def test_a_subscription_beside_the_copy_is_refused(server: Log):
    async with stranger(server, TEAM_A.user) as client:
        for subject in (">", "*.team-b.>", "jobs.>", "stored.>", "copied.>", "$JS.>", "$KV.>", "_INBOX_reader.>"):
            await is_refused(client, client.subscribe(subject), f'subscription to "{subject}"')


async def test_what_is_sent_to_the_inbox_of_another_account_does_not_arrive(server: Log):
    async with stranger(server, TEAM_A.user) as ours, stranger(server, TEAM_B.user) as theirs:
        heard = await ours.subscribe("_INBOX.>")
        events = await theirs.jetstream().subscribe(">", ordered_consumer=True)
        await events.next_msg(timeout=READY)
        with pytest.raises(NatsError):
            await heard.next_msg(timeout=0.5)


async def unheard(client: Client) -> float:
    """The seconds since the copy heard of the log, as its reader is told; below 0 if it never did."""
    info = json.loads((await client.request("$JS.API.STREAM.INFO.JOBS", timeout=READY)).data)
    return float(info["mirror"]["active"]) / 1e9


async def test_a_reader_sees_that_its_copy_is_no_longer_fed(server: Log):
    """`docs/events.md` says how: by the stream's own information, and from other namespaces nothing."""
    async with stranger(server, TEAM_A.user) as client:
        async with asyncio.timeout(READY):
            while not 0 <= await unheard(client) <= HEARD_SECONDS:
                await asyncio.sleep(0.1)
        async with at(server, ADMIN) as admin:
            await api.call(admin, f"CONSUMER.DELETE.JOBS.{TEAM_A.feed}", None, dict, prefix=TEAM_A.source)
        began = time.monotonic()
        async with asyncio.timeout(READY):
            while 0 <= await unheard(client) <= HEARD_SECONDS:
                await asyncio.sleep(0.1)
        # The busy machine of the test may take a part of a second for each look.
        assert time.monotonic() - began < HEARD_SECONDS + 2
