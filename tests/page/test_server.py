"""The handlers: who gets nothing, and what the others get."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from zipfile import ZipFile

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from yarl import URL

from muster.page import docs, server
from muster.page.drawing import Drawing, Sketch, drawn, news_since, pieces
from muster.page.following import BEAT_SECONDS, OF_ONE, View, end
from muster.page.server import UI, secret_of, serving
from shared.errors import Refused
from shared.eventlog.subject import Subject
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import At, ChangeAttributed
from shared.job.events.status import JobFailed
from shared.job.evolve import evolve
from shared.job.naming import NO_UID, key_of
from shared.job.state import Job
from shared.telling.targets import parse_target
from tests.histories.recorded import Recording, recordings
from tests.kit.builders import a_created_job, a_running_job, a_spec, observed, pods, worker
from tests.kit.histories import log_of
from tests.page.conftest import SECRET, Memory

RESNET = "api/jobs/team-a/trainingjob/resnet"


@pytest_asyncio.fixture
async def browser() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        pytest.param("", {}, 200, id="the person"),
        pytest.param("", {"Host": "rebound.example:80"}, 421, id="a name that leads here"),
        pytest.param("../", {}, 403, id="no secret"),
        pytest.param("../wrong/", {}, 403, id="another secret"),
        pytest.param(RESNET, {"Sec-Fetch-Site": "cross-site"}, 403, id="another site"),
        pytest.param(RESNET, {"Sec-Fetch-Site": "same-site"}, 403, id="another port of this host"),
        pytest.param("static/../server.py", {}, 404, id="a file of the package"),
        pytest.param("api/jobs/team-a/trainingjob/vgg", {}, 404, id="a job that is not there"),
        pytest.param("api/jobs/team-a/nonsense/vgg", {}, 400, id="a kind that is none"),
        pytest.param(f"{RESNET}/at/0", {}, 404, id="before the first event"),
    ],
)
async def test_who_knows_the_secret_on_this_host_is_answered(
    browser: aiohttp.ClientSession, address: str, memory: Memory, path: str, headers: dict[str, str], status: int
):
    memory.add("resnet", *a_running_job(2))
    async with browser.get(address + path, headers=headers) as answer:
        assert answer.status == status
        assert "script-src 'self';" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize("path_", [RESNET, RESNET.removeprefix("api/")])
async def test_a_question_for_the_head_gets_no_body(address: str, memory: Memory, path_: str):
    memory.add("resnet", *a_running_job(2))
    host, path = address.removeprefix("http://").split("/", 1)
    reader, writer = await asyncio.open_connection(*host.split(":"))
    writer.write(f"HEAD /{path}{path_} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 200")
    assert body == b""


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ZipFile(tmp_path / "docs.zip", "w") as archive:
        for name in ("index.html", "docs/log/index.html", "assets/a.js", "search.json", "examples/train.py", "a.svg"):
            archive.writestr(name, f"<p>{name}")
    monkeypatch.setattr(docs, "ARCHIVE", tmp_path / "docs.zip")


@pytest.mark.usefixtures("packed")
@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        pytest.param("", 200, "text/html", id="the first page"),
        pytest.param("docs/log/", 200, "text/html", id="the page of a folder"),
        pytest.param("docs/log", 302, "/secret-of-the-test/docs/docs/log/", id="a folder without its slash"),
        pytest.param("assets/a.js", 200, "text/javascript", id="a script"),
        pytest.param("search.json", 200, "application/json", id="the words"),
        pytest.param("a.svg", 200, "image/svg+xml", id="a picture"),
        pytest.param("examples/train.py", 200, "text/plain", id="an example"),
        pytest.param("docs/nothing/", 404, "", id="no page"),
        pytest.param("..%2Fserver.py", 404, "", id="a file of the package"),
        pytest.param("%2Fetc%2Fpasswd", 404, "", id="a file of the machine"),
        pytest.param("docs%2F..%2Findex.html", 404, "", id="a detour"),
    ],
)
async def test_the_documentation_is_what_was_packed(
    browser: aiohttp.ClientSession, address: str, path: str, status: int, told: str
):
    async with browser.get(URL(f"{address}docs/{path}", encoded=True), allow_redirects=False) as answer:
        assert answer.status == status
        assert status == 404 or told in (answer.content_type, answer.headers.get("Location"))
        assert "script-src 'self';" in answer.headers["Content-Security-Policy"]
        if known := answer.headers.get("ETag"):
            assert answer.headers["Cache-Control"].startswith("private, max-age=")
            async with browser.get(answer.url, headers={"If-None-Match": known}) as again:
                assert (again.status, await again.read()) == (304, b"")


async def test_an_installation_without_the_documentation_says_so(
    browser: aiohttp.ClientSession, address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(docs, "ARCHIVE", tmp_path / "docs.zip")
    async with browser.get(f"{address}docs/") as answer:
        assert (answer.status, await answer.text()) == (404, docs.MISSING)
    async with browser.get(address) as page:
        assert ">Docs<" not in await page.text()


async def test_nothing_can_be_changed_by_it(browser: aiohttp.ClientSession, address: str, memory: Memory):
    memory.add("resnet", *a_running_job(2))
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        async with browser.request(method, address + RESNET) as answer:
            assert answer.status == 405


async def test_a_drawing_has_each_event_with_its_sentence_and_its_cause(
    browser: aiohttp.ClientSession, address: str, memory: Memory
):
    memory.add("resnet", *a_running_job(2))
    async with browser.get(address + RESNET) as answer:
        drawing = await answer.json()
    links = drawing["links"]
    assert [links[place]["sequence"] for place in drawing["events"]] == [*range(1, len(memory.logs["resnet"]) + 1)]
    assert all(link["cause"] is None or link["cause"] < place for place, link in enumerate(links))
    running = next(link for link in links if link["type"] == "JobRunning")
    assert (running["text"], links[running["cause"]]["author"]) == ("the job runs (TrainingJobRunning)", "watcher")
    assert {*drawing["lives"]} == {"launcher/0", "worker/0", "worker/1"}


async def test_a_drawing_folds_each_event_once(
    browser: aiohttp.ClientSession, address: str, memory: Memory, monkeypatch: pytest.MonkeyPatch
):
    memory.add("resnet", *a_running_job(2))
    folded = list[int]()

    def counted(job: Job, event: AnyEvent, at: At) -> Job:
        folded.append(at.sequence)
        return evolve(job, event, at)

    monkeypatch.setattr("shared.job.fold.evolve", counted)
    for more in ((), (JobFailed(reason="Crash"),)):
        memory.add("resnet", *more)
        # `add` folds, too, for the table.
        del folded[:]
        async with browser.get(address + RESNET) as answer:
            drawing = await answer.json()
        first = len(drawing["events"]) - len(more) + 1 if more else 1
        assert folded == [*range(first, len(drawing["events"]) + 1)]


def seen(drawing: Drawing) -> Any:
    """The drawing with its links in the place of their numbers."""
    links = [(link.sequence, link.text, link.unknown) for link in drawing.links]
    led = {links[at]: links[link.cause] if link.cause is not None else None for at, link in enumerate(drawing.links)}
    chains = [(chain.title, [links[at] for at in chain.links]) for chain in (*drawing.why, *drawing.requests)]
    lives = {place: [links[at] for at in of] for place, of in drawing.lives.items()}
    return drawing.heading, drawing.report, [links[at] for at in drawing.events], led, chains, lives, drawing.progress


@pytest.mark.parametrize("life", recordings("0.1.0"), ids=lambda life: life.name)
def test_a_drawing_that_goes_on_is_that_of_all_events(life: Recording):
    log = life.events()
    key = key_of(Subject.parse(log[0].subject))
    asked, sketch, tried = parse_target(f"job/{key.name}"), Sketch(), 0
    for count in (*range(1, len(log), 1 + len(log) // 12), len(log)):
        with suppress(Refused):
            # Not before the resource is known.
            whole = drawn(log[:count], asked, BUILT_IN, until=log[-1].time)
            assert seen(drawn(log[:count], asked, BUILT_IN, until=log[-1].time, sketch=sketch)) == seen(whole)
            tried += 1
    assert tried or key.uid == NO_UID


def merged(known: Any, news: Any) -> Any:
    """What `page.js` makes of them."""
    if news["since"] is None:
        return news
    for name, count in zip(("links", "events", "progress"), news["since"][1:], strict=True):
        news[name] = known[name][:count] + news[name]
    later = {place: known["lives"].get(place, [])[:same] + links for place, (same, *links) in news["lives"].items()}
    return news | {"lives": known["lives"] | later, "since": None}


@pytest.mark.parametrize("life", recordings("0.1.0"), ids=lambda life: life.name)
def test_what_is_new_of_a_drawing_completes_the_one_before(life: Recording):
    log = life.events()
    asked, sketch, known = parse_target(f"job/{key_of(Subject.parse(log[0].subject)).name}"), Sketch(), None
    for count in (*range(1, len(log), 1 + len(log) // 12), len(log)):
        with suppress(Refused):
            now = drawn(log[:count], asked, BUILT_IN, until=log[-1].time, sketch=sketch)
            version = json.dumps(known["version"]) if known is not None else ""
            known = merged(known, json.loads(b"".join(pieces(news_since(now, version)))))
            assert known == json.loads(b"".join(pieces(now)))


def test_of_a_long_history_a_browser_is_sent_what_is_new_alone():
    log = log_of(
        [*a_running_job(2), *(pods(worker(1, version=100 + each, ready=bool(each % 2))) for each in range(2000))]
    )
    sketch, asked = Sketch(), parse_target("job/resnet")
    before, now = (
        drawn(log[:count], asked, BUILT_IN, until=log[-1].time, sketch=sketch) for count in (len(log) - 1, len(log))
    )
    version = json.dumps(before.version)
    assert sum(map(len, pieces(now))) > 250_000
    assert sum(map(len, pieces(news_since(now, version)))) < 10_000
    # One of another server, or of nothing, gets all of it.
    for other in (json.dumps(["another", *before.version[1:]]), json.dumps([sketch.id, -1, 9**9, 0]), "[", "", "7"):
        assert news_since(now, other) is now


def test_who_made_a_change_is_told_once_it_is_known():
    applied = msgspec.structs.replace(observed(a_spec(2)), writes=(0,))
    log = log_of([applied, *a_running_job(2)[1:], ChangeAttributed(of=1, user="alice")])
    sketch = Sketch()
    for events, by in ((log[:-1], ""), (log, " by alice")):
        found = drawn(events, parse_target("job/resnet"), BUILT_IN, until=events[-1].time, sketch=sketch)
        assert found.links[found.events[0]].text == f"the job was applied{by}: 2 workers (1 or more)"


async def test_a_job_has_its_page_before_it_is_drawn_and_others_are_answered_meanwhile(
    browser: aiohttp.ClientSession, address: str, memory: Memory, monkeypatch: pytest.MonkeyPatch
):
    memory.add("resnet", *a_running_job(2))
    memory.add("vgg", *a_running_job(2))
    goes_on = threading.Event()

    def slow(*of: Any, **more: Any) -> Drawing:
        assert goes_on.wait(20)
        return drawn(*of, **more)

    monkeypatch.setattr("muster.page.following.drawn", slow)
    # One person's answers in their turn would all be these.
    pages = [await browser.get(address + RESNET.removeprefix("api/")) for _ in range(OF_ONE + 1)]
    for page in pages:
        text = (await page.content.readany()).decode()
        assert 'src="/secret-of-the-test/static/page.js"' in text
        assert text.endswith("<p>its timeline and its report follow here once its events are drawn</p>")
    async with browser.get(address) as jobs, browser.get(f"{address}api/jobs") as rows:
        assert jobs.status == 200
        assert (await told(rows))["rows"]
    goes_on.set()
    for page in pages:
        assert "worker 0-1" in (await page.text())
        page.close()


@pytest.mark.parametrize(
    ("path", "makes", "most"),
    [("", "muster.page.following.drawn", 1), ("/at/2", "muster.page.server._state_at", OF_ONE)],
)
async def test_who_leaves_keeps_a_place_until_the_thread_has_ended(
    browser: aiohttp.ClientSession,
    address: str,
    memory: Memory,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    makes: str,
    most: int,
):
    memory.add("resnet", *a_running_job(2))
    made, begun, goes_on = resolve_name(makes), list[int](), threading.Event()

    def slow(*of: Any, **more: Any) -> Any:
        begun.append(1)
        assert goes_on.wait(20)
        return made(*of, **more)

    monkeypatch.setattr(makes, slow)
    for _ in range(OF_ONE + 3):
        with pytest.raises(TimeoutError):
            await browser.get(f"{address}{RESNET}{path}", timeout=aiohttp.ClientTimeout(total=0.2))
    under_way = len(begun)
    goes_on.set()
    assert under_way == most
    async with browser.get(f"{address}{RESNET}{path}") as answer:
        assert answer.status == 200


async def test_the_state_at_a_sequence_is_that_of_the_history(
    browser: aiohttp.ClientSession, address: str, memory: Memory
):
    memory.add("resnet", *a_running_job(2))
    async with browser.get(f"{address}{RESNET}/at/2") as answer:
        found = await answer.json()
    assert msgspec.json.decode(found["event"])["sequence"] == 2
    assert msgspec.json.decode(found["state"])["status"]["phase"] == "Created"
    assert "conditions" in msgspec.json.decode(found["status"])


async def test_the_state_at_a_later_event_folds_those_in_between(
    browser: aiohttp.ClientSession, address: str, memory: Memory, monkeypatch: pytest.MonkeyPatch
):
    memory.add("resnet", *a_running_job(2))
    folded, states = list[int](), dict[int, str]()

    def counted(job: Job, event: AnyEvent, at: At) -> Job:
        folded.append(at.sequence)
        return evolve(job, event, at)

    monkeypatch.setattr("shared.job.fold.evolve", counted)
    for sequence, folds in ((2, [1, 2]), (5, [3, 4, 5]), (5, []), (2, [1, 2])):
        folded.clear()
        async with browser.get(f"{address}{RESNET}/at/{sequence}") as answer:
            state = (await answer.json())["state"]
        assert folded == folds
        assert states.setdefault(sequence, state) == state


async def test_changes_come_without_a_question(browser: aiohttp.ClientSession, address: str, memory: Memory):
    memory.add("resnet", *a_created_job(2))
    async with browser.get(f"{address}api/jobs") as rows, browser.get(f"{address}{RESNET}/news") as news:
        assert [row["phase"] for row in (await told(rows))["rows"]] == ["Created"]
        before = (await told(news))["events"]
        memory.add("resnet", *a_running_job(2)[len(a_created_job(2)) :])
        while (found := await told(rows))["rows"][0]["phase"] != "Running":
            pass
        assert (await told(news))["events"] == len(memory.logs["resnet"]) > before
        assert found["trouble"] == ""


async def test_a_job_whose_tab_was_closed_has_no_reader_at_once(memory: Memory, monkeypatch: pytest.MonkeyPatch):
    memory.add("resnet", *a_running_job(2))
    views = list[View]()

    class Kept(View):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            views.append(self)

    monkeypatch.setattr(server, "View", Kept)
    async with serving(memory, "", port=0, secret=SECRET) as address, aiohttp.ClientSession() as browser:
        async with browser.get(f"{address}{RESNET}/news") as stream:
            await told(stream)
            [(_, job)] = views[0]._bounds.jobs._things.values()
            assert job.readers == 1
        async with asyncio.timeout(BEAT_SECONDS / 3):
            while job.readers:
                await asyncio.sleep(0.05)


async def test_the_port_on_this_machine_has_a_budget(browser: aiohttp.ClientSession, address: str):
    at = URL(address)
    crowd = [await asyncio.open_connection(at.host, at.port) for _ in range(UI.of_one + 8)]
    async with browser.get(address, headers={"Content-Encoding": "gzip", "Content-Length": "9"}) as answer:
        assert answer.status == 415
    await asyncio.sleep(0.2)
    assert sum(not reader.at_eof() for reader, _ in crowd) <= UI.of_one
    for _, writer in crowd:
        writer.transport.abort()


async def test_hostile_words_stay_words_without_scripts(browser: aiohttp.ClientSession, address: str, memory: Memory):
    hostile = "</noscript><script>alert(1)</script>"
    memory.add("resnet", *a_running_job(2), JobFailed(reason="Crash", message=hostile))
    async with browser.get(f"{address}api/jobs") as rows:
        await told(rows)
    for path in ("", "jobs/team-a/trainingjob/resnet"):
        async with browser.get(address + path) as answer:
            text = await answer.text()
        assert "resnet" in text
        assert "<script>" not in text
        assert text.count("</noscript>") == 1


async def test_without_scripts_the_first_look_has_the_jobs_or_says_that_none_came(
    browser: aiohttp.ClientSession, address: str, memory: Memory
):
    async with browser.get(address) as answer:
        assert "No jobs so far: load this page again." in await answer.text()
    memory.add("resnet", *a_running_job(2))
    async with browser.get(address) as answer:
        text = await answer.text()
    assert "resnet" in text
    assert "No jobs so far" not in text


@pytest.mark.parametrize("path", ["trainingjob/vgg", "nonsense/vgg", "scaleout/vgg"])
async def test_the_page_of_what_is_no_job_says_why(browser: aiohttp.ClientSession, address: str, path: str):
    async with browser.get(f"{address}jobs/team-a/{path}") as answer:
        text = await answer.text()
    why = text.partition("<pre>")[2]
    assert "vgg" in why or "muster why" in why
    assert why.endswith("</pre></noscript></main>")


def test_an_address_opens_later_as_well(tmp_path: Any):
    assert secret_of(tmp_path) == secret_of(tmp_path) != SECRET
    assert (tmp_path / "muster" / "page-secret").stat().st_mode & 0o777 == 0o600


async def told(answer: aiohttp.ClientResponse) -> Any:
    """The next piece of news."""
    async with asyncio.timeout(5):
        async for line in answer.content:
            if line.startswith(b"data: "):
                return msgspec.json.decode(line[6:])
    raise AssertionError("the stream ended")


async def test_a_cancellation_that_is_lost_comes_again():
    async def loses_one() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    task = asyncio.create_task(loses_one())
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await end(task)
