"""`muster timeline`: a lane for each place, in the width of the terminal."""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from shared.frameworks.kinds import BUILT_IN
from shared.job.events.catalog import AnyEvent
from shared.job.events.watcher import JobGone, NodeBack, NodeLost
from shared.job.naming import Uid
from shared.telling.reading import fold_all
from shared.telling.report import Life, Report, reported
from shared.telling.timeline import timeline
from tests.kit.builders import a_created_job, a_running_job, a_spec, observed, pods, worker
from tests.kit.histories import KEY, log_of

WIDTH = 100
PATIENCE_SECONDS = 60.0


def report_of(*events: AnyEvent) -> Report:
    """The report of these events, one a second."""
    log = log_of(events)
    return reported(fold_all(Life(KEY), log), BUILT_IN, until=log[-1].time)


def drawn(*events: AnyEvent, coloured: bool = False) -> list[str]:
    return [*timeline(report_of(*events), WIDTH, coloured=coloured)]


def lanes(lines: Iterable[str]) -> dict[str, str]:
    return {line[:12].rstrip(): line[12:] for line in lines if line.startswith(("worker", "launcher"))}


def quiet(seconds: int) -> list[AnyEvent]:
    return [observed(a_spec(2))] * seconds


def test_places_that_did_the_same_share_a_lane_and_a_lane_fills_the_width():
    lines = drawn(*a_running_job(2), *quiet(100))
    assert [*lanes(lines)] == ["launcher 0", "worker 0-1"]
    assert all(len(lane) == WIDTH - 12 for lane in lanes(lines).values())
    assert lanes(lines)["worker 0-1"].endswith("#" * 70)


def test_a_loss_of_a_second_in_an_hour_shows():
    uids = (Uid("pod-1"),)
    blink = [NodeLost(node="gpu-7", uids=uids, reason="NodeUnreachable"), NodeBack(node="gpu-7", uids=uids)]
    lines = drawn(*a_running_job(2), pods(worker(1, version=12, node="gpu-7")), *quiet(1800), *blink, *quiet(1800))
    assert lanes(lines)["worker 1"].count("x") == 1
    assert "x" not in lanes(lines)["worker 0"]


def test_a_reader_whose_clock_is_behind_sees_the_time_that_the_log_knows():
    log = log_of([*a_running_job(2), *quiet(100)])
    life = fold_all(Life(KEY), log)
    right, behind = (reported(life, BUILT_IN, until=until) for until in (log[-1].time, "1970-01-01T00:00:00.000Z"))
    assert behind.goodput == right.goodput
    assert [*timeline(behind, WIDTH)] == [*timeline(right, WIDTH)]


def test_the_legend_has_the_time_of_each_bucket_and_no_other():
    lines = drawn(*a_created_job(2), *quiet(10))
    legend = lines[lines.index("", 2) + 1 :]
    assert [line[0] for line in legend] == [".", "g"]
    assert legend[0].endswith("70 %  waited for a node")


@pytest.mark.parametrize("events", [[observed(a_spec(2))], [JobGone(version=3)]], ids=["not taken on", "gone"])
def test_a_job_that_held_no_place_says_so(events: list[AnyEvent]):
    assert drawn(*events)[-1] == "it has held no place yet"


def test_colours_change_no_sign():
    plain, coloured = (drawn(*a_running_job(2), coloured=each) for each in (False, True))
    assert plain != coloured
    stripped = [line.replace("\x1b[0m", "") for line in coloured]
    for code in (31, 32, 33, 35, 36, 90):
        stripped = [line.replace(f"\x1b[{code}m", "") for line in stripped]
    assert stripped == plain


class Site:
    """A history service with one job, and what a command's environment says of it."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()
        self.environment: dict[str, str] = {}

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.set()
        await self.answers.wait()
        lost = NodeLost(node="gpu-7", uids=(Uid("pod-1"),), reason="NodeUnreachable")
        found = report_of(*a_running_job(2), *quiet(100), lost, *quiet(10))
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    async def begin(self, stdout: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "muster", "timeline", "trainingjob/resnet"),
            stdout=stdout,
            stderr=PIPE,
            env=self.environment,
            # A background job of a shell ignores Ctrl-C, and so would its child.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    async def end(self, process: asyncio.subprocess.Process) -> tuple[int | None, str]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            _, complaint = await process.communicate()
        return process.returncode, complaint.decode()


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    found, application = Site(), web.Application()
    application.router.add_get("/{path:.*}", found.answer)
    async with TestServer(application) as server:
        cluster = {"name": "here", "cluster": {"server": str(server.make_url("")).rstrip("/")}}
        context = {"name": "here", "context": {"cluster": "here", "user": "", "namespace": "team-a"}}
        config = {"current-context": "here", "clusters": [cluster], "contexts": [context], "users": []}
        (tmp_path / "kubeconfig").write_bytes(msgspec.json.encode(config))
        left_out = ("NATS", "NO_COLOR", "COLUMNS")
        known = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        found.environment = {**known, "KUBECONFIG": str(tmp_path / "kubeconfig"), "TERM": "xterm"}
        yield found
        found.answers.set()


async def test_a_terminal_of_60_columns_wraps_no_line(site: Site):
    mine, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    process = await site.begin(its)
    os.close(its)
    shown = b""
    # At the end of a terminal, reading is an error.
    with suppress(OSError):
        while part := await asyncio.to_thread(os.read, mine, 4096):
            shown += part
    os.close(mine)
    assert await site.end(process) == (0, "")
    lines = [re.sub(r"\x1b\[\d+m", "", line) for line in shown.decode().splitlines()]
    assert max(map(len, lines)) == 60
    assert "its node went" in " ".join(" ".join(lines).split())
    assert {len(line) for line in lines if line.startswith(("worker", "launcher"))} == {60}


async def test_a_reader_that_goes_before_the_first_line_gets_no_traceback(site: Site):
    mine, its = os.pipe()
    process = await site.begin(its)
    os.close(mine)
    os.close(its)
    code, complaint = await site.end(process)
    assert (code, complaint) == (1, "")


async def test_ctrl_c_while_it_waits_for_the_answer_ends_it_with_130(site: Site):
    site.answers.clear()
    process = await site.begin(PIPE)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await site.asked.wait()
    process.send_signal(signal.SIGINT)
    assert await site.end(process) == (130, "")
