"""The port for reports over HTTPS: `transformers`' own requests as recorded, our client, and who is turned away."""

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import aiohttp
import msgspec
import pytest
from structlog.testing import capture_logs

from devcluster.certificates import make_server
from services.watcher import progress as port_of_progress
from services.watcher.core import progress
from services.watcher.progress import IN_A_ROW, ProgressPort, Reports, Tokens
from shared.cluster import Cluster
from shared.cluster.kinds import TOKENREVIEWS
from shared.cluster.objects import TokenReview
from shared.errors import Refused, Transient
from shared.frameworks.pods import AUDIENCE, path_of
from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import JobRestarted, SlotsAssigned
from shared.job.events.status import JobRestarting
from shared.job.events.watcher import JobGone, PodsGone, ProgressReported
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.job.spec import WORKER
from shared.job.views import Slots
from shared.process.serving import Certificate
from shared.process.settings import HttpsPort
from shared.runtime.run import Runtime
from tests.kit.builders import a_running_job, pods, report_body, worker
from tests.kit.histories import KEY as HISTORY_KEY
from tests.kit.histories import a_history, stored

replace = msgspec.structs.replace

pytestmark = pytest.mark.real_time

KEY = JobKey("team-a", "resnet", Uid("uid-1"))
RECORDED = json.loads((Path(__file__).parent / "recorded" / "transformers.json").read_text())
TOKEN = "the-token"


class ApiServer:
    """Knows one token, of a pod in `team-a`."""

    def __init__(self) -> None:
        self.asked = 0
        self.away = False
        self.audiences = (AUDIENCE,)

    async def create(self, resource: Any, namespace: str, manifest: Any, *, within: int = 0) -> TokenReview:
        assert (resource, namespace) == (TOKENREVIEWS, "")
        assert manifest["spec"]["audiences"] == [AUDIENCE]
        self.asked += 1
        if self.away:
            raise Transient("the API server is away")
        known = manifest["spec"]["token"] == TOKEN
        user = {
            "username": "system:serviceaccount:team-a:default",
            "extra": {"authentication.kubernetes.io/pod-uid": ["pod-0"]},
        }
        status = {"authenticated": True, "user": user, "audiences": self.audiences} if known else {}
        return msgspec.convert({"status": status}, TokenReview)


class Taken:
    """In the place of `Reports`: notes what it is given."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.refusal: Refused | None = None

    def job(self, key: JobKey) -> None:
        if key.uid != KEY.uid:
            raise Refused("there is no such job", reason="NotFound")

    def take(self, key: JobKey, pod: Uid, body: bytes) -> None:
        assert (key, pod) == (KEY, "pod-0")
        progress.read(body, pod)
        if self.refusal is not None:
            raise self.refusal
        self.bodies.append(body)


class Site(NamedTuple):
    api: ApiServer
    taken: Taken
    codes: list[int]
    url: str
    authority: Path
    client: aiohttp.ClientSession

    async def post(self, body: bytes, token: str = TOKEN, url: str = "") -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.client.post(url or self.url, data=body, headers=headers) as answer:
            return answer.status, await answer.json(content_type=None)


@asynccontextmanager
async def a_site(folder: Path) -> AsyncIterator[Site]:
    make_server(folder, ["localhost"], ["127.0.0.1"])
    authority, certificate, key = folder / "ca.crt", folder / "server.crt", folder / "server.key"
    api, taken, codes = ApiServer(), Taken(), list[int]()
    reports = ProgressPort(cast(Reports, taken), Tokens(cast(Cluster, api)), codes.append)
    context = ssl.create_default_context(cafile=str(authority))
    async with (
        reports.serving(Certificate("progress", HttpsPort(cert=certificate, key=key))) as port,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as client,
    ):
        url = f"https://127.0.0.1:{port}{path_of(KEY)}"
        yield Site(api, taken, codes, url, authority, client)


A_REPORT = RECORDED["requests"][1]["body"].encode()


async def test_the_requests_of_transformers_are_taken_as_they_are(tmp_path: Path):
    async with a_site(tmp_path) as site:
        for recorded in RECORDED["requests"]:
            assert recorded["path"] == path_of(KEY)
            async with site.client.post(site.url, data=recorded["body"], headers=recorded["headers"]) as answer:
                assert answer.status == 200, "transformers takes any other status for a failure"
        assert site.api.asked == 1, "one question to the API server is enough for a minute"
        reports = [progress.read(body, Uid("pod-0")).said for body in site.taken.bodies]
        assert [(report.step, report.total, report.percentage) for report in reports] == [
            (None, 4, 0),
            (1, 4, 25),
            (2, 4, 50),
            (3, 4, 75),
            (4, 4, 99),
            (None, None, 100),
        ]
        assert dict(reports[3].metrics) == {
            "loss": "nan",
            "learning_rate": "5e-05",
            "grad_norm": "1.25",
            "current_epoch": "0.75",
        }


async def test_three_lines_of_our_own_client_report_from_rank_0_alone(tmp_path: Path):
    program = "from muster.train import report\nfor step in range(1, 4):\n    report(step, 3, loss=1 / step)\n"
    async with a_site(tmp_path) as site:
        (tmp_path / "token").write_text(TOKEN)
        environment = {
            "KUBEFLOW_TRAINER_SERVER_URL": site.url,
            "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(site.authority),
            "KUBEFLOW_TRAINER_SERVER_TOKEN": str(tmp_path / "token"),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        for rank in ("0", "1"):
            ran = await asyncio.create_subprocess_exec(sys.executable, "-c", program, env={**environment, "RANK": rank})
            assert await asyncio.wait_for(ran.wait(), 30) == 0
        steps = [progress.read(body, Uid("pod-0")).said.step for body in site.taken.bodies]
        assert steps[0] is None, "first of all a new program says that it begins"
        assert steps[-1] == 3, "the end waits for the last report"
        assert steps[1:] == sorted({*steps[1:]})


async def test_a_training_goes_on_where_there_is_no_port(tmp_path: Path):
    program = "from muster.train import report\nfor step in range(10_000):\n    report(step, 10_000)\n"
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    for more in ({}, {"KUBEFLOW_TRAINER_SERVER_URL": "https://127.0.0.1:1/", "KUBEFLOW_TRAINER_SERVER_TOKEN": "/none"}):
        ran = await asyncio.create_subprocess_exec(sys.executable, "-c", program, env={**environment, **more})
        assert await asyncio.wait_for(ran.wait(), 10) == 0


async def test_a_training_does_not_wait_for_the_answer_to_its_first_report(tmp_path: Path):
    (tmp_path / "token").write_text(TOKEN)
    program = "import os\nfrom muster.train import report\nreport(1, 2)\nos._exit(7)\n"

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        environment = {
            "KUBEFLOW_TRAINER_SERVER_URL": f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/",
            "KUBEFLOW_TRAINER_SERVER_TOKEN": str(tmp_path / "token"),
            "KUBEFLOW_TRAINER_SERVER_CA_CERT": ssl.get_default_verify_paths().cafile or "",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        ran = await asyncio.create_subprocess_exec(sys.executable, "-c", program, env=environment)
        assert await asyncio.wait_for(ran.wait(), 4) == 7


async def test_who_is_no_pod_of_this_namespace_is_turned_away(tmp_path: Path):
    async with a_site(tmp_path) as site:
        assert (await site.post(A_REPORT, token=""))[0] == 401
        assert (await site.post(A_REPORT, token="another"))[1]["reason"] == "Unauthorized"
        theirs = site.url.replace("/team-a/", "/team-b/")
        assert (await site.post(A_REPORT, url=theirs))[0] == 401
        site.api.audiences = ("https://kubernetes.default.svc",)
        assert (await site.post(A_REPORT))[0] == 401, "a token for the API server is none for this port"
        assert not site.taken.bodies


async def test_the_api_server_is_asked_about_tokens_for_jobs_alone_that_there_are(tmp_path: Path):
    async with a_site(tmp_path) as site:
        for number in range(20):
            url = site.url.replace("/team-a/", f"/team-{number}/").replace(KEY.uid, f"uid-{number}-of-none")
            assert (await site.post(A_REPORT, token=f"token-{number}", url=url))[0] == 404
        assert site.api.asked == 0
        assert (await site.post(A_REPORT))[0] == 200


async def test_bodies_that_are_no_reports_are_refused_with_a_reason(tmp_path: Path):
    async with a_site(tmp_path) as site:
        for bad in (b"", b"[]", b"{}", b"\xff", b"[" * 60_000, b'{"trainerStatus":{"progressPercentage":NaN}}'):
            code, said = await site.post(bad)
            assert (code, said["reason"]) == (422, "Malformed")
        megabytes = b"x" * 2**22

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(megabytes), 2**14):
                yield megabytes[at : at + 2**14]

        for many in (BytesIO(megabytes), pieces()):
            with suppress(aiohttp.ClientConnectionError):
                async with site.client.post(site.url, data=many, headers={"Authorization": f"Bearer {TOKEN}"}) as told:
                    assert told.status == 413
        assert (await site.post(A_REPORT, url=site.url + "/more"))[0] == 404
        async with site.client.get(site.url, headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
            assert answer.status == 404


async def test_a_pod_that_reports_a_thousand_times_a_second_is_slowed_down(tmp_path: Path):
    async with a_site(tmp_path) as site:
        codes = [(await site.post(A_REPORT))[0] for _ in range(100)]
        assert codes[:IN_A_ROW] == [200] * IN_A_ROW
        assert codes.count(200) <= IN_A_ROW + 5
        assert set(codes) == {200, 429}
        assert site.codes == codes


async def test_an_api_server_that_is_away_is_told_and_not_taken_for_a_no(tmp_path: Path):
    async with a_site(tmp_path) as site:
        site.api.away = True
        assert (await site.post(A_REPORT))[0] == 503
        site.api.away = False
        assert (await site.post(A_REPORT))[0] == 200


async def test_a_report_that_does_not_arrive_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(port_of_progress, "READ_SECONDS", 0.2)

    async def half() -> AsyncIterator[bytes]:
        yield A_REPORT[:9]
        await asyncio.Event().wait()

    async with a_site(tmp_path) as site, asyncio.timeout(10):
        async with site.client.post(site.url, data=half(), headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
            assert (answer.status, (await answer.json())["reason"]) == (408, "Timeout")
        assert site.taken.bodies == []


async def test_what_a_job_refuses_is_said(tmp_path: Path):
    async with a_site(tmp_path) as site:
        site.taken.refusal = Refused("step 9 is before step 10", reason="StepBackwards")
        code, said = await site.post(A_REPORT)
        assert (code, said["reason"], said["message"]) == (409, "StepBackwards", "step 9 is before step 10")


async def test_pods_that_keep_their_connections_leave_room_for_another_ones_report(tmp_path: Path):
    async with a_site(tmp_path) as site:
        host, port = "127.0.0.1", int(site.url.split(":")[2].partition("/")[0])
        shown = ssl.create_default_context(cafile=str(site.authority))
        head = f"POST {path_of(KEY)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        whole = f"{head}Content-Length: {len(A_REPORT)}\r\n\r\n".encode() + A_REPORT

        async def hold(number: int) -> None:
            source = f"127.0.2.{1 + number % 6}", 0
            with suppress(OSError):
                _, writer = await asyncio.open_connection(host, port, ssl=shown, local_addr=source)
                # It closes nothing: a connection that TLS ends waits for its client.
                writer.transport.pause_reading()
                writer.write(whole[: len(whole) - number % 2])
                try:
                    await asyncio.Event().wait()
                finally:
                    writer.transport.abort()

        crowd = list[asyncio.Task[None]]()
        for number in range(300):
            crowd.append(asyncio.create_task(hold(number)))
            await asyncio.sleep(0.01)
        site.client.headers["Connection"] = "close"
        for _ in range(20):
            async with asyncio.timeout(1):
                assert (await site.post(A_REPORT))[0] in (200, 429)
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)


@pytest.mark.parametrize("sealed", [False, True])
async def test_a_report_on_its_way_is_not_stored_after_the_seal(sealed: bool):
    history, stored_events = History(HISTORY_KEY), list[AnyEvent]()
    for event in a_running_job():
        history.fold(stored(history, event))

    class OnItsWay:
        async def append_until_stored(self, _: History, event: AnyEvent, still: Callable[[], AnyEvent | None]) -> None:
            history.sealed = sealed
            stored_events.extend(filter(None, [still()]))

    runtime = SimpleNamespace(histories={HISTORY_KEY: history}, appends=OnItsWay())
    reports = Reports(cast(Runtime, runtime), 1.0, lambda _: False, lambda: None)
    reports.take(HISTORY_KEY, Uid("pod-0"), A_REPORT)
    reports.flush(HISTORY_KEY)
    await asyncio.sleep(0.01)
    reports.forget(HISTORY_KEY)
    assert [type(event).__name__ for event in stored_events] == ([] if sealed else ["ProgressReported"])


A_SECOND_ATTEMPT: list[AnyEvent] = [
    *a_running_job(),
    JobRestarting(reason="TrainingJobFailed"),
    JobRestarted(attempt=1),
    SlotsAssigned(slots=(Slots(1, WORKER, ((0, 1),)),), reason="Restarted"),
    pods(replace(worker(0), attempt=1, uid=Uid("again"))),
    ProgressReported(pod=Uid("again"), attempt=1, step=1),
]
A_REPLACEMENT = SlotsAssigned(slots=(Slots(1, WORKER, ((0, 0),)),), reason="PodsReplaced")


@pytest.mark.parametrize(
    ("since", "recorded"),
    [
        pytest.param([], ["CheckpointTaken", "ProgressReported"], id="it went"),
        pytest.param([JobGone()], [], id="and its job: nothing comes beside its seal"),
        pytest.param([A_REPLACEMENT], [], id="another took its place: it says nothing of the group"),
    ],
)
async def test_the_last_report_of_a_pod_that_goes_before_its_turn_is_recorded(
    since: list[AnyEvent], recorded: list[str]
):
    history, stored_events = History(HISTORY_KEY), list[AnyEvent]()
    for event in A_SECOND_ATTEMPT:
        history.fold(stored(history, event))

    class AtOnce:
        async def append_until_stored(self, _: History, event: AnyEvent, still: object) -> None:
            stored_events.append(event)

    runtime = SimpleNamespace(histories={HISTORY_KEY: history}, appends=AtOnce())
    reports = Reports(cast(Runtime, runtime), 60.0, lambda _: False, lambda: 0.0)
    reports.take(HISTORY_KEY, Uid("again"), report_body(current_step=2, checkpoint_step=2))
    for event in (PodsGone(uids=(Uid("again"),)), *since):
        history.fold(stored(history, event))
    reports.flush(HISTORY_KEY)
    await asyncio.sleep(0.01)
    reports.close()
    assert [type(event).__name__ for event in stored_events] == recorded


async def test_a_report_of_a_job_that_is_let_go_in_the_moment_of_its_turn_is_dropped():
    history = History(HISTORY_KEY)
    for event in a_running_job():
        history.fold(stored(history, event))
    runtime = SimpleNamespace(histories={HISTORY_KEY: history}, appends=None)
    reports = Reports(cast(Runtime, runtime), 1.0, lambda _: False, lambda: None)
    reports.take(HISTORY_KEY, Uid("pod-0"), A_REPORT)
    reports.flush(HISTORY_KEY)
    reports.forget(HISTORY_KEY)
    with capture_logs() as lines:
        await asyncio.sleep(0.01)
    assert lines == []


def test_a_process_that_is_behind_another_one_does_not_go_backwards():
    known = ProgressReported(pod=Uid("pod-0"), attempt=0, step=9)
    job = a_history([*a_running_job(), known]).job
    behind = b'{"trainerStatus": {"metrics": [{"name": "current_step", "value": "8"}]}}'
    assert progress.events(job, progress.read(behind, Uid("pod-1"))) == []
    (told,) = progress.events(job, progress.read(behind, Uid("pod-0")))
    assert isinstance(told, ProgressReported)
    assert told.backwards
