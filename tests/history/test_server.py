"""What the HTTPS server answers, whatever the front proxy's headers say, and to one tenant beside another."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from services.history import server
from services.history.core import Person, Trust
from services.history.probes import HistoryFigures
from services.history.server import Access, Server
from shared.history_api import PEOPLE, ROOT, Question
from shared.job.events.event import ChangeAttributed
from shared.job.events.watcher import JobDeleting
from shared.process import bounds
from shared.process.bounds import Client, Door, sockets_at
from shared.process.http import BoundedServer
from tests.history.test_answers import log as log  # noqa: PLC0414
from tests.history.test_answers import of
from tests.muster.test_get import Log

RESNET = f"{ROOT}/namespaces/team-a/jobhistories/trainingjob.resnet"


class AllAllowed(Access):
    def __init__(self) -> None:
        self.asked: list[Person] = []
        self.people = True

    async def allows(self, person: Person, question: Question) -> bool:
        self.asked.append(person)
        return self.people or question.part != PEOPLE


class Site:
    """The server without TLS, to which everybody is the front proxy."""

    def __init__(self, log: Log) -> None:
        self.access, self.port = AllAllowed(), 0
        self.server = Server(of(log), self.access, lambda: Trust("an authority"), HistoryFigures())

    async def get(self, head: bytes, path: str = RESNET) -> tuple[int, str]:
        """The status and the body of the answer to a request with these lines in its head."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".encode() + head + b"\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), body.decode()


@pytest.fixture
async def site(log: Log, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr(server, "common_name", lambda _: "front-proxy-client")
    site = Site(log)
    bounded = BoundedServer(site.server.handle, server.HTTPS)

    def known(client: Client) -> asyncio.Protocol:
        client.know()
        return bounded.protocol(client)

    door, sockets = Door(server.HTTPS, known), sockets_at("127.0.0.1", 0)
    await door.open(sockets)
    site.port = sockets[0].getsockname()[1]
    yield site
    await bounded.shutdown(1.0)
    await door.close()


@pytest.mark.parametrize(
    ("head", "words"),
    [
        pytest.param(b"X-Remote-User: \xff\xfe\r\n", "characters that are none", id="no UTF-8"),
        pytest.param(b"X-Remote-User: a\x01b\r\n", "", id="a control character"),
        pytest.param(b"X-Remote-User: \xc2\x85\r\n", "characters that are none", id="a control character beyond ASCII"),
        pytest.param(b"X-Remote-User:\r\n", "name one user", id="empty"),
        pytest.param(b"X-Remote-User: ann\r\nX-Remote-User: bob\r\n", "name one user", id="twice"),
        pytest.param(b"X-Remote-User: " + b"a" * 5000 + b"\r\n", "at most 4096 characters", id="long"),
        pytest.param(b"X-Remote-User: " + b"a" * 100_000 + b"\r\n", "", id="enormous"),
        pytest.param(
            b"X-Remote-User: ann\r\n" + b"".join(b"X-Remote-Group: g%d\r\n" % n for n in range(1001)),
            "in 1000 groups, and not in 1001",
            id="too many groups",
        ),
        pytest.param(b"X-Remote-User: ann\r\nX-Remote-Group: \xff\r\n", "characters that are none", id="a group"),
        pytest.param(
            b"X-Remote-User: ann\r\nX-Remote-Extra-A%ff: 1\r\n", "characters that are none", id="an extra's key"
        ),
        pytest.param(
            b"X-Remote-User: ann\r\nX-Remote-Extra-A: \xff\r\n", "characters that are none", id="an extra's value"
        ),
    ],
)
async def test_a_hostile_header_is_refused_with_a_sentence(site: Site, head: bytes, words: str):
    status, body = await site.get(head)
    assert status == 400
    assert words in (msgspec.json.decode(body)["message"] if words else body)
    assert not site.access.asked


async def test_a_user_may_be_in_as_many_groups_as_the_front_proxy_sends(site: Site):
    groups = tuple(f"group-{number}" for number in range(1000))
    head = "X-Remote-User: ann\r\n" + "".join(f"X-Remote-Group: {group}\r\n" for group in groups)
    status, _ = await site.get(head.encode())
    assert status == 200
    assert site.access.asked[0].groups == groups


async def test_one_tenant_with_more_questions_than_there_are_places_leaves_half_of_them_and_some_to_its_own_users(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    let = asyncio.Event()

    async def allows(person: Person, _: Any) -> bool:
        return person.name in ("bob", f"{account}other") or await let.wait()

    monkeypatch.setattr(site.access, "allows", allows)
    account = "system:serviceaccount:team-a:"
    heads = [f"X-Remote-User: {account}sa-{number % 4}\r\n".encode() for number in range(250)]
    asked = [asyncio.ensure_future(site.get(head)) for head in heads]
    async with asyncio.timeout(20):
        while sum(each.done() for each in asked) < 150:
            await asyncio.sleep(0.01)
        assert {each.result()[0] for each in asked if each.done()} == {429}
        others = await asyncio.gather(*(site.get(b"X-Remote-User: bob\r\n") for _ in range(20)))
        assert {status for status, _ in others} == {200}
        assert (await site.get(f"X-Remote-User: {account}other\r\n".encode()))[0] == 200
        let.set()
        answers = await asyncio.gather(*asked)
    statuses = [status for status, _ in answers]
    # The places of the questions' namespace are another wall.
    assert 50 <= statuses.count(200) <= 100
    assert statuses.count(200) + statuses.count(429) == 250


def test_the_places_of_the_port_are_those_of_all_that_is_asked_at_once_and_of_strangers():
    asked = server.QUESTIONS + server.STREAMS + server.WATCHES
    assert server.HTTPS.connections >= asked + server.HTTPS.strangers


async def test_a_reader_that_takes_no_answer_gives_back_its_place(
    site: Site, log: Log, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bounds, "SLOW_SECONDS", 0.3)
    monkeypatch.setattr(bounds, "LOOK_SECONDS", 0.1)
    body = b"x" * 30_000_000

    async def large(*_: object, **__: object) -> server.Answer:
        return server.Answer(body)

    monkeypatch.setattr(site.server._answers, "answer", large)
    _, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(f"GET {RESNET} HTTP/1.1\r\nHost: x\r\nX-Remote-User: ann\r\n\r\n".encode())
    async with asyncio.timeout(10):
        while not site.server._unsent.taken:
            await asyncio.sleep(0.01)
        status, words = await site.get(b"X-Remote-User: ann\r\n")
        assert (status, "bytes of answers" in words) == (429, True)
        while site.server.waiting or site.server._unsent.taken:
            await asyncio.sleep(0.01)
    writer.transport.abort()


@pytest.mark.parametrize("part", ["events", "why?output=text", "report?output=text", "events?watch=1&timeoutSeconds=1"])
async def test_who_made_a_change_is_told_to_those_who_may_get_the_people(site: Site, log: Log, part: str):
    log.add(JobDeleting(version=90))
    log.add(ChangeAttributed(of=log.journal.events[-1].sequence, user="alice-of-ops"))
    told = {}
    for allowed in (True, False, True):
        site.access.people = allowed
        status, body = await site.get(b"X-Remote-User: ann\r\n", f"{RESNET}/{part}")
        assert status == 200
        told[allowed] = "alice-of-ops" in body
    assert told == {True: True, False: False}
