"""Six clients edit one job of the embedded and of a real API server: whoever is named wrote it."""

import asyncio
import os
import random
from contextlib import aclosing
from pathlib import Path
from uuid import uuid4

import pytest

from devcluster.cluster import ADMIN, Devcluster
from devcluster.controlplane import ControlPlane
from services.watcher.core.actors import attributed
from services.watcher.core.observed import ObservedJob
from services.watcher.core.views import observed_job
from shared.cluster import Applied
from shared.cluster.kube import KubeCluster
from shared.frameworks.training_job import TRAININGJOB, TRAININGJOBS
from tests.crds.conftest import installed
from tests.crds.kubectl import install
from tests.devcluster.apiserver.client import client_of
from tests.frameworks.documents import training_job
from tests.kit.clusters import NAMESPACES

pytestmark = pytest.mark.real_time

__all__ = ["installed"]

EDITS = int(os.environ.get("MUSTER_EDITS", "200"))
CLIENTS = [f"client-{number}" for number in range(6)]
PATIENCE_SECONDS = 60.0


@pytest.mark.real
async def test_whoever_is_named_wrote_it(installed: ControlPlane) -> None:
    await _prove(installed.kubeconfig(ADMIN))


async def test_whoever_is_named_wrote_it_on_the_embedded_cluster(tmp_path: Path) -> None:
    async with Devcluster(tmp_path, nodes=0) as cluster:
        await install(cluster)
        await _prove(cluster.kubeconfig(ADMIN))


async def _prove(kubeconfig: Path) -> None:
    cluster = await KubeCluster.connect(kubeconfig)
    namespace, chance = f"actors-{uuid4().hex[:8]}", random.Random(7)
    await cluster.create(NAMESPACES, "", {"metadata": {"name": namespace}})
    path = f"/apis/{TRAININGJOBS.api_version}/namespaces/{namespace}/trainingjobs"
    wrote: dict[int, str] = {}
    named: dict[int, str | None] = {}
    last, watching = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def follow() -> None:
        job: ObservedJob | None = None
        async with aclosing(cluster.watch(TRAININGJOBS, namespace=namespace)) as watch:
            async for seen in watch:
                watching.set()
                if isinstance(seen, Applied):
                    job = attributed(observed_job(TRAININGJOB, seen.object), job, listed=False)
                    newest = job.changes[-1]
                    named[newest.version] = newest.actor.manager if newest.actor is not None else None
                    if last.done() and seen.object.metadata.version >= last.result():
                        return

    async with client_of(kubeconfig) as client, asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follow())
        await watching.wait()
        job = training_job() | {"metadata": {"name": "resnet"}}
        made = await client.create(f"{path}?fieldManager=creator", job)
        wrote[int(made.body["metadata"]["resourceVersion"])] = "creator"
        for _ in range(EDITS):
            who = chance.choice(CLIENTS)
            worker = {"replicas": chance.randint(1, 4)}
            edits = [
                ("", {"spec": {"etReplicaSpecs": {"worker": worker}}}),
                ("/scale", {"spec": worker}),
                ("", {"spec": {"suspend": chance.random() < 0.5}}),
                ("", {"metadata": {"labels": {"edited": str(chance.random())}}}),
                ("", {"spec": {"suspend": None}}),
                ("/status", {"status": {"phase": str(chance.random())}}),
            ]
            where, edit = chance.choice(edits)
            answer = await client.merge(f"{path}/resnet{where}?fieldManager={who}", edit)
            assert answer.code == 200, answer.body
            # An edit that changes nothing has the version of the one before.
            wrote.setdefault(int(answer.body["metadata"]["resourceVersion"]), who)
        held = await cluster.get(TRAININGJOBS, namespace, "resnet")
        assert held is not None
        last.set_result(held.metadata.version)
        # A bookmark alone ends nothing: one more write.
        await client.merge(f"{path}/resnet", {"metadata": {"labels": {"over": "yes"}}})
        await asyncio.wait_for(asyncio.shield(following), PATIENCE_SECONDS)
    await cluster.close()
    told = {version: who for version, who in named.items() if who is not None and version in wrote}
    assert told == {version: wrote[version] for version in told}
    assert len(told) > EDITS / 100, f"of {len(named)} changes {len(told)} are somebody's"
    print(f"{len(wrote)} edits, {len(named)} changes, of {len(told)} the writer is known")
