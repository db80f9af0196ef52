"""The history service behind the embedded API server, which passes questions on as kube-apiserver does."""

import asyncio
import gc
import json
import ssl
from pathlib import Path

import aiohttp
import pytest

from devcluster.binaries import kubectl
from devcluster.certificates import make_server
from services.history import answers, server
from services.history.__main__ import serving
from services.history.server import Access
from shared.errors import Refused
from shared.eventlog import Entry
from shared.eventlog.account import ADMIN
from shared.history_api import GROUP
from shared.job.events.status import JobFailed
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.ports import free_port
from shared.process import bounds
from shared.process.serving import TELL_SECONDS
from shared.process.settings import HttpsPort
from tests.history.conftest import HOME, NAME, RESNET, Site, record
from tests.kit.builders import a_running_job
from tests.kit.nats import connected

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_kubectl_lists_and_gets_histories_and_reads_their_parts(site: Site):
    listed = await site.kubectl("viewer-a", "get", "jobhistories", "-n", "team-a")
    assert [line.split()[:2] for line in listed.out.splitlines()] == [
        ["NAME", "PHASE"],
        ["trainingjob.bygone", "Running"],
        ["trainingjob.resnet", "Running"],
    ]
    why = await site.kubectl("viewer-a", "get", "--raw", f"{RESNET}/why?output=text")
    assert why.out.startswith("trainingjob/resnet (uid-1): Running")
    assert (
        json.loads((await site.kubectl("viewer-a", "get", "--raw", f"{RESNET}/at/4")).out)["status"]["phase"]
        == "Created"
    )


async def test_kubectl_sorts_selects_and_explains_histories(site: Site):
    rows = await site.kubectl("viewer-a", "get", "jh", "-n", "team-a", "--sort-by=.job.sequence")
    assert [line.split()[0] for line in rows.out.splitlines()[1:]] == ["trainingjob.resnet", "trainingjob.bygone"]
    gone = await site.kubectl("viewer-a", "get", "jh", "-n", "team-a", "-l", f"{GROUP}/gone=true", "-o", "name")
    assert gone.out.split() == [f"jobhistory.{GROUP}/trainingjob.bygone"]
    mine = await site.kubectl("viewer-a", "get", "jh", "-n", "team-a", "-l", "team=a,!x", "-L", "team", "--no-headers")
    assert [(line.split()[0], line.split()[-1]) for line in mine.out.splitlines()] == [("trainingjob.resnet", "a")]
    refused = await site.kubectl("viewer-a", "get", "jh", "-n", "team-a", "-l", "a=b=c")
    assert (refused.code, "is no part of a selector" in refused.complaint) == (1, True)
    explained = await site.kubectl("viewer-a", "explain", "jobhistories.job.requestsOver")
    assert "How many of them are over" in explained.out, explained.complaint


async def test_a_request_past_kube_apiserver_is_refused_whoever_it_says_to_be(site: Site):
    trust = ssl.create_default_context(cadata=site.authority.decode())
    trust.check_hostname = False
    said = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://localhost:{site.port}{RESNET}", headers=said, ssl=trust) as answer,
    ):
        assert answer.status == 401
        assert (await answer.json())["reason"] == "Unauthorized"
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://localhost:{site.port}/healthz", ssl=trust) as answer,
    ):
        assert answer.status == 401


async def test_a_client_that_says_who_it_is_stays_who_it_is(site: Site):
    async with (
        site.cluster.session("viewer-a") as session,
        session.get("/apis/history.muster.dev/v1", headers={"X-Remote-User": "x", "Accept": "*/*"}) as answer,
    ):
        assert {each["name"] for each in (await answer.json())["resources"]} >= {"jobhistories", "jobhistories/why"}


async def test_only_questions_are_answered(site: Site):
    refused = await site.kubectl("admin", "delete", "--raw", RESNET)
    assert "a history can only be read" in refused.complaint
    assert (await site.kubectl("admin", "get", "--raw", f"{RESNET}/log")).code == 1
    groups = await site.kubectl("admin", "api-resources", "--api-group", GROUP)
    assert "jobhistories" in groups.out


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="no service"),
        pytest.param({"service": {"namespace": HOME, "name": NAME}, "caBundle": ""}, id="no authority"),
    ],
)
async def test_an_api_that_cannot_be_reached_is_a_503(site: Site, spec: dict[str, object]):
    metadata = {"name": "v1.nowhere.dev"}
    order = {"group": "nowhere.dev", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100}
    made = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata}
    created = await site.kubectl("admin", "create", "-f", "-", given=json.dumps(made | {"spec": order | spec}))
    assert created.code == 0, created.complaint
    try:
        async with site.cluster.session("admin") as session, session.get("/apis/nowhere.dev/v1/things") as answer:
            assert answer.status == 503
    finally:
        await site.kubectl("admin", "delete", "apiservice", "v1.nowhere.dev")


async def test_a_certificate_that_is_there_before_its_key_is_used_once_both_are(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("shared.process.serving.RENEW_SECONDS", 0.1)
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        make_server(folder, ["localhost"])
    settings = site.settings().model_copy(
        update={"history": HttpsPort(cert=old / "server.crt", key=old / "server.key")}
    )
    async with serving(settings) as port, asyncio.timeout(20):
        (old / "server.crt").write_bytes((new / "server.crt").read_bytes())
        await asyncio.sleep(0.5)
        assert await shown(port) != (new / "server.crt").read_text()
        (old / "server.key").write_bytes((new / "server.key").read_bytes())
        while await shown(port) != (new / "server.crt").read_text():
            await asyncio.sleep(0.1)


async def shown(port: int) -> str:
    """The certificate that the service shows; empty while it changes its port over."""
    try:
        return await asyncio.to_thread(ssl.get_server_certificate, ("localhost", port), timeout=2.0)
    except OSError:
        return ""


async def test_a_fault_of_its_own_is_told_as_a_status(site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(answers, "MOST_BYTES", None)
    refused = await site.kubectl("viewer-a", "get", "--raw", f"{RESNET}/events")
    assert "tell an administrator" in refused.complaint


async def probed(port: int, path: str, status: int) -> str:
    """The answer to a probe, once it has that status."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(20):
        while True:
            async with session.get(f"http://127.0.0.1:{port}/{path}") as answer:
                if answer.status == status:
                    return await answer.text()
            await asyncio.sleep(0.05)


async def test_it_is_ready_while_the_log_is_away_and_tells_its_figures(site: Site):
    port = free_port()
    alone = site.settings(health_port=port).model_copy(update={"nats_url": f"nats://127.0.0.1:{free_port()}"})
    async with serving(alone):
        assert json.loads(await probed(port, "readyz", 200))["service"] == "history"
        await probed(port, "healthz", 200)
        figures = await probed(port, "metrics", 200)
    assert 'muster_ready{service="history"} 1.0' in figures
    assert 'muster_log_connected{service="history"} 0.0' in figures
    assert "muster_history_waiting 0.0" in figures


async def test_it_is_not_ready_while_the_log_turns_it_away(site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shared.process.kept_connection.LOG_LOOK_SECONDS", 0.1)
    port = free_port()
    stranger = site.settings(health_port=port).model_copy(update={"nats_password": "wrong"})
    async with serving(stranger):
        told = json.loads(await probed(port, "readyz", 503))["trouble"]
        while "not asked" in told:
            told = json.loads(await probed(port, "readyz", 503))["trouble"]
        assert "history" in told
        await probed(port, "healthz", 200)


async def test_answers_are_counted_by_their_status(site: Site):
    health = free_port()
    async with serving(site.settings(health_port=health)) as port:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://localhost:{port}{RESNET}", ssl=False) as answer,
        ):
            assert answer.status == 401
        await asyncio.sleep(2 * TELL_SECONDS)
        assert 'muster_history_answers_total{code="401"} 1.0' in await probed(health, "metrics", 200)


async def test_the_collector_stops_no_answer_for_the_histories_of_the_first_fold(site: Site):
    gc.unfreeze()
    async with serving(site.settings()), asyncio.timeout(20):
        while not (gc.isenabled() and gc.get_freeze_count()):
            await asyncio.sleep(0.05)
    gc.unfreeze()


async def test_it_does_not_begin_without_a_certificate_or_a_port(site: Site):
    alone = site.settings()
    for lacking, words in (
        ({"cert": None}, "name the certificate in MUSTER_HISTORY_CERT"),
        ({"cert": Path("/no/such/file")}, "/no/such/file cannot be read"),
        ({"key": alone.history.cert}, "cannot be used"),
        ({"port": site.port}, "set MUSTER_HISTORY_PORT"),
    ):
        with pytest.raises(Refused, match=words):
            async with serving(alone.model_copy(update={"history": alone.history.model_copy(update=lacking)})):
                pass


async def test_kubectl_watches_histories(site: Site):
    watching = await asyncio.create_subprocess_exec(
        str(kubectl()),
        *("--kubeconfig", str(site.cluster.kubeconfig("viewer-a")), "get", "jh", "-n", "team-w", "-w", "--no-headers"),
        stdout=asyncio.subprocess.PIPE,
    )
    history = History(JobKey("team-w", "vgg", Uid("uid-w")))
    try:
        async with connected(site.nats, ADMIN) as eventlog, asyncio.timeout(60):
            await asyncio.sleep(1)
            await record(eventlog, a_running_job(2), history)
            await until_said(watching, "trainingjob.vgg Running 3/3")
            await record(eventlog, [JobFailed(reason="JobFailed")], history)
            await until_said(watching, "trainingjob.vgg Failed -")
    finally:
        watching.kill()
        await watching.wait()


async def until_said(process: asyncio.subprocess.Process, words: str) -> None:
    assert process.stdout is not None
    while not " ".join((line := await process.stdout.readline()).decode().split()).startswith(words):
        assert line, "it ended"


async def test_a_stream_ends_with_the_service_and_with_its_time(site: Site):
    async with site.cluster.session("viewer-a") as session, asyncio.timeout(60):
        watch = "/apis/history.muster.dev/v1/namespaces/team-a/jobhistories?watch=1"
        async with session.get(f"{watch}&timeoutSeconds=1") as timed:
            assert b'"ADDED"' in await timed.read()
        async with session.get(f"{RESNET}/events?watch=1") as events:
            assert json.loads(await events.content.readline())["sequence"]
            await site.stop()
            try:
                await events.read()
            finally:
                await site.start()
        async with session.get(f"{watch}&resourceVersion=100000") as expired:
            assert (expired.status, (await expired.json())["reason"]) == (410, "Expired")
        async with session.get(f"{watch}&resourceVersion=x") as refused:
            assert refused.status == 400


async def test_a_watch_has_bookmarks_and_ends_when_its_right_is_taken_away(site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "TEND_SECONDS", 0.1)
    allowed = True

    async def allows(*_: object) -> bool:
        return allowed

    monkeypatch.setattr(Access, "allows", allows)
    path = "/apis/history.muster.dev/v1/namespaces/team-a/jobhistories?watch=1&allowWatchBookmarks=true"
    async with site.cluster.session("viewer-a") as session, asyncio.timeout(60), session.get(path) as watch:
        while (frame := json.loads(await watch.content.readline()))["type"] != "BOOKMARK":
            pass
        assert int(frame["object"]["metadata"]["resourceVersion"]) > 1
        allowed = False
        *_, last = (await watch.read()).splitlines()
        assert json.loads(last)["object"]["code"] == 403


async def test_a_reader_that_takes_nothing_is_cut_off(site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bounds, "SLOW_SECONDS", 0.5)
    health = free_port()
    async with serving(site.settings(health_port=health)) as port, connected(site.nats, ADMIN) as eventlog:
        trust = ssl.create_default_context(cadata=site.authority.decode())
        trust.check_hostname = False
        [certificate] = site.folder.glob("cluster/**/front-proxy.crt")
        trust.load_cert_chain(certificate, certificate.with_suffix(".key"))
        reader, writer = await asyncio.open_connection("localhost", port, ssl=trust, limit=1024)
        try:
            path = f"{RESNET.replace('team-a', 'team-s')}/events?watch=1"
            history = History(JobKey("team-s", "resnet", Uid("uid-s")))
            await record(eventlog, a_running_job(2), history)
            last, body = history.facts["watcher"], b'{"padding":"' + b"x" * 100_000 + b'"}'
            for number in range(120):
                subject = "facts.team-s.resnet.uid-s.watcher.Padding"
                entry = Entry(subject=subject, event_id=f"pad-{number}", time="", body=body, optional=True)
                last = await eventlog.append(entry, expect=last)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nX-Remote-User: admin\r\n\r\n".encode())
            await reader.readline()
            async with asyncio.timeout(30):
                while "muster_history_streams 0.0" not in await probed(health, "metrics", 200):
                    await asyncio.sleep(0.1)
        finally:
            writer.transport.abort()
