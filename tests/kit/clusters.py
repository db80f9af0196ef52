"""Clusters for tests: the one in memory and the embedded API server, with what a test does behind the port's back."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import aiohttp
import pytest
import yaml

from devcluster.start import ADMIN, Devcluster
from shared.cluster import Cluster, Manifest, Resource
from shared.cluster.kinds import PODS
from shared.cluster.kube import KubeCluster
from shared.cluster.memory import MemoryCluster
from shared.cluster.objects import Custom
from shared.cluster.reflector import Pace
from shared.cluster.store import MemoryStore
from shared.errors import Refused
from tests.kit.watching import PATIENCE

T = TypeVar("T")

WIDGETS = Resource("test.muster.dev", "v1", "widgets", "Widget", Custom)
"""A custom resource with a status subresource, and a rule: `spec.size` is at least 1."""

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", Custom)
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", Custom)

SPEC = {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}, "colour": {"type": "string"}}}
STATUS = {"type": "object", "properties": {"phase": {"type": "string"}, "done": {"type": "integer"}}}
DEFINITION: Manifest = {
    "metadata": {"name": f"{WIDGETS.plural}.{WIDGETS.group}"},
    "spec": {
        "group": WIDGETS.group,
        "scope": "Namespaced",
        "names": {"plural": WIDGETS.plural, "singular": "widget", "kind": WIDGETS.kind},
        "versions": [
            {
                "name": WIDGETS.version,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}},
            }
        ],
    },
}

Change = Callable[[], Awaitable[Any]]


class ClusterUnderTest(Protocol):
    """A client, a namespace of the test's own, and what tests do behind the port's back."""

    cluster: Cluster
    namespace: str

    async def another_namespace(self) -> str:
        """One more."""

    async def end_pod(self, name: str) -> None:
        """The kubelet's last word: the pod's containers have ended."""

    async def collect(self) -> None:
        """Let the garbage collector have its turn, if it does not take it by itself."""

    async def terminate_namespace(self) -> None:
        """Delete the test's namespace."""

    async def restart(self) -> None:
        """Kill the server and start it again; nothing that was answered is lost."""

    async def lose(self, change: Change) -> None:
        """Have `change` happen where no watch sees it, and forget that it did."""


class InMemory:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.store.admit(WIDGETS, _size_is_positive)
        self.cluster: Cluster = MemoryCluster(self.store)
        self.namespace = "team-a"

    async def another_namespace(self) -> str:
        return "team-b"

    async def end_pod(self, name: str) -> None:
        self.store.remove(PODS, self.namespace, name)

    async def collect(self) -> None:
        self.store.collect_garbage()

    async def terminate_namespace(self) -> None:
        self.store.terminate_namespace(self.namespace)

    async def restart(self) -> None:
        self.store.outage.cut_watches()

    async def lose(self, change: Change) -> None:
        await change()
        self.store.compact()
        self.store.outage.cut_watches()


class Embedded:
    def __init__(self, server: Devcluster, cluster: KubeCluster, namespace: str) -> None:
        self._server = server
        self.cluster: Cluster = cluster
        self.namespace = namespace

    async def another_namespace(self) -> str:
        return await _new_namespace(self.cluster)

    async def end_pod(self, name: str) -> None:
        await self._delete(f"/api/v1/namespaces/{self.namespace}/pods/{name}?gracePeriodSeconds=0")

    async def collect(self) -> None:
        pass

    async def terminate_namespace(self) -> None:
        await self._delete(f"/api/v1/namespaces/{self.namespace}")

    async def restart(self) -> None:
        await self._server.apiserver.restart()

    async def lose(self, change: Change) -> None:
        # The history lives in the server's memory: a new server knows nothing of what the last one saw.
        await self.restart()
        await change()
        await self.restart()

    async def _delete(self, path: str) -> None:
        config = yaml.safe_load(self._server.kubeconfig(ADMIN).read_text())
        context = ssl.create_default_context(cafile=str(self._server.apiserver.data / "ca.crt"))
        headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        async with (
            aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(ssl=context)) as session,
            session.delete(f"{self._server.apiserver.url}{path}") as response,
        ):
            assert response.status == 200, await response.text()


@pytest.fixture(scope="session")
def embedded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Devcluster]:
    """The API server alone, without nodes, shared by all tests: each has a namespace of its own."""
    server = Devcluster(tmp_path_factory.mktemp("devcluster"), nodes=0)

    async def start() -> None:
        await server.__aenter__()
        cluster = await KubeCluster.connect(server.kubeconfig(ADMIN))
        await cluster.create(DEFINITIONS, "", DEFINITION)
        await cluster.close()

    try:
        asyncio.run(start())
        yield server
    finally:
        asyncio.run(server.__aexit__(None, None, None))


@asynccontextmanager
async def embedded(server: Devcluster) -> AsyncIterator[Embedded]:
    pace = Pace(first_wait=0.02, longest_wait=0.2, hopeless_wait=0.2)
    cluster = await KubeCluster.connect(server.kubeconfig(ADMIN), pace=pace)
    try:
        yield Embedded(server, cluster, await _new_namespace(cluster))
    finally:
        await cluster.close()


@pytest.fixture(params=["memory", "embedded"])
def cluster_server(request: pytest.FixtureRequest) -> Devcluster | None:
    """The server behind the cluster under test; the one in memory has none."""
    # Not an async fixture: the shared server is started by a loop of its own, before the test's.
    return None if request.param == "memory" else request.getfixturevalue("embedded_server")


@pytest.fixture
async def under_test(cluster_server: Devcluster | None) -> AsyncIterator[ClusterUnderTest]:
    """Each cluster in turn."""
    if cluster_server is None:
        yield InMemory()
        return
    async with embedded(cluster_server) as found:
        yield found


async def eventually(ask: Callable[[], Awaitable[T]], until: Callable[[T], bool]) -> T:
    """Ask until the answer is right, within a bound."""

    async def asking() -> T:
        while not until(answer := await ask()):
            await asyncio.sleep(0.01)
        return answer

    return await asyncio.wait_for(asking(), PATIENCE)


async def _new_namespace(cluster: Cluster) -> str:
    name = f"test-{uuid4().hex[:8]}"
    await cluster.create(NAMESPACES, "", {"metadata": {"name": name}})
    return name


def _size_is_positive(before: Manifest | None, after: Manifest) -> None:
    if (after.get("spec") or {}).get("size", 1) < 1:
        raise Refused("spec.size should be greater than or equal to 1", reason="Invalid", field="spec.size")
