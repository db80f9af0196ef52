"""The page for several people: who is let in, who shares what, and when it is forgotten."""

import asyncio
import base64
import ssl
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from muster.following import Tell
from muster.page import following, server, viewers
from muster.page.following import Kept, Places, Table, View
from muster.page.server import running
from muster.page.viewers import HTTPS, REQUESTS_OF_ONE, TokenAccess, Tokens, let_in, once, token_of
from shared.cluster.kube import KubeCluster
from shared.errors import Refused
from shared.eventlog import Stored
from shared.flow import Shares
from shared.job.events.status import JobFailed
from shared.process import serving
from shared.process.serving import Certificate, listening, meanwhile
from shared.process.settings import HttpsPort, Settings
from shared.telling.shown import Shown
from shared.telling.targets import Asked
from tests.cluster.test_kubeconfig import a_server_that_asks_for_certificates, write
from tests.kit.builders import a_running_job
from tests.page.conftest import Memory
from tests.page.test_server import told
from tests.security.authority import Authority

RESNET = "api/jobs/team-a/trainingjob/resnet"
MOST, MOST_OF_ONE = 3, 2
UNVERIFIED = ssl._create_unverified_context()  # noqa: S323
OTHER = {"Sec-Fetch-Site": "cross-site"}


class Person(Memory):
    """The jobs of one token."""

    def __init__(self, token: str, tokens: Tokens) -> None:
        super().__init__()
        self.lost = self.ended = False
        self._token, self._tokens = token, tokens
        self.add(f"resnet-of-{token}", *a_running_job(2))
        self.add("resnet", *a_running_job(2))

    async def must_be_known(self) -> None:
        await self._tokens.must_be_known(self._token)

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
        self.expired: set[str] = set()
        self.asked: list[str] = []
        """The tokens that the API server was asked about; `bob-2` is another token of `bob`."""
        self.answering = asyncio.Event()
        self.answering.set()
        self.tokens = Tokens(self._user)
        self.views = Kept[tuple[bytes, str], View](Places(MOST, MOST_OF_ONE), "full")
        self.port = 0

    async def _user(self, token: str) -> str:
        self.asked.append(token)
        await self.answering.wait()
        if token in self.expired or token.startswith("expired"):
            raise Refused("who is it", reason="Unauthorized")
        return token.partition("-")[0]

    def seen(self, token: str) -> Person:
        self.people.append(Person(token, self.tokens))
        return self.people[-1]

    def get(self, session: aiohttp.ClientSession, path: str, token: str, headers: dict[str, str] | None = None) -> Any:
        given = {"Authorization": f"Bearer {token}"} if token else {}
        return session.get(
            f"https://127.0.0.1:{self.port}/{path}", headers=given | (headers or {}), allow_redirects=False, ssl=False
        )


@pytest_asyncio.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    # A stream notices at its next beat that its browser has gone.
    monkeypatch.setattr(serving, "END_SECONDS", 0.1)
    made, shown = Site(), Authority(tmp_path).issue("page")
    certificate = Certificate("page", HttpsPort(cert=shown.certificate, key=shown.key))
    async with (
        running(let_in(made.seen, made.tokens, made.views)) as runner,
        listening(once(runner), HTTPS, certificate) as port,
    ):
        made.port = port
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
            while not (rows := (await told(answer))["rows"]):
                pass
            assert {row["name"] for row in rows} == {"resnet", f"resnet-of-{token}"}
    assert len(site.people) == 2


async def test_those_used_last_are_kept_and_nobody_loses_what_is_read(site: Site, browser: aiohttp.ClientSession):
    async with site.get(browser, "-/api/jobs", "alice") as stream:
        await told(stream)
        for other in ("bob", "carol", "dave"):
            async with site.get(browser, "-/", other) as answer:
                assert answer.status == 200
        assert [person.ended for person in site.people] == [False, True, False, False]
        streams = [await site.get(browser, "-/api/jobs", other) for other in ("carol", "dave")]
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
        assert (await news.content.read()).strip() == b"", "a stream of which no more comes ends"
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


async def test_a_job_whose_tab_was_closed_has_no_reader_at_once(site: Site, browser: aiohttp.ClientSession):
    async with site.get(browser, f"-/{RESNET}/news", "alice") as stream:
        await told(stream)
        [(_, view), *_] = site.views._things.values()
        [(_, job)] = view._bounds.jobs._things.values()
        assert (view.readers, job.readers) == (1, 1)
    async with asyncio.timeout(following.BEAT_SECONDS / 3):
        while view.readers or job.readers:
            await asyncio.sleep(0.05)


async def test_what_makes_room_is_closed_whole_though_its_browser_leaves(
    site: Site, browser: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
):
    ends = asyncio.Event()
    end = Person.end

    async def slow(person: Person) -> None:
        await ends.wait()
        await end(person)

    for token in ("alice", "bob", "carol"):
        assert await status_of(site, browser, token) == 200
    monkeypatch.setattr(Person, "end", slow)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await status_of(site, browser, "dave")
    asking = asyncio.create_task(status_of(site, browser, "erin"))
    # Once the server knows of erin, it knows that dave has left.
    while "erin" not in site.asked:
        await asyncio.sleep(0.01)
    ends.set()
    assert await asking == 200
    assert site.people[0].ended


async def test_one_user_takes_a_few_places_whatever_the_tokens_and_namespaces(
    site: Site, browser: aiohttp.ClientSession
):
    streams = [await site.get(browser, f"team-{number}/api/jobs", f"bob-{number}") for number in range(MOST_OF_ONE)]
    for each in streams:
        await told(each)
    async with site.get(browser, "team-x/", "bob-3") as answer:
        assert (answer.status, await answer.json()) == (429, {"error": "full"})
    async with site.get(browser, "-/", "alice") as answer:
        assert answer.status == 200
    async with site.get(browser, "team-x/", "bob-3") as answer:
        assert answer.status == 429
    assert not site.people[-1].ended, "what another one has makes no room"
    for each in streams:
        each.close()


async def test_a_job_that_nobody_reads_makes_room_for_one_of_another_view(site: Site, browser: aiohttp.ClientSession):
    assert await status_of(site, browser, "alice") == 200
    for number in range(viewers.JOBS_OF_ONE):
        site.people[0].add(f"job-{number}", *a_running_job(2))
        assert await status_of(site, browser, "alice", f"api/jobs/team-a/trainingjob/job-{number}") == 200
    async with site.get(browser, f"team-a/{RESNET}", "alice") as answer:
        assert answer.status == 200
    [(_, view), *_] = site.views._things.values()
    assert len(view._bounds.jobs._things) == viewers.JOBS_OF_ONE
    # The third view takes the place of the first, whose jobs are closed with it.
    async with site.get(browser, "team-b/", "alice") as answer:
        assert answer.status == 200
    assert len(view._bounds.jobs._things) == 1


async def test_a_closed_tab_makes_room_for_the_events_of_another_one_at_once(
    site: Site, browser: aiohttp.ClientSession
):
    assert await status_of(site, browser, "alice") == 200
    [(_, view), *_] = site.views._things.values()
    room = view._bounds.events
    async with site.get(browser, "-/api/jobs/team-a/trainingjob/resnet-of-alice/news", "alice") as news:
        await told(news)
        # Half of the room may be one person's, and the jobs are equally large.
        one = room.taken
        room.limit = one * 5 // 2
        async with site.get(browser, f"-/{RESNET}", "alice") as answer:
            assert (answer.status, await answer.json()) == (429, {"error": following.FULL})
    async with asyncio.timeout(following.BEAT_SECONDS):
        while await status_of(site, browser, "alice", RESNET) != 200:
            await asyncio.sleep(0.05)
    assert await status_of(site, browser, "bob", RESNET) == 200
    assert room.taken == one, "a job that nobody reads makes room for one of another person"
    room.limit = one * 9 // 2
    for path in (RESNET, "api/jobs/team-a/trainingjob/resnet-of-alice"):
        assert await status_of(site, browser, "alice", path) == 200
    assert [whose for whose, _ in view._bounds.jobs._things.values()] == ["bob", "alice"], "that of another one last"
    await view._bounds.jobs.close()
    assert room.taken == 0


async def test_a_job_without_a_reader_that_grows_beyond_the_room_ends(site: Site, browser: aiohttp.ClientSession):
    async with site.get(browser, "-/api/jobs/team-a/trainingjob/resnet-of-alice/news", "alice") as news:
        await told(news)
        assert await status_of(site, browser, "alice", RESNET) == 200
        [(_, view), *_] = site.views._things.values()
        _, (_, job) = view._bounds.jobs._things.values()
        view._bounds.events.limit = 2 * view._bounds.events.taken
        site.people[0].add("resnet", JobFailed(reason="Crash", message="too hot"))
        async with asyncio.timeout(5):
            while not job.over:
                await asyncio.sleep(0.01)
        assert job.news.trouble == following.FULL


async def test_a_job_too_large_for_one_user_takes_no_room_and_says_what_shows_it(
    site: Site, browser: aiohttp.ClientSession
):
    assert await status_of(site, browser, "alice", RESNET) == 200
    [(_, view), *_] = site.views._things.values()
    room = view._bounds.events
    room.limit = 3 * (small := room.taken)
    site.people[0].add("large", *a_running_job(2), JobFailed(reason="Crash", message="x" * small))
    async with site.get(browser, "-/api/jobs/team-a/trainingjob/large", "alice") as answer:
        assert (answer.status, await answer.json()) == (413, {"error": following.TOO_LARGE})
    assert room.taken == small, "the job that nobody reads stays: without it the large one would not fit either"


async def test_one_user_has_some_requests_under_way(site: Site, browser: aiohttp.ClientSession):
    streams = [await site.get(browser, "-/api/jobs", "bob") for _ in range(REQUESTS_OF_ONE)]
    for token, status in (("bob", 429), ("alice", 200)):
        async with site.get(browser, "-/", token) as answer:
            assert answer.status == status
    for each in streams:
        each.close()


async def test_a_refused_token_takes_no_place_and_is_not_asked_about_again(site: Site, browser: aiohttp.ClientSession):
    for _ in range(5):
        async with site.get(browser, "team-a/", "expired") as answer:
            assert answer.status == 401
    assert (site.asked, site.people) == (["expired"], [])


async def test_few_tokens_of_one_address_are_checked_at_once(site: Site, browser: aiohttp.ClientSession):
    site.answering.clear()
    asking = [asyncio.create_task(status_of(site, browser, f"expired-{number}")) for number in range(viewers.CHECKS)]
    done, _ = await asyncio.wait(asking, timeout=2)
    assert len(site.asked) == viewers.CHECKS // 2
    assert {each.result() for each in done} == {429}
    site.answering.set()
    assert sorted(await asyncio.gather(*asking)) == sorted([401, 429] * (viewers.CHECKS // 2))


async def status_of(site: Site, browser: aiohttp.ClientSession, token: str, path: str = "") -> int:
    async with site.get(browser, f"-/{path}", token) as answer:
        return int(answer.status)


async def test_a_stream_ends_when_its_token_does(
    site: Site, browser: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(following, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(site.tokens._known, "_seconds", 0.2)
    async with site.get(browser, "-/api/jobs", "alice") as stream, asyncio.timeout(10):
        await told(stream)
        site.expired.add("alice")
        await stream.content.read()
    async with site.get(browser, "-/", "alice") as answer:
        assert answer.status == 401


async def test_answers_about_jobs_take_turns_and_a_slow_reader_loses_its_own(
    site: Site, browser: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server, "SEND_SECONDS", 1.0)
    monkeypatch.setattr(server, "SEND_RATE", 2**22)
    async with site.get(browser, "-/api/jobs", "alice") as stream:
        await told(stream)
        site.people[0].add("large", *a_running_job(2), JobFailed(reason="Crash", message="x" * 2**24))
        large = "-/api/jobs/team-a/trainingjob/large/events"
        slow = [await asyncio.open_connection("127.0.0.1", site.port, ssl=UNVERIFIED) for _ in range(following.OF_ONE)]
        for _, writer in slow:
            writer.write(f"GET /{large} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice\r\n\r\n".encode())
        for reader, _ in slow:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        asking = asyncio.create_task(status_of(site, browser, "alice", RESNET))
        assert await status_of(site, browser, "bob", RESNET) == 200
        assert not asking.done(), "the slow ones have alice's turns"
        assert await asking == 200
        for _, writer in slow:
            writer.transport.abort()


async def test_a_stream_of_many_jobs_that_nobody_reads_holds_little(site: Site, browser: aiohttp.ClientSession):
    async with site.get(browser, "-/api/jobs", "alice") as stream:
        await told(stream)
    [(_, view), *_] = site.views._things.values()
    row = msgspec.structs.replace(next(iter(view.table.rows.values()))[1], note="x" * 2000)
    for number in range(4_000):
        view.table.note(msgspec.structs.replace(row, uid=f"uid-{number}"))
    view.table.note(msgspec.structs.replace(row, uid="uid-1", name="changed"))
    tracemalloc.start()
    async with site.get(browser, "-/api/jobs", "alice") as stream:
        await asyncio.sleep(0.5)
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert held < 5 * 2**20
        view.table.note(msgspec.structs.replace(row, uid="uid-0", note="changed"))
        uids = list[str]()
        while uids[-1:] != ["uid-0"]:
            rows = (await told(stream))["rows"]
            assert len(rows) <= server.ROWS_AT_ONCE
            uids += [each["uid"] for each in rows]
    assert {*uids} == {*view.table.rows}
    assert uids.count("uid-1") == 1, "as it is now"


async def test_tables_share_rows_that_are_the_same_and_all_of_them_have_so_many():
    memory, told, room = Memory(), WeakValueDictionary[str, Shown](), Shares(4)
    for name in ("resnet", "vgg"):
        memory.add(name, *a_running_job(2))
    resnet, vgg = memory.rows.values()
    alice, bob = (Table(told, room, person) for person in ("alice", "bob"))
    for table in (alice, bob, bob):
        table.note(resnet)
    assert alice.rows == bob.rows
    assert alice.rows[resnet.uid][1] is bob.rows[resnet.uid][1]
    with pytest.raises(Refused, match="single namespace"):
        alice.note(vgg)
    bob.clear()
    alice.note(vgg)
    assert {*told} == {resnet.uid, vgg.uid}
    alice.clear()
    assert not told


async def test_the_port_has_a_budget(site: Site, browser: aiohttp.ClientSession):
    crowd = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(HTTPS.of_one + 8)]
    async with site.get(browser, "-/", "alice", {"Content-Encoding": "gzip", "Content-Length": "9"}) as answer:
        assert answer.status == 415
    async with site.get(browser, "-/", "alice") as answer:
        assert (answer.status, answer.headers["Connection"]) == (200, "close")
    await asyncio.sleep(0.2)
    assert sum(not reader.at_eof() for reader, _ in crowd) <= HTTPS.of_one
    for _, writer in crowd:
        writer.transport.abort()


async def test_a_job_that_nobody_reads_is_left_while_its_view_is_read(
    site: Site, browser: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(following, "IDLE_SECONDS", 0.05)
    async with site.get(browser, "-/api/jobs", "alice") as stream:
        await told(stream)
        async with site.get(browser, f"-/{RESNET}", "alice") as answer:
            assert answer.status == 200
        [kept] = (view._bounds.jobs for _, view in site.views._things.values())
        async with asyncio.timeout(10):
            while kept._things:
                await asyncio.sleep(0.02)


async def test_the_page_shows_no_certificate_that_its_kubeconfig_got_while_it_ran(tmp_path: Path):
    """The API server would take each viewer for the user of that certificate, whatever their token is."""
    before, after = Authority(tmp_path / "before"), Authority(tmp_path / "after")
    mine = after.issue("admin")

    def written(authority: Authority, user: dict[str, str]) -> Path:
        cluster = {"server": url, "certificate-authority": str(authority.path)}
        return Path(write(tmp_path / "config", cluster=cluster, user=user, **{"current-context": "it"}))

    async with a_server_that_asks_for_certificates(after, after.issue("server"), must=False) as (url, seen):
        place = await viewers._place(Settings(KUBECONFIG=written(before, {})))
        client = KubeCluster(TokenAccess(place, "a viewer's"))
        written(after, {"client-certificate": str(mine.certificate), "client-key": str(mine.key)})
        await client.ask("/version", what="ask")
        await client.close()
    assert seen == ["nobody"]
