"""`muster get`, `why` and `history` with nothing but a kubeconfig: their words are those with a user at the log."""

import asyncio
import os
import signal
import sys

import aiohttp
import pytest

from muster.terminal import harmless
from shared.eventlog.account import ADMIN, READER
from shared.job.events.status import JobFailed
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from tests.history.conftest import Site, record
from tests.kit.builders import a_running_job
from tests.kit.nats import connected

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("get -A -o json", id="the jobs"),
        pytest.param("get bygone -n team-a --gone", id="a job that is gone, by its name alone"),
        pytest.param("why trainingjob.kai.alibabacloud.com/bygone -n team-a --uid uid-2", id="why by uid"),
        pytest.param("report bygone -n team-a", id="a report"),
        pytest.param("report bygone -n team-a --since 2030-01-01T00:00:09Z --csv", id="a report from a time on"),
        pytest.param("report -A --csv", id="what all jobs cost"),
        pytest.param("history resnet -n team-a --at 4 --decisions", id="events up to a moment"),
        pytest.param("why resnet worker-9 -n team-a", id="a worker that never was"),
        pytest.param("history accept resnet -n team-a", id="a loss that is none"),
    ],
)
async def test_a_kubeconfig_is_enough_and_the_words_are_the_same(site: Site, words: str):
    by_cluster, by_log = await asyncio.gather(
        site.muster("viewer-a", *words.split()), site.muster("viewer-a", *words.split(), nats=READER)
    )
    assert by_cluster == by_log
    assert by_cluster.out or by_cluster.complaint


async def test_nats_asks_the_log_although_nothing_says_where_it_is(site: Site):
    asked = await site.muster("viewer-a", "get", "-n", "team-a", "--nats")
    assert (asked.code, asked.complaint.count("nats://127.0.0.1:4222")) == (1, 1)


async def test_hostile_words_in_the_log_move_no_terminal(site: Site):
    async with connected(site.nats, ADMIN) as log:
        hostile = [*a_running_job(2), JobFailed(reason="\x1b]0;owned\x07\x9b31m\u202e")]
        await record(log, hostile, History(JobKey("team-h", "vgg", Uid("uid-h"))))
    late = "history vgg --at 2040-01-01"
    for words in ("get -o wide", "get vgg -o yaml", "why vgg", "report vgg", late, "audit"):
        said = await site.muster("viewer-a", *words.split(), "-n", "team-h", nats=READER)
        assert said.code == 0, said
        assert harmless(said.out + said.complaint) == said.out + said.complaint


async def test_later_events_and_rows_are_followed_also_when_the_service_was_away(site: Site):
    history = History(JobKey("team-c", "vgg", Uid("uid-c")))
    async with connected(site.nats, ADMIN) as log:
        await record(log, a_running_job(2), history)
        environment = {**os.environ, "KUBECONFIG": str(site.cluster.kubeconfig("viewer-a"))}
        command = [sys.executable, "-m", "muster"]
        following = [
            await asyncio.create_subprocess_exec(
                *command,
                *words.split(),
                "-n",
                "team-c",
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=environment,
            )
            for words in ("history vgg -f", "get -w")
        ]
        try:
            for process, line in zip(following, (b"JobRunning", b"Running"), strict=True):
                await until_line(process, line)
            await site.stop()
            for process in following:
                await until_line(process, b"asking on")
            await site.start()
            await record(log, [JobFailed(reason="JobFailed")], history)
            for process, line in zip(following, (b"JobFailed", b"Failed"), strict=True):
                await until_line(process, line)
        finally:
            for process in following:
                process.kill()
                await process.wait()


async def until_line(process: asyncio.subprocess.Process, word: bytes) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        while word not in (line := await process.stdout.readline()):
            assert line, "it ended"


async def test_the_page_needs_a_kubeconfig_alone_and_ends_at_ctrl_c(site: Site):
    environment = {**os.environ, "KUBECONFIG": str(site.cluster.kubeconfig("viewer-a"))}
    words = ("ui", "-n", "team-a", "--port", "0")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "muster", *words, stdout=pipe, stderr=pipe, env=environment
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60), aiohttp.ClientSession() as browser:
            address = (await process.stdout.readline()).decode().strip()
            async with browser.get(f"{address}api/jobs") as rows:
                while b"resnet" not in await rows.content.readline():
                    pass
                async with browser.get(f"{address}api/jobs/team-a/trainingjob/resnet") as drawing:
                    assert (await drawing.json())["heading"][0].startswith("trainingjob/resnet (uid-1): Running")
                # Also while a browser follows.
                process.send_signal(signal.SIGINT)
                assert await process.wait() == 130
        assert process.stderr is not None
        assert await process.stderr.read() == b""
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
