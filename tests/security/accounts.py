"""Service accounts of a real API server with real tokens, in a namespace of the test's own."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane
from devcluster.kubeconfig import write_kubeconfig
from shared.cluster.kube import KubeCluster

Document = dict[str, Any]

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_PLACES = {"ServiceAccount": "/api/v1", "Role": _RBAC, "RoleBinding": _RBAC}


class Accounts:
    """What an administrator does about the accounts of one namespace."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace

    async def apply(self, manifests: Iterable[Document]) -> None:
        for manifest in manifests:
            path = self._path(manifest["kind"])
            await self._call("POST", path, manifest)

    async def replace(self, account: str) -> None:
        """The same name, another life: tokens of the former one are worth nothing."""
        path = self._path("ServiceAccount")
        await self._call("DELETE", f"{path}/{account}")
        await self._call("POST", path, {"metadata": {"name": account}})

    async def token(self, account: str) -> str:
        path = f"{self._path('ServiceAccount')}/{account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer: str = (await self._call("POST", path, request))["status"]["token"]
        return answer

    async def accepted(self, token: str) -> bool:
        """Whether the API server still knows the bearer."""
        async with self.plane.session() as session:
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get("/api", headers=headers) as answer:
                return answer.status == 200

    @asynccontextmanager
    async def client(self, account: str, folder: Path) -> AsyncIterator[KubeCluster]:
        file = folder / f"kubeconfig-{account}"
        authority = self.plane.authority.read_bytes()
        token = await self.token(account)
        write_kubeconfig(file, server=self.plane.url, authority=authority, user=account, token=token)
        cluster = await KubeCluster.connect(file)
        try:
            yield cluster
        finally:
            await cluster.close()

    def _path(self, kind: str) -> str:
        return f"{_PLACES[kind]}/namespaces/{self.namespace}/{kind.lower()}s"

    async def _call(self, method: str, path: str, body: Document | None = None) -> Document:
        async with self.plane.session(ADMIN) as session, session.request(method, path, json=body) as answer:
            assert answer.status < 300, await answer.text()
            found: Document = await answer.json()
            return found


@asynccontextmanager
async def accounts(plane: ControlPlane) -> AsyncIterator[Accounts]:
    """In a new namespace."""
    namespace = f"accounts-{uuid4().hex[:8]}"
    async with plane.session(ADMIN) as session:
        async with session.post("/api/v1/namespaces", json={"metadata": {"name": namespace}}) as answer:
            assert answer.status == 201, await answer.text()
        yield Accounts(plane, namespace)
        async with session.delete(f"/api/v1/namespaces/{namespace}") as answer:
            assert answer.status == 200, await answer.text()
