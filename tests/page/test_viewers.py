"""The page for several people: who is let in, who shares what, and when it is forgotten."""

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from muster.following import Tell
from muster.page import following
from muster.page.following import Kept, View
from muster.page.server import at
from muster.page.viewers import let_in, token_of
from shared.errors import Refused
from shared.eventlog import Stored
from shared.job.events.status import JobFailed
from shared.process.serving import meanwhile
from shared.telling.targets import Asked
from tests.kit.builders import a_running_job
from tests.page.conftest import Memory
from tests.page.test_server import told

RESNET = "api/jobs/team-a/trainingjob/resnet"
MOST = 3
OTHER = {"Sec-Fetch-Site": "cross-site"}


class Person(Memory):
    """The jobs of one token; `known` is what the API server says of it."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self.known = not token.startswith("expired")
        self.lost = self.ended = False
        self.add(f"resnet-of-{token}", *a_running_job(2))
        self.add("resnet", *a_running_job(2))

    async def begin(self) -> None:
        if not self.known:
            raise Refused("the API server does not know this token", reason="Unauthorized")

    async def end(self) -> None:
        self.ended = True

    async def events(
        self, asked: Asked, namespace: str, uid: str, trouble: Tell
    ) -> AsyncGenerator[Sequence[Stored], None]:
        async with aclosing(super().events(asked, namespace, uid, trouble)) as found:
            async for batch in found:
                if self.lost:
                    raise Refused("may not get it", reason="Forbidden")
                yield batch


class Site:
    """A page for several people, and those who came."""

    def __init__(self) -> None:
        self.people: list[Person] = []
        self.views = Kept[tuple[bytes, str], View](MOST, "full")
        self.port = 0

    def seen(self, token: str) -> Person:
        self.people.append(Person(token))
        return self.people[-1]

    def get(self, session: aiohttp.ClientSession, path: str, token: str, headers: dict[str, str] | None = None) -> Any:
        given = {"Authorization": f"Bearer {token}"} if token else {}
        return session.get(
            f"http://127.0.0.1:{self.port}/{path}", headers=given | (headers or {}), allow_redirects=False
        )


@pytest_asyncio.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    runners: list[web.AppRunner] = []

    def opened(runner: web.AppRunner) -> web.BaseSite:
        runners.append(runner)
        return web.TCPSite(runner, "127.0.0.1", 0)

    async with at(let_in(made.seen, made.views), opened):
        made.port = runners[0].addresses[0][1]
        yield made
    await made.views.close()
    assert all(person.ended for person in made.people)


@pytest_asyncio.fixture
async def browser() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def basic(words: str) -> str:
    return "Basic " + base64.b64encode(words.encode()).decode()


@pytest.mark.parametrize(
    ("header", "token"),
    [
        pytest.param("Bearer abc.d_e-f", "abc.d_e-f", id="of a proxy"),
        pytest.param("bearer abc==", "abc==", id="in other letters"),
        pytest.param(basic("me:abc.def"), "abc.def", id="as a password"),
        pytest.param(basic(":abc"), "abc", id="as a password without a name"),
        pytest.param("", "", id="none"),
        pytest.param("Bearer ", "", id="an empty one"),
        pytest.param("Bearer a b", "", id="two words"),
        pytest.param(basic("me:a\r\nImpersonate-User: admin"), "", id="another header within"),
        pytest.param("Basic %%%", "", id="no base64"),
        pytest.param("Basic /w==", "", id="no text"),
        pytest.param("Digest abc", "", id="another scheme"),
    ],
)
def test_a_token_comes_from_a_proxy_or_as_a_password(header: str, token: str):
    assert token_of(header) == token


@pytest.mark.parametrize(
    ("path", "token", "headers", "status"),
    [
        pytest.param("-/", "alice", {}, 200, id="with a token"),
        pytest.param("team-a/fleet", "alice", {}, 200, id="of one namespace"),
        pytest.param("", "alice", {}, 302, id="to all namespaces"),
        pytest.param("-/", "", {}, 401, id="without a token"),
        pytest.param("-/static/page.js", "", {}, 401, id="a script without a token"),
        pytest.param("-/", "expired", {}, 401, id="a token that the API server does not know"),
        pytest.param("Team_A/", "alice", {}, 404, id="no namespace"),
        pytest.param(f"-/{RESNET}", "alice", OTHER | {"Sec-Fetch-Mode": "cors"}, 403, id="a script of another site"),
        pytest.param("-/", "alice", OTHER | {"Sec-Fetch-Mode": "navigate"}, 200, id="a link from another site"),
    ],
)
async def test_who_has_a_token_is_let_in(
    site: Site, browser: aiohttp.ClientSession, path: str, token: str, headers: dict[str, str], status: int
):
    async with site.get(browser, path, token, headers) as answer:
        assert answer.status == status
        assert (status == 401) == ("WWW-Authenticate" in answer.headers)
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]


async def test_each_token_has_what_was_read_with_it_alone(site: Site, browser: aiohttp.ClientSession):
    for token in ("alice", "bob", "alice"):
        async with site.get(browser, "team-a/api/jobs", token) as answer:
            rows = (await told(answer))["rows"]
            assert {row["name"] for row in rows} == {"resnet", f"resnet-of-{token}"}
    assert len(site.people) == 2


async def test_those_used_last_are_kept_and_nobody_loses_what_is_read(site: Site, browser: aiohttp.ClientSession):
    async with site.get(browser, "-/api/jobs", "alice") as stream:
        await told(stream)
        for number in range(MOST):
            async with site.get(browser, "-/", f"other-{number}") as answer:
                assert answer.status == 200
        assert [person.ended for person in site.people] == [False, True, False, False]
        streams = [await site.get(browser, "-/api/jobs", f"other-{number}") for number in (1, 2)]
        async with site.get(browser, "-/", "one-more") as answer:
            assert (answer.status, await answer.json()) == (429, {"error": "full"})
        for each in streams:
            each.close()


async def test_a_job_that_may_be_read_no_more_is_not_told_from_memory(site: Site, browser: aiohttp.ClientSession):
    async with site.get(browser, f"-/{RESNET}/news", "alice") as news:
        assert (await told(news))["trouble"] == ""
        [alice] = site.people
        alice.lost = True
        alice.add("resnet", JobFailed(reason="Crash", message="too hot"))
        assert (await told(news))["trouble"] == "may not get it"
        async with site.get(browser, f"-/{RESNET}", "alice") as answer:
            assert answer.status == 403


async def test_what_nobody_reads_is_closed(site: Site, browser: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(following, "IDLE_SECONDS", 0.01)
    async with site.get(browser, "-/api/jobs", "alice") as stream:
        await told(stream)
        async with site.get(browser, "-/", "bob") as answer:
            assert answer.status == 200
        alice, bob = site.people
        async with meanwhile(site.views.rest()), asyncio.timeout(10):
            while not bob.ended:
                await asyncio.sleep(0.01)
        assert not alice.ended
