"""The history service as its Deployment starts it, with the certificate, the rights and the password of the chart.

What a node adds is exchanged: the paths of mounted files, ports of this machine, and the token of the service account.
"""

import asyncio
import json
import os
import signal
import sys
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devcluster.controlplane import ControlPlane
from shared.eventlog.account import ADMIN, HISTORY
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.ports import free_port
from tests.deploy.charts import require
from tests.deploy.rendering import Document, documents, render
from tests.history.conftest import HOME, RESNET, Site, record
from tests.kit.builders import a_running_job
from tests.kit.controlplane import require_control_plane
from tests.kit.nats import connected

pytestmark = pytest.mark.real

ACCOUNT = "muster-history"
MADE_BEFORE = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "RoleBinding", "APIService")
PATIENCE_SECONDS = 60.0


async def test_its_deployment_answers_kubectl_and_its_probes(tmp_path: Path):
    require()
    require_control_plane()
    chart = documents(render("--set", "history.enabled=true"))
    password = secret(chart, "muster-nats-history")[HISTORY].decode()
    async with (
        ControlPlane(tmp_path / "plane", (ACCOUNT, "viewer-a"), nodes=0) as cluster,
        NatsServer(tmp_path / "nats", users={**NatsServer(tmp_path / "names").users, HISTORY: password}) as nats,
    ):
        await set_up(nats.url, user=ADMIN, password=nats.users[ADMIN])
        async with connected(nats, ADMIN) as log:
            await record(log, a_running_job(2), History(JobKey("team-a", "resnet", Uid("uid-1"))))
        site = Site(cluster, nats, tmp_path)
        await site.apply(
            *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}} for each in (HOME, "team-a"))
        )
        ours = [each for each in chart if "history" in str(each["metadata"]) or "-view" in each["metadata"]["name"]]
        port, probed = free_port(), free_port()
        await site.apply(*(here(each, port) for each in ours if each["kind"] in (*MADE_BEFORE, "Service")))
        async with running(site, chart, port, probed) as process:
            await until_ready(process, probed)
            assert (await site.until("admin", "get", "jobhistories", "-n", "team-a")).out.startswith("NAME")
            why = await site.kubectl("admin", "get", "--raw", f"{RESNET}/why?output=text")
            assert why.out.startswith("trainingjob/resnet (uid-1): Running"), why
            assert (await site.kubectl("viewer-a", "get", "jobhistories", "-n", "team-a")).code == 1
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 30) == 0


def here(document: Document, port: int) -> Document:
    """The object, with the way to a pod replaced by that to a port of this machine."""
    match document["kind"]:
        case "Service":
            return {**document, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        case "APIService":
            spec = document["spec"]
            return {**document, "spec": {**spec, "service": {**spec["service"], "port": port}}}
    return document


def secret(chart: list[Document], name: str) -> dict[str, bytes]:
    """The files of a Secret."""
    [found] = [each for each in chart if (each["kind"], each["metadata"]["name"]) == ("Secret", name)]
    return {key: value.encode() for key, value in found.get("stringData", {}).items()} | {
        key: b64decode(value) for key, value in found.get("data", {}).items()
    }


def mounted(chart: list[Document], pod: dict[str, Any], root: Path) -> dict[str, Path]:
    """The folders of the pod's Secrets, by where the pod has them."""
    [container] = pod["containers"]
    volumes, found = {each["name"]: each for each in pod["volumes"]}, {}
    for mount in container["volumeMounts"]:
        volume = volumes[mount["name"]]
        named = [each["secret"] for each in volume.get("projected", {}).get("sources", ())]
        named += [{**volume["secret"], "name": volume["secret"]["secretName"]}] if "secret" in volume else []
        if not named:
            continue
        folder = found[mount["mountPath"]] = root / mount["name"]
        folder.mkdir(parents=True)
        for each in named:
            files = secret(chart, each["name"])
            for item in each["items"]:
                (folder / item["path"]).write_bytes(files[item["key"]])
    return found


@asynccontextmanager
async def running(
    site: Site, chart: list[Document], port: int, probed: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process of the Deployment's one container."""
    [deployment] = [
        each for each in chart if (each["kind"], each["metadata"]["name"]) == ("Deployment", "muster-history")
    ]
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["serviceAccountName"] == ACCOUNT
    ports = {each["name"]: str(each["containerPort"]) for each in container["ports"]}
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert (environment["MUSTER_HISTORY_PORT"], environment["MUSTER_HEALTH_PORT"]) == (ports["https"], ports["health"])
    assert {container[each]["httpGet"]["path"] for each in ("livenessProbe", "readinessProbe")} == {
        "/healthz",
        "/readyz",
    }
    for path, folder in mounted(chart, pod, site.folder / "mounted").items():
        environment = {name: value.replace(path, str(folder)) for name, value in environment.items()}
    # The servers of the chart have TLS; the test's has none.
    for name in ("NATS_CA", "NATS_MONITOR"):
        del environment[name]
    environment |= {
        "NATS_URL": site.nats.url,
        "MUSTER_HISTORY_PORT": str(port),
        "MUSTER_HEALTH_PORT": str(probed),
        "KUBECONFIG": str(site.cluster.kubeconfig(ACCOUNT)),
        "PATH": os.environ["PATH"],
    }
    [program] = container["command"]
    process = await asyncio.create_subprocess_exec(str(Path(sys.executable).parent / program), env=environment)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until_ready(process: asyncio.subprocess.Process, port: int) -> None:
    async with aiohttp.ClientSession() as session, asyncio.timeout(PATIENCE_SECONDS):
        while True:
            assert process.returncode is None, "it ended"
            try:
                async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    if answer.status == 200:
                        assert json.loads(await answer.text())["ready"]
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.1)
