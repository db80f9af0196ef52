"""The node itself: what its pods share, and its object at the API server.

The Node is created at the start, and kept Ready by a Lease, whose renewals do not reach watches of nodes.
"""

import asyncio
import ipaddress
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from devcluster.client import MERGE, STRATEGIC_MERGE, Json, Kubernetes, Refused, Trouble, path_of
from devcluster.clock import now
from devcluster.node.environment import Images
from devcluster.node.runtime import Runtime
from devcluster.node.status import Recorder


class Addresses:
    """The addresses of one node's pods, taken in turn, so that each is reused as late as possible."""

    def __init__(self, network: str) -> None:
        self._network = ipaddress.IPv4Network(network)
        self.gateway = str(self._network.network_address + 1)
        self._used: set[str] = set()
        self._turn = self._forever()

    def _forever(self) -> Iterator[str]:
        while True:
            for address in self._network.hosts():
                if str(address) != self.gateway:
                    yield str(address)

    def take(self) -> str:
        """Return an unused address; the network has far more addresses than a node has pods."""
        address = next(address for address in self._turn if address not in self._used)
        self._used.add(address)
        return address

    def give_back(self, address: str) -> None:
        self._used.discard(address)


@dataclass(frozen=True, kw_only=True)
class Machine:
    folder: Path
    api: Kubernetes
    runtime: Runtime
    addresses: Addresses
    images: Images
    recorder: Recorder
    host_address: str
    resolver: str
    """The address of the name server."""
    restart_delay: float
    """Seconds of a container's first CrashLoopBackOff."""


LEASE_NAMESPACE = "kube-node-lease"
LEASES = "apis/coordination.k8s.io/v1"
LEASE_SECONDS = 40
RENEWAL = 10.0
STATUS_EVERY = 300.0
"""Seconds between two writes of an unchanged status, as with the kubelet."""

log = structlog.get_logger()


@dataclass(kw_only=True)
class Registration:
    api: Kubernetes
    name: str
    address: str
    port: int
    """The port of the kubelet API."""
    most_pods: int
    _ready_since: str = field(default_factory=now)

    async def register(self) -> None:
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": _architecture(),
        }
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": labels}, "spec": {}}
        try:
            await self.api.insist("POST", path_of("nodes"), node)
        except Refused as refusal:
            if refusal.reason != "AlreadyExists":
                raise
        await self._write_status(ready=True)

    async def leave(self) -> None:
        """Make the node not ready; the object stays, as for a machine that was shut down."""
        await self._write_status(ready=False)

    async def heartbeat(self) -> None:
        loop = asyncio.get_running_loop()
        written = loop.time()
        while True:
            try:
                await self._renew()
                if loop.time() - written >= STATUS_EVERY:
                    await self._write_status(ready=True)
                    written = loop.time()
            except Trouble as trouble:
                log.debug("no heartbeat", problem=str(trouble))
            await asyncio.sleep(RENEWAL)

    async def _renew(self) -> None:
        try:
            await self.api.call("GET", path_of("nodes", name=self.name))
        except Refused as refusal:
            if refusal.reason != "NotFound":
                raise
            # The Node was deleted, or the API server has a new store.
            await self.register()
        spec = {
            "holderIdentity": self.name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now().replace("Z", ".000000Z"),
        }
        path = path_of("leases", LEASE_NAMESPACE, self.name, group=LEASES)
        try:
            await self.api.call("PATCH", path, {"spec": spec}, media=MERGE)
        except Refused as refusal:
            if refusal.reason != "NotFound":
                raise
            await self._make_lease(spec)

    async def _make_lease(self, spec: Json) -> None:
        metadata = {"name": self.name, "namespace": LEASE_NAMESPACE}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        await self.api.call("POST", path_of("leases", LEASE_NAMESPACE, group=LEASES), lease)

    async def _write_status(self, *, ready: bool) -> None:
        path = path_of("nodes", "", self.name, "status")
        await self.api.insist("PATCH", path, {"status": self._status(ready=ready)}, media=STRATEGIC_MERGE)

    def _status(self, *, ready: bool) -> Json:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024
        room = {"cpu": str(os.cpu_count() or 1), "memory": f"{memory}Ki", "pods": str(self.most_pods)}
        condition = {
            "type": "Ready",
            "status": "True" if ready else "False",
            "reason": "KubeletReady" if ready else "KubeletNotReady",
            "message": "the node agent runs" if ready else "the node agent was stopped",
            "lastHeartbeatTime": now(),
            "lastTransitionTime": self._ready_since if ready else now(),
        }
        return {
            "addresses": [
                {"type": "InternalIP", "address": self.address},
                {"type": "Hostname", "address": self.name},
            ],
            "capacity": room,
            "allocatable": room,
            "conditions": [condition],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
            # Without this the API server would translate exec to SPDY, which this node does not serve.
            "declaredFeatures": ["ExtendWebSocketsToKubelet"],
            "nodeInfo": {
                "architecture": _architecture(),
                "bootID": "",
                "containerRuntimeVersion": "process://1",
                "kernelVersion": platform.release(),
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.32.0+muster",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "processes of the host",
                "systemUUID": "",
            },
        }


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
