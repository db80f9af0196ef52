"""A cluster and a log for tests that break what leads to them, and what a service says meanwhile."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from devcluster.cluster import ADMIN as CLUSTER_ADMIN
from devcluster.cluster import Devcluster, DevelopmentCluster
from muster.crds import manifests
from shared.cluster.kube import KubeCluster
from shared.eventlog import api
from shared.eventlog.account import ADMIN
from shared.eventlog.connection import Connection
from shared.eventlog.server import NatsServer
from shared.eventlog.streams import StreamInfo
from tests.kit.clusters import DEFINITIONS, eventually
from tests.kit.nats import a_server, until
from tests.kit.service import Service

SOON_SECONDS = 15.0
"""From the start until the first complaint: two seconds of one try, on a machine that is busy with other tests."""


class Place:
    """A cluster and a log that are whole, for tests that break what leads to them."""

    def __init__(self, cluster: DevelopmentCluster, kube: KubeCluster, nats: NatsServer) -> None:
        self.cluster = cluster
        self.kube = kube
        self.nats = nats

    def environment(self, user: str, **changed: object) -> dict[str, str]:
        known = {
            "KUBECONFIG": self.cluster.kubeconfig(CLUSTER_ADMIN),
            "NATS_URL": self.nats.url,
            "NATS_USER": user,
            "NATS_PASSWORD": self.nats.users[user],
        }
        return {name: str(value) for name, value in {**known, **changed}.items()}

    async def install(self) -> None:
        for manifest in manifests():
            await self.kube.create(DEFINITIONS, "", manifest)

    async def uninstall(self) -> None:
        for manifest in manifests():
            name = manifest["metadata"]["name"]
            found = await self.kube.get(DEFINITIONS, "", name)
            assert found is not None
            await self.kube.delete(DEFINITIONS, "", name, uid=found.metadata.uid)
        await until(self._uninstalled)

    async def _uninstalled(self) -> bool:
        found = [await self.kube.get(DEFINITIONS, "", each["metadata"]["name"]) for each in manifests()]
        return not any(found)


@asynccontextmanager
async def a_place(folder: Path) -> AsyncIterator[Place]:
    """With the definitions installed, on our own API server."""
    async with Devcluster(folder / "cluster", nodes=0) as cluster, a_server(folder / "nats") as nats:
        kube = await KubeCluster.connect(cluster.kubeconfig(CLUSTER_ADMIN))
        found = Place(cluster, kube, nats)
        await found.install()
        yield found
        await kube.close()


async def complains_once_and_recovers(
    service: Service, *words: str, mend: Callable[[], Any], at_once: bool = True
) -> None:
    """From the start on something is wrong.

    A service that does not see all of the mend `at_once` may say in between what is still missing.
    """
    line = await service.says("not ready", *words)
    (start,) = service.lines("starting")
    took = datetime.fromisoformat(line["timestamp"]) - datetime.fromisoformat(start["timestamp"])
    assert took.total_seconds() < SOON_SECONDS
    assert line["service"] == service.name
    assert line["level"] == "warning"
    assert (await service.probed("healthz"))[0] == 200, "a restart would not help"
    # A probe tells what was so when the service last said it.
    status, known = await eventually(
        lambda: service.probed("readyz"), lambda told: bool(told[1]["trouble"] == line["why"])
    )
    assert (status, known["ready"]) == (503, False)
    said = mend()
    if said is not None:
        await said
    await service.becomes(200)
    whys = [line["why"] for line in service.lines("not ready")]
    assert len(whys) == (1 if at_once else len({*whys}))
    assert len(service.lines("started")) == 1


async def edit(nats: NatsServer, stream: str, change: dict[str, object]) -> dict[str, Any]:
    """Change a stream's settings as an administrator would; return those before."""
    async with administrator(nats) as admin:
        before = (await api.stream_info(admin, stream)).config
        await api.call(admin, f"STREAM.UPDATE.{stream}", before | change, StreamInfo)
        return before


@asynccontextmanager
async def administrator(nats: NatsServer) -> AsyncIterator[Connection]:
    admin = await Connection.open(nats.url, name="test", user=ADMIN, password=nats.users[ADMIN])
    try:
        yield admin
    finally:
        await admin.close()
