"""`muster.client`: documents, waiting and trouble, on an API server with a services' hand on the status."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import muster.client
import muster.client.sync
from muster.client import Client, Event, Failed, Refused, Transient, WaitedTooLong, facts
from shared.eventlog import Stored
from shared.job.events.catalog import AUTHORS
from shared.ports import free_port
from tests.kit.operator import a_job
from tests.muster.conftest import NAME, Site

pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture
async def client(site: Site) -> AsyncIterator[Client]:
    async with muster.client.connect(kubeconfig=site.kubeconfig) as client:
        yield client


async def test_a_document_of_any_form_becomes_a_job(client: Client, tmp_path: Path):
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(a_job("by-file", "true")))
    for document, name in (
        (a_job("by-dict", "true"), "by-dict"),
        (json.dumps(a_job("by-text", "true")), "by-text"),
        (file, "by-file"),
    ):
        made = await client.create("default", document)
        assert (made.name, made.called, made.phase) == (name, f"trainingjob/{name}", "")
        assert made == await client.get("default", name)
        assert made.document["kind"] == "TrainingJob"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        pytest.param("a: [", "cannot be read as one document of YAML", id="no YAML"),
        pytest.param("a: 1\n---\nb: 2", "cannot be read as one document of YAML", id="two documents"),
        pytest.param("- 1", "is no manifest", id="a list"),
        pytest.param(
            "{apiVersion: kai.alibabacloud.com/v1alpha1, kind: TrainingJob, metadata: x}",
            "metadata is no mapping",
            id="metadata that is a word",
        ),
        pytest.param(Path("/none"), "No such file", id="no file"),
        pytest.param({"apiVersion": "v1", "kind": "Pod"}, "v1 Pod is no kind of job", id="no job"),
        pytest.param(a_job(NAME, "true"), "already exists", id="a name that is taken"),
        pytest.param(a_job("x", "true") | {"metadata": {"name": "x", "namespace": "b"}}, "take it out", id="elsewhere"),
    ],
)
async def test_a_document_that_is_no_new_job_is_refused_in_one_line(
    client: Client, document: muster.client.client.Document, words: str
):
    with pytest.raises(Refused, match=words) as refused:
        await client.create("default", document)
    assert "\n" not in str(refused.value)


async def test_a_wait_ends_with_the_phase_or_the_condition(site: Site, client: Client):
    waiting = asyncio.ensure_future(client.wait("default", NAME, "Running", timeout=30))
    ready = asyncio.ensure_future(client.wait("default", NAME, "WorkersReady", timeout=30))
    await site.status("Created", {"type": "WorkersReady", "status": "True", "reason": "WorkersReady"})
    assert (await ready).phase == "Created"
    await site.status("Running")
    assert (await waiting).phase == "Running"


async def test_a_job_that_was_too_quick_has_run(site: Site, client: Client):
    await site.status("Succeeded")
    for until in ("Running", "Succeeded"):
        assert (await client.wait("default", NAME, until, timeout=30)).phase == "Succeeded"


async def test_a_job_that_ends_in_another_way_is_a_failure(site: Site, client: Client):
    await site.status("Failed", {"type": "Failed", "status": "True", "reason": "JobFailed", "message": "exit 1"})
    with pytest.raises(Failed, match="trainingjob/resnet is Failed"):
        await client.wait("default", NAME, "Running", timeout=30)


async def test_a_wait_has_an_end_and_the_job_goes_on(client: Client):
    with pytest.raises(WaitedTooLong, match=r"waited 0\.1 s for trainingjob/resnet"):
        await client.wait("default", NAME, timeout=0.1)


async def test_a_wait_that_ended_says_what_the_job_waits_for(site: Site, client: Client):
    created = {"type": "Created", "status": "True", "reason": "TrainingJobCreated", "message": "it is admitted"}
    waits = {"type": "WorkersReady", "status": "False", "reason": "Unschedulable", "message": "worker-1: no node fits"}
    await site.status("Created", waits, created)
    with pytest.raises(WaitedTooLong, match="it is Created; Unschedulable: worker-1: no node fits; only the waiting"):
        await client.wait("default", NAME, timeout=0.1)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        pytest.param("Suceeded", "Succeeded", id="misspelt"),
        pytest.param("running", "Running", id="lower case"),
        pytest.param("WorkerReady", "WorkersReady", id="a condition"),
        pytest.param("Blue", "Created, Running", id="like none"),
    ],
)
async def test_a_wait_for_a_word_that_no_job_ever_has_is_refused_at_once(client: Client, word: str, meant: str):
    with pytest.raises(Refused, match=f"{word}.*{meant}") as refused:
        await client.wait("default", NAME, word)
    assert refused.value.reason == "Invalid"


async def test_a_condition_that_the_job_has_may_be_waited_for_whatever_its_name(site: Site, client: Client):
    await site.status("Running", {"type": "Blue", "status": "True", "reason": "Painted"})
    assert (await client.wait("default", NAME, "Blue", timeout=30)).phase == "Running"


async def test_jobs_are_listed_of_one_namespace_or_of_all(site: Site, client: Client):
    await client.create("default", a_job("another", "true") | {"metadata": {"name": "another", "labels": {"a": "b"}}})
    listed = await client.list("default")
    assert [job.called for job in listed] == ["trainingjob/another", f"trainingjob/{NAME}"]
    assert listed[1] == await client.get("default", NAME)
    assert await client.list() == listed
    assert await client.list("elsewhere") == []
    assert [job.name for job in await client.list(selector="a=b")] == ["another"]


async def test_a_client_that_was_closed_stays_closed(site: Site):
    async with muster.client.connect(kubeconfig=site.kubeconfig) as client:
        await client.get("default", NAME)
    for call in (client.get, client.history):
        with pytest.raises(Refused, match="this client is closed") as refused:
            await call("default", NAME)
        assert refused.value.reason == "Closed"


async def test_events_at_a_wrong_address_are_not_waited_for(site: Site):
    async with muster.client.connect(kubeconfig=site.kubeconfig, nats_url=f"nats://127.0.0.1:{free_port()}") as client:
        with pytest.raises(Transient, match="start NATS there"):
            await anext(client.events("default", NAME))


async def test_a_job_is_deleted_and_then_not_found(client: Client):
    await client.delete("default", NAME)
    for call in (client.get, client.delete, client.wait, client.suspend):
        with pytest.raises(Refused) as refused:
            await call("default", NAME)
        assert refused.value.reason == "NotFound"


async def test_without_waiting_a_change_gives_the_job_as_it_is(site: Site, client: Client):
    await site.status("Running")
    assert (await client.suspend("default", NAME, wait=False)).document["spec"]["suspend"] is True
    assert (await client.resume("default", NAME, wait=False)).document["spec"]["suspend"] is False


async def test_a_cluster_without_the_history_service_says_what_to_do(client: Client):
    with pytest.raises(Refused, match=r"does not serve history\.muster\.dev: .*NATS_URL"):
        await client.history("default", NAME)
    with pytest.raises(Refused, match=r"does not serve history\.muster\.dev"):
        await anext(client.events("default", NAME))


async def test_a_log_that_is_away_is_told_in_one_line(site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("muster.asking.CONNECT_SECONDS", 0.2)
    address = f"nats://127.0.0.1:{free_port()}"
    async with muster.client.connect(kubeconfig=site.kubeconfig, nats_url=address) as client:
        for call in (client.history, client.why, client.report):
            with pytest.raises(Transient, match="start NATS there") as away:
                await call("default", NAME)
            assert "\n" not in str(away.value)


async def test_the_synchronous_client_has_the_same_methods(site: Site):
    def use() -> None:
        with muster.client.sync.connect(kubeconfig=site.kubeconfig) as client:
            assert client.get("default", NAME).name == NAME
            with pytest.raises(Refused, match="no job default/none"):
                client.delete("default", "none")
            with pytest.raises(Refused, match="does not serve"):
                next(client.events("default", NAME))
        with pytest.raises(Refused, match="is not open"):
            client.get("default", NAME)

    await asyncio.to_thread(use)
    assert "muster.client" not in [thread.name for thread in threading.enumerate()]
    methods = {name for name in vars(Client) if not name.startswith("_")}
    assert methods <= vars(muster.client.sync.Client).keys()
    assert muster.client.sync.Client(Client()).scale.__doc__ == Client.scale.__doc__


@pytest.mark.parametrize(
    ("tag", "body"),
    [
        pytest.param("JobDreamt", b'{"type":"JobDreamt"}', id="a type of a later release"),
        pytest.param("JobRunning", b"{", id="no JSON"),
        pytest.param("JobRunning", b'{"type":"JobFailed"}', id="another type"),
    ],
)
def test_an_event_that_this_release_cannot_read_has_no_fact(tag: str, body: bytes):
    event = Event.of(Stored(7, f"jobs.team-a.res_net.uid-1.status.{tag}", "e-7", "2030-01-01T00:00:00.000Z", body))
    assert (event.fact, event.type, event.body, event.name) == (None, tag, body, "res.net")


def test_all_types_of_facts_can_be_imported_from_one_place():
    assert sorted(facts.__all__) == sorted(kind.__name__ for kind in AUTHORS)
    assert {getattr(facts, name) for name in facts.__all__} == {*AUTHORS}


def test_the_client_loads_neither_the_embedded_cluster_nor_numpy():
    loaded = "import muster.client, muster.client.sync, muster.client.facts, sys; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, env=os.environ)
    roots = {name.partition(".")[0] for name in ended.stdout.split()}
    assert roots.isdisjoint({"devcluster", "numpy", "services", "tests", "pytest"})
