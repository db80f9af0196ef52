"""Clusters for tests: in memory, embedded and real, each with what a test does behind the port's back."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import uuid4

import pytest
import yaml

from devcluster.cluster import ADMIN, Devcluster, DevelopmentCluster
from devcluster.controlplane import ControlPlane
from muster.definitions import is_served
from shared.cluster import Cluster, Manifest, Resource
from shared.cluster.kinds import PODS
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import Custom
from shared.cluster.reflector import Pace
from shared.errors import Refused
from tests.devcluster.apiserver.client import Client, client_of
from tests.kit import gadgets, gizmos
from tests.kit.definitions import INTEGER, STRING, a_definition, a_version, an_object
from tests.kit.watching import PATIENCE
from tests.memory.cluster import MemoryCluster
from tests.memory.store import MemoryStore

T = TypeVar("T")

WIDGETS = Resource("test.muster.dev", "v1", "widgets", "Widget", Custom)
"""A custom resource with a status subresource, and a rule: `spec.size` is at least 1."""

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", Custom)
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", Custom)

SPEC = an_object({"size": {"type": "integer", "minimum": 1}, "colour": STRING})
STATUS = an_object({"phase": STRING, "done": INTEGER})
DEFINITION = a_definition(WIDGETS, a_version(WIDGETS.version, SPEC, STATUS, storage=True))

CRDS = Path(__file__).parents[2] / "crds"

Change = Callable[[], Awaitable[Any]]


class ClusterUnderTest(Protocol):
    """A client, a namespace of the test's own, and what tests do behind the port's back."""

    cluster: Cluster
    namespace: str
    patience: float
    """Seconds that its controllers may take."""

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
        self.patience = PATIENCE

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


class Served:
    """A cluster behind an API server."""

    def __init__(self, server: DevelopmentCluster, cluster: KubeCluster, namespace: str, patience: float) -> None:
        self._server = server
        self.cluster: Cluster = cluster
        self.namespace = namespace
        self.patience = patience

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
        # What can be watched again lives in the server's memory: a new one knows nothing of what the last one saw.
        await self.restart()
        await change()
        await self.restart()

    async def _delete(self, path: str) -> None:
        async with self._server.session() as session, session.delete(path) as response:
            assert response.status == 200, await response.text()


COLLECTED_WITHIN = 60.0
"""Seconds: the real garbage collector looks for new kinds only every half minute."""


@pytest.fixture(scope="session")
def embedded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Devcluster]:
    """The API server alone, without nodes, shared by all tests: each has a namespace of its own."""
    server = Devcluster(tmp_path_factory.mktemp("devcluster"), nodes=0)
    try:
        asyncio.run(_enter(server))
        yield server
    finally:
        asyncio.run(server.__aexit__(None, None, None))


async def _enter(server: Devcluster) -> None:
    await server.__aenter__()
    await define(server, *definitions())


def definitions() -> list[Manifest]:
    """What the servers of these tests know besides the built-in kinds: kinds of the tests, and Muster's own."""
    ours = [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]
    return [DEFINITION, gadgets.DEFINITION, gizmos.DEFINITION, *ours]


async def define(server: DevelopmentCluster, *definitions: Manifest) -> None:
    """Install those that are not there yet, and wait until the server serves what they define."""
    cluster = await KubeCluster.connect(server.kubeconfig(ADMIN))
    try:
        for definition in definitions:
            try:
                await cluster.create(DEFINITIONS, "", definition)
            except Refused as refusal:
                if refusal.reason != "AlreadyExists":
                    raise
            name = definition["metadata"]["name"]
            await eventually(functools.partial(cluster.get, DEFINITIONS, "", name), is_served)
    finally:
        await cluster.close()


@pytest.fixture(scope="session")
def real_server(control_plane: ControlPlane) -> ControlPlane:
    """The control plane that all tests of the session share."""
    asyncio.run(define(control_plane, *definitions()))
    return control_plane


@asynccontextmanager
async def served(server: DevelopmentCluster) -> AsyncIterator[Served]:
    # Small pages, so that lists come in several.
    pace = Pace(page=2, first_wait=0.02, longest_wait=0.2)
    cluster = await KubeCluster.connect(server.kubeconfig(ADMIN), pace=pace)
    patience = COLLECTED_WITHIN if isinstance(server, ControlPlane) else PATIENCE
    try:
        yield Served(server, cluster, await _new_namespace(cluster), patience)
    finally:
        await cluster.close()


@pytest.fixture(params=["memory", "embedded", pytest.param("real", marks=pytest.mark.real)])
def cluster_server(request: pytest.FixtureRequest) -> DevelopmentCluster | None:
    """The server behind the cluster under test; the one in memory has none."""
    # Not an async fixture: the shared server is started by a loop of its own, before the test's.
    return None if request.param == "memory" else request.getfixturevalue(f"{request.param}_server")


@pytest.fixture
async def under_test(cluster_server: DevelopmentCluster | None) -> AsyncIterator[ClusterUnderTest]:
    """Each cluster in turn."""
    if cluster_server is None:
        yield InMemory()
        return
    async with served(cluster_server) as found:
        yield found


class Api(NamedTuple):
    """A server as HTTP shows it to its administrator, and a namespace of the test's own."""

    client: Client
    namespace: str
    patience: float

    def path(self, plural: str, name: str = "", *, namespace: str = "") -> str:
        """Where a kind, or an object of it, is found."""
        group = GROUPS.get(plural, "")
        root = f"/apis/{group}" if group else "/api/v1"
        return f"{root}/namespaces/{namespace or self.namespace}/{plural}" + (f"/{name}" if name else "")


GROUPS = {
    "widgets": "test.muster.dev/v1",
    "gadgets": "test.muster.dev/v1",
    "events": "events.k8s.io/v1",
    "leases": "coordination.k8s.io/v1",
}


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def api_server(request: pytest.FixtureRequest) -> DevelopmentCluster:
    """Each API server in turn."""
    server: DevelopmentCluster = request.getfixturevalue(f"{request.param}_server")
    return server


@pytest.fixture
async def api(api_server: DevelopmentCluster) -> AsyncIterator[Api]:
    patience = COLLECTED_WITHIN if isinstance(api_server, ControlPlane) else PATIENCE
    async with client_of(api_server.kubeconfig(ADMIN)) as client:
        name = f"test-{uuid4().hex[:8]}"
        answer = await client.create("/api/v1/namespaces", {"metadata": {"name": name}})
        assert answer.code == 201, answer.body
        yield Api(client, name, patience)


async def eventually(ask: Callable[[], Awaitable[T]], until: Callable[[T], bool], *, patience: float = PATIENCE) -> T:
    """Ask until the answer is right, within a bound."""

    async def asking() -> T:
        while not until(answer := await ask()):
            await asyncio.sleep(0.01)
        return answer

    return await asyncio.wait_for(asking(), patience)


async def _new_namespace(cluster: Cluster) -> str:
    name = f"test-{uuid4().hex[:8]}"
    await cluster.create(NAMESPACES, "", {"metadata": {"name": name}})
    return name


def _size_is_positive(before: Manifest | None, after: Manifest) -> None:
    if (after.get("spec") or {}).get("size", 1) < 1:
        raise Refused("spec.size should be greater than or equal to 1", reason="Invalid", field="spec.size")
