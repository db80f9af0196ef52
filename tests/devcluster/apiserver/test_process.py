"""The server as a process: what a crash leaves, and that nothing is left behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import pytest
import yaml

from devcluster.child import ChildError
from devcluster.client import AbruptResponse
from devcluster.cluster import Devcluster
from tests.devcluster.apiserver.client import BOUND, Client

CONFIGS = "/api/v1/namespaces/default/configmaps"
ROOT = Path(__file__).parents[3]


def client_of(cluster, user="admin"):
    config = yaml.safe_load(cluster.kubeconfig(user).read_text())
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    session = aiohttp.ClientSession(
        headers=headers, connector=aiohttp.TCPConnector(ssl=False), response_class=AbruptResponse
    )
    return session, Client(session, config["clusters"][0]["cluster"]["server"])


async def test_everything_acknowledged_survives_a_kill(tmp_path):
    async with Devcluster(tmp_path, nodes=0) as cluster:
        session, api = client_of(cluster)
        acknowledged, killing = {}, asyncio.Event()

        async def write(writer):
            for number in range(10_000):
                name = f"{writer}-{number}"
                try:
                    answer = await api.create(CONFIGS, {"metadata": {"name": name}})
                except aiohttp.ClientError:
                    return
                acknowledged[name] = answer.body["metadata"]["resourceVersion"]
                if len(acknowledged) == 200:
                    killing.set()

        writers = [asyncio.ensure_future(write(number)) for number in range(8)]
        await asyncio.wait_for(killing.wait(), BOUND)
        cluster.apiserver.kill()
        await asyncio.wait_for(asyncio.gather(*writers), BOUND)
        await cluster.apiserver.restart()
        listed = (await api.get(CONFIGS)).body
        found = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed["items"]}
        assert acknowledged.items() <= found.items()
        newest = max(int(version) for version in acknowledged.values())
        made = await api.create(CONFIGS, {"metadata": {"name": "after"}})
        assert int(made.body["metadata"]["resourceVersion"]) > newest
        await session.close()


async def test_collection_goes_on_after_a_crash(tmp_path):
    async with Devcluster(tmp_path, nodes=0) as cluster:
        session, api = client_of(cluster)
        owner = (await api.create(CONFIGS, {"metadata": {"name": "owner"}})).body["metadata"]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
        for number in range(20):
            await api.create(CONFIGS, {"metadata": {"name": f"child-{number}", "ownerReferences": [reference]}})
        await api.delete(f"{CONFIGS}/owner")
        await cluster.apiserver.restart()
        await api.until(CONFIGS, lambda answer: answer.body["items"] == [])
        await session.close()


async def test_every_user_has_a_kubeconfig_and_a_name_in_the_audit(tmp_path):
    audit = tmp_path / "audit.jsonl"
    async with Devcluster(tmp_path / "data", users=["watcher"], nodes=0, audit=audit) as cluster:
        session, api = client_of(cluster, "watcher")
        await api.create(CONFIGS, {"metadata": {"name": "a"}})
        assert (await api.get(f"{CONFIGS}/b")).code == 404
        await session.close()
        assert oct(cluster.kubeconfig("watcher").stat().st_mode)[-3:] == "600"
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["user"], line["verb"], line["resource"], line["name"], line["code"]) for line in lines] == [
        ("system:serviceaccount:muster:watcher", "create", "configmaps", "", 201),
        ("system:serviceaccount:muster:watcher", "get", "configmaps", "b", 404),
    ]
    assert not cluster.apiserver.running


async def test_a_node_that_ends_at_once_is_reported(tmp_path):
    cluster = Devcluster(tmp_path)
    cluster.node.command = [sys.executable, "-c", "raise SystemExit('no room for pods')"]
    with pytest.raises(ChildError, match="no room for pods"):
        await cluster.__aenter__()
    assert not cluster.apiserver.running


async def test_a_cluster_that_cannot_start_says_why_and_leaves_nothing(tmp_path):
    (tmp_path / "apiserver").mkdir()
    (tmp_path / "apiserver" / "store.sqlite").write_text("this is no database, and long enough to be read as one")
    cluster = Devcluster(tmp_path, nodes=0)
    with pytest.raises(ChildError, match="file is not a database"):
        await cluster.__aenter__()
    assert not cluster.apiserver.running


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        # Killed, and not yet waited for by its new parent.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has parent-death signals")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_command_leaves_no_process_behind(tmp_path, number):
    command = [sys.executable, "-m", "devcluster", "--data", str(tmp_path), "--nodes", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == f"export KUBECONFIG={tmp_path}/kubeconfig-admin\n"
        [child] = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        parent.send_signal(number)
        parent.wait(BOUND)
    deadline = time.monotonic() + BOUND
    while not gone(int(child)):
        assert time.monotonic() < deadline, f"{child} still runs"
        time.sleep(0.01)
