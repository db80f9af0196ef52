"""Everything on one machine: the NATS server, the embedded cluster, and the four services as processes.

For the demo and the end-to-end tests.
"""

import asyncio
import base64
import os
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import yaml

from devcluster.child import Child
from devcluster.start import ADMIN as CLUSTER_ADMIN
from devcluster.start import Devcluster
from muster.crds import manifests
from shared.cluster import Resource
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import Custom
from shared.errors import Refused, Transient
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from shared.eventlog.subjects import ADMIN, READER
from shared.frameworks.training import SCALEINS, SCALEOUTS, TRAININGJOBS

SERVICES = ("watcher", "scheduler", "scaler", "status")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", Custom)
DIGITS = Path(__file__).parents[1] / "examples" / "digits"
READY_SECONDS = 20.0


class Stack:
    """`async with Stack(folder) as stack`: all of it is up; nothing is left after."""

    def __init__(self, data: Path, *, settings: Mapping[str, str] | None = None, audit: Path | None = None) -> None:
        """`settings` are environment variables for all services."""
        self.data = data.absolute()
        self.nats = NatsServer(self.data / "nats")
        self.cluster = Devcluster(self.data / "cluster", users=SERVICES, images={"muster-digits": DIGITS}, audit=audit)
        self._settings = dict(settings or {})
        self.services: dict[str, Child] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            self.data.mkdir(parents=True, exist_ok=True)
            # Two servers start side by side; both are slow in waiting, not in working.
            await asyncio.gather(
                self._stack.enter_async_context(self.nats), self._stack.enter_async_context(self.cluster)
            )
            await set_up(self.nats.url, user=ADMIN, password=self.nats.users[ADMIN])
            self.kube = await KubeCluster.connect(self.cluster.kubeconfig(CLUSTER_ADMIN))
            self._stack.push_async_callback(self.kube.close)
            await self._apply_crds()
            self._stack.push_async_callback(self.stop_services)
            for name in SERVICES:
                self.services[name] = Child(
                    f"the {name}",
                    [sys.executable, "-m", f"services.{name}"],
                    self.data / f"{name}.log",
                    self.environment(name) | self._settings,
                )
                self.services[name].start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def environment(self, user: str) -> dict[str, str]:
        """What makes a process `user` at the log and in the cluster; the reader has no service."""
        at_cluster = user if user in SERVICES else CLUSTER_ADMIN
        return {
            "KUBECONFIG": str(self.cluster.kubeconfig(at_cluster)),
            "NATS_URL": self.nats.url,
            "NATS_USER": user,
            "NATS_PASSWORD": self.nats.users[user],
        }

    def reader(self) -> dict[str, str]:
        """The environment of somebody who looks and asks."""
        return self.environment(READER)

    async def stop_services(self) -> None:
        """End the four in order; what they leave undone is owed again by the next start."""
        await asyncio.gather(*(service.stop() for service in self.services.values()))

    async def logs(self, namespace: str, pod: str, *, follow: bool = False) -> AsyncIterator[str]:
        """A pod's log, line by line."""
        config = yaml.safe_load(self.cluster.kubeconfig(CLUSTER_ADMIN).read_text())
        server, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(server["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        url = f"{server['server']}/api/v1/namespaces/{namespace}/pods/{pod}/log"
        headers = {"Authorization": f"Bearer {user['token']}"}
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
            session.get(url, params={"follow": str(follow).lower()}, headers=headers, ssl=context) as answer,
        ):
            if answer.status != 200:
                raise Transient(f"logs of {pod}: {answer.status}")
            async for line in answer.content:
                yield line.decode(errors="replace").rstrip("\n")

    async def _apply_crds(self) -> None:
        for manifest in manifests():
            try:
                await self.kube.create(CRDS, "", manifest)
            except Refused as refusal:
                if refusal.reason != "AlreadyExists":
                    raise
        deadline = asyncio.get_running_loop().time() + READY_SECONDS
        for resource in (TRAININGJOBS, SCALEINS, SCALEOUTS):
            name = f"{resource.plural}.{resource.group}"
            while not _established(await self.kube.get(CRDS, "", name)):
                if asyncio.get_running_loop().time() > deadline:
                    raise Transient(f"{name} is not served after {READY_SECONDS:.0f} s")
                await asyncio.sleep(0.05)


def _established(crd: Custom | None) -> bool:
    status = crd.status if crd is not None and isinstance(crd.status, dict) else {}
    return any(known["type"] == "Established" and known["status"] == "True" for known in status.get("conditions", ()))


def scratch() -> Path:
    """A folder of one's own for a stack, short enough for socket names."""
    return Path(tempfile.mkdtemp(prefix="muster-", dir=os.environ.get("TMPDIR")))
