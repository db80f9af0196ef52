"""The handlers: who gets nothing, and what the others get."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from muster.page.drawing import Drawing, drawn
from muster.page.following import OF_ONE, end
from muster.page.server import secret_of
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import At
from shared.job.events.status import JobFailed
from shared.job.evolve import evolve
from shared.job.state import Job
from tests.kit.builders import a_created_job, a_running_job
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
    async with browser.get(address + RESNET) as answer:
        drawing = await answer.json()
    assert folded == [*range(1, len(drawing["events"]) + 1)]


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


async def test_the_state_at_a_sequence_is_that_of_the_history(
    browser: aiohttp.ClientSession, address: str, memory: Memory
):
    memory.add("resnet", *a_running_job(2))
    async with browser.get(f"{address}{RESNET}/at/2") as answer:
        found = await answer.json()
    assert msgspec.json.decode(found["event"])["sequence"] == 2
    assert msgspec.json.decode(found["state"])["status"]["phase"] == "Created"
    assert "conditions" in msgspec.json.decode(found["status"])


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
