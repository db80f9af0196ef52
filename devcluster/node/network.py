"""The networks of the pods, as the zygote makes them: a namespace each, on one bridge in the zygote's own namespace.

Nothing of it is visible in the host's network, and all of it is gone with the zygote.
There is no route out of the bridge, on purpose: a connection to elsewhere fails at once instead of hanging.
"""

import os
import socket

from devcluster.node import kernel
from devcluster.node.netlink import Netlink

BRIDGE = "pods0"
PREFIX = 16


class PodNetworks:
    """Namespaces by pod; an open descriptor keeps each alive also while no process is in it."""

    def __init__(self, gateway: str) -> None:
        self._namespaces: dict[str, int] = {}
        self._own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._links = 0
        with Netlink() as netlink:
            netlink.set_up(socket.if_nametoindex("lo"))
            # A bridge without an address of its own takes one of its ports', and another when that port goes,
            # while the pods still send to the old one.
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
        """From inside the pod's namespace: the loopback interface, and a cable to the bridge."""
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
        """The kernel takes the namespace away, and the cable with it, when the last process in it is gone."""
        namespace = self._namespaces.pop(pod, None)
        if namespace is not None:
            os.close(namespace)

    def enter(self, pod: str) -> None:
        """For a process that is about to become a container."""
        namespace = self._namespaces.get(pod)
        if namespace is not None:
            kernel.setns(namespace, kernel.NEWNET)

    def socket(self, kind: str, bound: tuple[str, int] | None) -> socket.socket:
        """A socket in the network of the bridge, from which all pods are reached."""
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
    """From the address, so that what neighbours remember of an earlier pod is right for the next one, too."""
    return b"\x0a\x58" + socket.inet_aton(address)
