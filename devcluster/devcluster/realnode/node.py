"""The node as one async context beside a running control plane, and both as one cluster."""

import asyncio
import fcntl
import functools
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Self

from devcluster import binaries
from devcluster.certificates import Credentials
from devcluster.child import Child
from devcluster.cluster import ADMIN, NODE_USER, is_ready
from devcluster.controlplane import ControlPlane, More
from devcluster.node.network import Netlink
from devcluster.node.relay import out_to, relaying
from devcluster.realnode import images, leftovers, machine, settings

NAME = "muster-node"
USER = NODE_USER + NAME
"""The control plane must know this user: `ControlPlane(folder, users=[USER], nodes=0)`."""

HTTPS = 443
"""The port of the Service `kubernetes`; the API server itself listens on another."""

READY_TIMEOUT = 60.0
"""Seconds until each program serves, and until the node is Ready; on two idle cores all of it takes about seven."""


class NodeError(Exception):
    """The node cannot be started; the message has the reason and the remedy."""


def obstacle() -> str:
    """Why a node cannot be started on this machine, and the remedy; empty if it can."""
    if reason := machine.unfit():
        return reason
    if lacking := machine.missing():
        return f"not installed: {', '.join(lacking)}; `python -m devcluster.realnode` installs them"
    for program in binaries.NODE:
        try:
            binaries.find(program)
        except binaries.MissingProgram as problem:
            return str(problem)
    return ""


class RealNode:
    """`async with RealNode(plane, folder)`: entered, the node is Ready; left, it is removed from the machine."""

    def __init__(self, plane: ControlPlane, data: Path, pod_images: Mapping[str, Path] | None = None) -> None:
        """`pod_images` maps image names to folders with their code, as in the embedded cluster; there is also
        `shell:1`, a minimal Debian.  Logs of the programs are in `data`.

        Entering raises NodeError, ImageError, LeftoverError and ChildError.
        """
        assert USER in plane.users, f"the control plane does not know {USER}"
        self.plane = plane
        self.data = data.absolute()
        self._pod_images = dict(pod_images or {})
        self._stack = AsyncExitStack()
        containerd = ["containerd", "--config", str(machine.DATA / "containerd.toml")]
        self.containerd = Child("containerd", containerd, self.data / "containerd.log", {})
        self.kubelet = Child("the kubelet", [], self.data / "kubelet.log", {})
        self.dns = Child("CoreDNS", [], self.data / "coredns.log", {})

    async def __aenter__(self) -> Self:
        if reason := obstacle():
            raise NodeError(reason)
        archive = await asyncio.to_thread(images.archive, self._pod_images)
        self.data.mkdir(parents=True, exist_ok=True)
        try:
            self._stack.enter_context(_only_node())
            await asyncio.to_thread(leftovers.clean)
            self._stack.push_async_callback(asyncio.to_thread, leftovers.clean)
            self._prepare()
            await self._relay_to_the_api_server()
            self._stack.push_async_callback(self._stop)
            self._start_dns()
            await self._start_containerd(archive)
            self._start_kubelet()
            async with self.plane.session() as session:
                await self.kubelet.until(functools.partial(is_ready, session, NAME), READY_TIMEOUT)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _prepare(self) -> None:
        for folder in (machine.STATE, machine.DATA, machine.DATA / "cni", machine.POD_LOGS):
            folder.mkdir(parents=True, exist_ok=True)
        cni = machine.cni_folder()
        assert cni is not None, "looked for before"
        (machine.DATA / "containerd.toml").write_text(settings.containerd(cni))
        (machine.DATA / "cni" / "pods.conflist").write_text(settings.pod_network())
        (machine.DATA / "Corefile").write_text(settings.coredns(self.plane.kubeconfig(ADMIN)))
        resolv_conf = machine.DATA / "resolv.conf"
        resolv_conf.write_text(settings.resolv_conf())
        authority = Credentials(self.plane.data).kubelet_client
        (machine.DATA / "kubelet.json").write_text(settings.kubelet(authority, resolv_conf))
        leftovers.remember_sysctls()
        leftovers.make_cgroups()
        _make_bridge(self.plane.address)

    async def _relay_to_the_api_server(self) -> None:
        """Relay the Service address of the API server, `KUBERNETES_SERVICE_HOST`, as kube-proxy would."""
        address = self.plane.address
        listening = relaying(out_to(self.plane.url), lambda relay: asyncio.start_server(relay, address, HTTPS))
        await self._stack.enter_async_context(listening)

    def _start_dns(self) -> None:
        self.dns.command = [str(binaries.find("coredns")), "-conf", str(machine.DATA / "Corefile")]
        self.dns.start()

    async def _start_containerd(self, archive: Path) -> None:
        self.containerd.start()
        ask = ["ctr", "--address", str(machine.CONTAINERD_SOCKET), "--namespace", "k8s.io"]
        await self.containerd.until(functools.partial(_succeeds, *ask, "version"), READY_TIMEOUT)
        done = await asyncio.to_thread(
            subprocess.run, [*ask, "images", "import", str(archive)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise NodeError(f"containerd did not import {archive}: {done.stderr[-2000:]}")

    def _start_kubelet(self) -> None:
        self.kubelet.command = [
            str(binaries.find("kubelet")),
            f"--config={machine.DATA / 'kubelet.json'}",
            f"--kubeconfig={self.plane.kubeconfig(USER)}",
            f"--hostname-override={NAME}",
            f"--node-ip={machine.GATEWAY}",
            f"--root-dir={machine.KUBELET_FOLDER}",
            f"--cert-dir={machine.KUBELET_FOLDER}/pki",
        ]
        self.kubelet.start()

    async def _stop(self) -> None:
        """Stop the programs, the kubelet first, or it restarts its pods; the clean-up ends what still runs."""
        await self.kubelet.stop()
        await asyncio.gather(self.dns.stop(), asyncio.to_thread(leftovers.end_pods))
        await self.containerd.stop()


@contextmanager
def _only_node() -> Iterator[None]:
    """Hold the machine's lock.  Raises NodeError if another run has it."""
    with machine.LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NodeError("another real node runs on this machine; only one can") from None
        yield


def _make_bridge(apiserver: str) -> None:
    """Make the bridge before the CNI plugin does with the first pod: the kubelet and the DNS need its address."""
    with Netlink() as netlink:
        netlink.add_bridge(machine.BRIDGE, bytes([0x02, 0x00, *socket.inet_aton(machine.GATEWAY)]))
        bridge = socket.if_nametoindex(machine.BRIDGE)
        netlink.add_address(bridge, machine.GATEWAY, machine.PREFIX)
        netlink.add_address(bridge, apiserver, 32)
        netlink.set_up(bridge)


async def _succeeds(*command: str) -> bool:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    return await process.wait() == 0


class RealCluster(ControlPlane):
    def __init__(
        self,
        data: Path,
        users: Sequence[str] = (),
        images: Mapping[str, Path] | None = None,
        *,
        audit: Path | None = None,
        more: More | None = None,
        accounts: bool = False,
    ) -> None:
        super().__init__(
            data, [*users, USER], nodes=0, audit=audit, more=more, accounts=accounts, services=machine.SERVICES
        )
        self.real_node = RealNode(self, self.data / "node", images)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            await self.real_node.__aenter__()
        except BaseException:
            await self._leave()
            raise
        return self

    async def _leave(self) -> None:
        # The node stops first: it ends its pods, and writes that to the API server.
        await self.real_node.__aexit__(None, None, None)
        await super()._leave()
