"""The networks of the pods: a namespace for each, on one bridge in the zygote's namespace.

The host's network does not see them, and they end with the zygote.
The bridge has no route to the outside, so that a connection to elsewhere fails at once instead of hanging.
"""

import os
import socket

from devcluster.node import kernel
from devcluster.node.netlink import Netlink

BRIDGE = "pods0"
PREFIX = 16


class PodNetworks:
    """Network namespaces by pod; an open descriptor keeps each one, even without a process in it."""

    def __init__(self, gateway: str) -> None:
        self._namespaces: dict[str, int] = {}
        self._own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._links = 0
        with Netlink() as netlink:
            netlink.set_up(socket.if_nametoindex("lo"))
            # A bridge without its own hardware address takes that of a port, and changes it when the port is removed,
            # while pods still send to the old one.
            netlink.add_bridge(BRIDGE, _hardware(gateway))
            self._bridge = socket.if_nametoindex(BRIDGE)
            netlink.add_address(self._bridge, gateway, PREFIX)
            netlink.set_up(self._bridge)

    def add(self, pod: str, address: str) -> None:
        if pod in self._namespaces:
            return
        kernel.unshare(kernel.NEWNET)
        try:
            namespace = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._connect(address)
            except OSError:
                os.close(namespace)
                raise
        finally:
            kernel.setns(self._own, kernel.NEWNET)
        self._namespaces[pod] = namespace

    def _connect(self, address: str) -> None:
        """Set up the loopback interface and a veth pair to the bridge, from inside the pod's namespace."""
        with Netlink() as inside:
            inside.set_up(socket.if_nametoindex("lo"))
            namespace = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            self._links += 1
            cable = f"pod{self._links}"
            inside.add_pair("eth0", _hardware(address), peer=cable, peer_namespace=self._own)
            kernel.setns(self._own, kernel.NEWNET)
            try:
                with Netlink() as outside:
                    outside.set_up(socket.if_nametoindex(cable), master=self._bridge)
            finally:
                kernel.setns(namespace, kernel.NEWNET)
                os.close(namespace)
            index = socket.if_nametoindex("eth0")
            inside.add_address(index, address, PREFIX)
            inside.set_up(index)

    def remove(self, pod: str) -> None:
        """Let go of a namespace; the kernel removes it and its veth pair with the last process in it."""
        namespace = self._namespaces.pop(pod, None)
        if namespace is not None:
            os.close(namespace)

    def enter(self, pod: str) -> None:
        """Move this process, which becomes a container, into the pod's namespace."""
        namespace = self._namespaces.get(pod)
        if namespace is not None:
            kernel.setns(namespace, kernel.NEWNET)

    def socket(self, kind: str, bound: tuple[str, int] | None) -> socket.socket:
        """A socket in the bridge's network, which reaches all pods."""
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
        try:
            if bound:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                made.bind(bound)
        except OSError:
            made.close()
            raise
        return made


def _hardware(address: str) -> bytes:
    """A hardware address made from the IP address, so that neighbours' ARP caches stay right when it is reused."""
    return b"\x0a\x58" + socket.inet_aton(address)
