"""The networks of the pods: a namespace for each, on one bridge in the zygote's namespace.

The host's network does not see them, and they end with the zygote.
The bridge has no route to the outside, so that a connection to elsewhere fails at once instead of hanging.
`Netlink` has the few requests of rtnetlink that this needs; `ip` would cost a process for each request.
"""

import os
import socket
import struct

from devcluster.node import kernel

_ERROR, _NEW_LINK, _SET_LINK, _DELETE_LINK, _NEW_ADDRESS = 2, 16, 19, 17, 20
_REQUEST, _ACK, _CREATE, _EXCLUSIVE = 0x1, 0x4, 0x400, 0x200
_LINK_ADDRESS, _LINK_NAME, _LINK_MASTER, _LINK_INFO, _LINK_NAMESPACE = 1, 3, 10, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_ADDRESS_ADDRESS, _ADDRESS_LOCAL = 1, 2
_UP = 1

Attribute = tuple[int, bytes]


class Netlink:
    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))

    def __enter__(self) -> "Netlink":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def add_bridge(self, name: str, hardware: bytes) -> None:
        info = _attributes((_INFO_KIND, b"bridge"))
        attributes = [_name(name), (_LINK_ADDRESS, hardware), (_LINK_INFO, info)]
        self._link(_NEW_LINK, _CREATE | _EXCLUSIVE, attributes=attributes)

    def add_pair(self, name: str, hardware: bytes, *, peer: str, peer_namespace: int) -> None:
        """Add a veth pair: `name` here, with this hardware address; `peer` in the namespace of that descriptor."""
        other = _link_header() + _attributes(_name(peer), (_LINK_NAMESPACE, struct.pack("I", peer_namespace)))
        data = _attributes((_VETH_PEER, other))
        info = _attributes((_INFO_KIND, b"veth"), (_INFO_DATA, data))
        attributes = [_name(name), (_LINK_ADDRESS, hardware), (_LINK_INFO, info)]
        self._link(_NEW_LINK, _CREATE | _EXCLUSIVE, attributes=attributes)

    def set_up(self, index: int, *, master: int = 0) -> None:
        attributes = [(_LINK_MASTER, struct.pack("I", master))] if master else []
        self._link(_SET_LINK, 0, index, _UP, attributes)

    def delete(self, index: int) -> None:
        self._link(_DELETE_LINK, 0, index)

    def add_address(self, index: int, address: str, prefix: int) -> None:
        packed = socket.inet_aton(address)
        header = struct.pack("BBBBI", socket.AF_INET, prefix, 0, 0, index)
        body = header + _attributes((_ADDRESS_LOCAL, packed), (_ADDRESS_ADDRESS, packed))
        self._call(_NEW_ADDRESS, _CREATE | _EXCLUSIVE, body)

    def _link(
        self, kind: int, flags: int, index: int = 0, up: int = 0, attributes: "list[Attribute] | None" = None
    ) -> None:
        self._call(kind, flags, _link_header(index, up) + _attributes(*attributes or ()))

    def _call(self, kind: int, flags: int, body: bytes) -> None:
        header = struct.pack("IHHII", 16 + len(body), kind, _REQUEST | _ACK | flags, 1, 0)
        self._socket.send(header + body)
        reply = self._socket.recv(65536)
        (answer,) = struct.unpack_from("H", reply, 4)
        assert answer == _ERROR, f"rtnetlink answered a request of kind {kind} with {answer}"
        (number,) = struct.unpack_from("i", reply, 16)
        if number:
            raise OSError(-number, f"rtnetlink request {kind}: {os.strerror(-number)}")


def _link_header(index: int = 0, up: int = 0) -> bytes:
    return struct.pack("BxHiII", socket.AF_UNSPEC, 0, index, up, up)


def _name(name: str) -> Attribute:
    return _LINK_NAME, name.encode() + b"\0"


def _attributes(*attributes: Attribute) -> bytes:
    packed = b""
    for kind, value in attributes:
        packed += struct.pack("HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)
    return packed


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
