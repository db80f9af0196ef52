"""An installation as `muster doctor` meets it: an API server, a log, and holders of the leases."""

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from devcluster.apiserver.call import User
from devcluster.apiserver.objects import Objects
from devcluster.apiserver.server import ApiServer
from devcluster.apiserver.store import Store
from devcluster.certificates import server_context
from muster import policies
from muster.crds import manifests
from muster.doctor import all_findings
from muster.doctor.findings import Choices, Finding
from muster.policies import BINDINGS, POLICIES
from muster.stack import CRDS
from shared.cluster.kinds import PODS
from shared.cluster.kube import KubeCluster
from shared.eventlog.server import NatsServer
from shared.process.settings import Settings
from tests.kit.apiserver import write_kubeconfig
from tests.kit.clusters import NAMESPACES, real_server
from tests.kit.nats import owners, started

__all__ = ["real_server"]

TOKEN = "the-token"
HOME = "muster"
PASSED = ("authorization", "accept", "content-type")


class Front:
    """In front of an API server, as a proxy that people have: it hands on, or says what it is told to say."""

    def __init__(self, target: str, trust: ssl.SSLContext) -> None:
        self.says: list[tuple[str, int, Any]] = []
        """Of a request whose `METHOD PATH` this pattern finds: the code and the document."""
        self.date = ""
        self.hangs = False
        self.url = ""
        self._target = target
        self._trust = trust

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            async with aiohttp.ClientSession() as self._session:
                yield
        finally:
            await runner.cleanup()

    def say(self, pattern: str, code: int, document: Any = None) -> None:
        self.says.append((pattern, code, document))

    async def _answer(self, request: web.Request) -> web.Response:
        date = {"Date": self.date} if self.date else {}
        body = await request.read()
        if self.hangs:
            await asyncio.Event().wait()
        for pattern, code, document in self.says:
            if re.search(pattern, f"{request.method} {request.path}"):
                said = document(body, request.headers) if callable(document) else document
                words = ("Forbidden", 'it is forbidden: User "viewer" cannot do this') if code == 403 else ("", "no")
                refusal = {"kind": "Status", "code": code} | dict(zip(("reason", "message"), words, strict=True))
                return web.json_response(said if code < 300 else refusal, status=code, headers=date)
        passed = {key: value for key, value in request.headers.items() if key.lower() in PASSED}
        url = f"{self._target}{request.path_qs}"
        async with self._session.request(
            request.method, url, data=body or None, headers=passed, ssl=self._trust
        ) as answer:
            return web.Response(
                body=await answer.read(), status=answer.status, content_type="application/json", headers=date
            )


class Installation:
    """What one test examines."""

    def __init__(self, cluster: KubeCluster, front: Front, nats: NatsServer, folder: Path) -> None:
        self.cluster = cluster
        self.front = front
        self.nats = nats
        self._folder = folder

    def settings(self, **more: Any) -> Settings:
        kubeconfig = write_kubeconfig(self._folder / "kubeconfig", self.front.url, {"token": TOKEN})
        given = {"nats_url": self.nats.url, "nats_user": "reader", "nats_password": self.nats.users["reader"]}
        return Settings(_env_file=None, **({"kubeconfig": kubeconfig} | given | more))

    async def examined(self, *, choices: Choices | None = None, **settings: Any) -> list[Finding]:
        return await all_findings(self.settings(**settings), choices or Choices(HOME, timeout=10))

    async def with_pods(self, *components: str, **more: Any) -> None:
        """A pod for each component of a release, which answers as one that is well."""
        for component in components:
            await self.cluster.create(PODS, HOME, a_pod(component, **more))
            await self.cluster.patch(
                PODS, HOME, f"muster-{component}", {"status": {"phase": "Running"}}, subresource="status"
            )

    def with_policies(self) -> None:
        """The API server serves admission policies, and has the one of the four accounts."""
        root = f"/apis/{POLICIES.api_version}"
        made = policies.manifests(policies.accounts("muster-"), HOME)
        for resource, document in zip((POLICIES, BINDINGS), made, strict=True):
            self.front.say(f"{root}/{resource.plural}/{document['metadata']['name']}", 200, document)
        self.front.say(f"{root}$", 200, {"resources": [{"name": POLICIES.plural}, {"name": BINDINGS.plural}]})


def a_pod(component: str, *, version: str = "0.1.0") -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/name": "muster",
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/version": version,
    }
    container = {"name": "main", "image": "muster:1", "ports": [{"name": "health", "containerPort": 8080}]}
    return {
        "metadata": {"name": f"muster-{component}", "labels": labels},
        "spec": {"containers": [container], "serviceAccountName": f"muster-{component}"},
    }


MakeInstallation = Callable[..., AbstractAsyncContextManager[Installation]]


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One of their own: in the one that all tests share there is much that a doctor would tell of."""
    yield from started(NatsServer(tmp_path_factory.mktemp("nats")), replicas=1)


@pytest.fixture
def an_installation(certificates: Path, tmp_path: Path, nats_server: NatsServer) -> MakeInstallation:
    """Makes one; without `owned` no lease is held, without `installed` no definition is there."""

    @asynccontextmanager
    async def make(*, owned: bool = True, installed: bool = True) -> AsyncIterator[Installation]:
        server = ApiServer(Objects(Store(history=50)), {TOKEN: User("tester", "1", ("testers",))}, "node-token")
        trust = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
        async with server.serving(0, server_context(certificates)) as port:
            front = Front(f"https://127.0.0.1:{port}", trust)
            async with front.serving():
                kubeconfig = write_kubeconfig(tmp_path / "admin", front.url, {"token": TOKEN})
                cluster = await KubeCluster.connect(kubeconfig)
                try:
                    await cluster.create(NAMESPACES, "", {"metadata": {"name": HOME}})
                    for definition in manifests() if installed else ():
                        await cluster.create(CRDS, "", definition)
                    async with contextlib.AsyncExitStack() as stack:
                        if owned:
                            await stack.enter_async_context(owners(nats_server))
                        yield Installation(cluster, front, nats_server, tmp_path)
                finally:
                    await cluster.close()

    return make


def of(findings: list[Finding], check: str) -> list[Finding]:
    return [finding for finding in findings if finding.check == check]


def wrong(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.status == "fail"]
