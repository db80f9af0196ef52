"""The DNS names of a cluster, computed from the Services and this node's pods, and the server that answers for them.

There are no endpoints and no slices: a name exists as soon as its pod has an address.  Pods of other nodes have no
names here, because this node cannot reach them.
The server has A and PTR records, and NXDOMAIN at once for other names.  It serves UDP only: an answer that is too large
has the addresses that fit, instead of sending the client to TCP.
"""

import asyncio
import ipaddress
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

from devcluster.client import Json

DOMAIN = "cluster.local"


class Named(Protocol):
    """The parts of a pod that its names need."""

    namespace: str
    hostname: str
    subdomain: str

    @property
    def labels(self) -> dict[str, str]: ...
    @property
    def address(self) -> str: ...
    @property
    def serving(self) -> bool: ...


class Names:
    def __init__(self, pods: Callable[[], Iterable[Named]], fixed: Mapping[str, str]) -> None:
        """`fixed` has the addresses of names without a Service."""
        self._pods = pods
        self._fixed = fixed
        self._services: dict[tuple[str, str], Json] = {}
        self._places: dict[str, tuple[str, str]] = {}

    def service_changed(self, service: Json) -> None:
        metadata = service["metadata"]
        place = metadata["namespace"], metadata["name"]
        self._places[metadata["uid"]] = place
        self._services[place] = service

    def service_gone(self, uid: str) -> None:
        place = self._places.pop(uid, None)
        # The next Service of the name may have arrived before the deletion of this one.
        if place and self._services[place]["metadata"]["uid"] == uid:
            del self._services[place]

    def resolve(self, name: str) -> list[str] | None:
        """The addresses of a full name; None if it does not exist."""
        if name in self._fixed:
            return [self._fixed[name]]
        labels = name.removesuffix(f".svc.{DOMAIN}").split(".")
        if not name.endswith(f".svc.{DOMAIN}") or not 2 <= len(labels) <= 3:
            return None
        *host, service_name, namespace = labels
        service = self._services.get((namespace, service_name))
        if service is None or service["spec"].get("type") == "ExternalName":
            return None
        pods = self._behind(service)
        if host:
            pods = [pod for pod in pods if [pod.hostname] == host and pod.subdomain == service_name]
            return sorted({pod.address for pod in pods}, key=ipaddress.IPv4Address) or None
        return sorted({pod.address for pod in pods}, key=ipaddress.IPv4Address)

    def reverse(self, address: str) -> str | None:
        for pod in self._pods():
            if pod.address == address:
                return full_name(pod)
        return None

    def _behind(self, service: Json) -> list[Named]:
        selector = service["spec"].get("selector") or {}
        unready_too = service["spec"].get("publishNotReadyAddresses", False)
        return [
            pod
            for pod in self._pods()
            if selector
            and pod.address
            and pod.namespace == service["metadata"]["namespace"]
            and selector.items() <= pod.labels.items()
            and (unready_too or pod.serving)
        ]


def full_name(pod: Named) -> str | None:
    """The pod's DNS name; None for a pod without hostname or subdomain."""
    if not pod.hostname or not pod.subdomain:
        return None
    return f"{pod.hostname}.{pod.subdomain}.{pod.namespace}.svc.{DOMAIN}"


def hosts_file(pod: Named, hostname: str, aliases: Iterable[Json]) -> str:
    """`/etc/hosts` as the kubelet writes it: with the pod's own name and its hostAliases."""
    lines = [
        "# Kubernetes-managed hosts file.",
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        "fe00::0\tip6-localnet",
        "fe00::0\tip6-mcastprefix",
        "fe00::1\tip6-allnodes",
        "fe00::2\tip6-allrouters",
    ]
    own = [f"{hostname}.{pod.subdomain}.{pod.namespace}.svc.{DOMAIN}"] if pod.subdomain else []
    lines.append("\t".join([pod.address, *own, hostname]))
    lines += ["\t".join([alias["ip"], *alias.get("hostnames", ())]) for alias in aliases]
    return "\n".join(lines) + "\n"


def resolver_file(spec: Json, namespace: str, server: str) -> str:
    """`/etc/resolv.conf`, with the entries of the pod's dnsConfig last."""
    config = spec.get("dnsConfig") or {}
    servers, searches, options = [], [], []
    if spec.get("dnsPolicy", "ClusterFirst") != "None":
        servers = [server]
        searches = [f"{namespace}.svc.{DOMAIN}", f"svc.{DOMAIN}", DOMAIN]
        options = ["ndots:5"]
    servers += config.get("nameservers") or ()
    searches += [search for search in config.get("searches") or () if search not in searches]
    for option in config.get("options") or ():
        options = [one for one in options if one.partition(":")[0] != option["name"]]
        options.append(f"{option['name']}:{option['value']}" if option.get("value") else option["name"])
    lines = [f"search {' '.join(searches)}"] if searches else []
    lines += [f"nameserver {one}" for one in servers]
    lines += [f"options {' '.join(options)}"] if options else []
    return "\n".join(lines) + "\n"


TTL = 5
"""Seconds that clients may cache an answer, as with other cluster DNS servers."""

A, PTR, OPT, IN = 1, 12, 41, 1
NOERROR, FORMERR, NXDOMAIN, NOTIMP = 0, 1, 3, 4
PLAIN_SIZE = 512
"""The most bytes that a client without EDNS accepts."""

Resolve = Callable[[str], Sequence[str] | None]
"""The addresses of a name in lower case without its last dot; None when there is no such name."""

Reverse = Callable[[str], str | None]


class Malformed(Exception):  # noqa: N818 - it names the message's state
    """The query cannot be parsed."""


def answer(query: bytes, resolve: Resolve, reverse: Reverse) -> bytes | None:
    """The reply to a query; None for a message that is not a query."""
    if len(query) < 12:
        return None
    number, flags, questions, _, _, additional = struct.unpack_from("!6H", query)
    if flags & 0x8000:
        return None
    if flags & 0x7800 or questions != 1:
        return _reply(number, flags, NOTIMP)
    try:
        name, end = _read_name(query, 12)
        kind, record_class = struct.unpack_from("!HH", query, end)
        size = _accepted_size(query, end + 4, additional)
    except (Malformed, struct.error, IndexError):
        return _reply(number, flags, FORMERR)
    question = query[12 : end + 4]
    records = _records(name, resolve, reverse) if record_class == IN else None
    if records is None:
        return _reply(number, flags, NXDOMAIN, question)
    room = (size - 12 - len(question)) // max((len(record) + 12 for _, record in records), default=1)
    matching = [_record(record_kind, data) for record_kind, data in records if record_kind == kind]
    return _reply(number, flags, NOERROR, question, matching[:room])


def _records(name: str, resolve: Resolve, reverse: Reverse) -> list[tuple[int, bytes]] | None:
    if name.endswith(".in-addr.arpa"):
        host = reverse(".".join(reversed(name.removesuffix(".in-addr.arpa").split("."))))
        return [(PTR, _packed_name(host))] if host else None
    addresses = resolve(name)
    if addresses is None:
        return None
    return [(A, ipaddress.IPv4Address(address).packed) for address in addresses]


def _record(kind: int, data: bytes) -> bytes:
    # The record's name is a pointer to the question's.
    return struct.pack("!HHHIH", 0xC00C, kind, IN, TTL, len(data)) + data


def _reply(number: int, flags: int, code: int, question: bytes = b"", answers: Sequence[bytes] = ()) -> bytes:
    # The flags: a reply, authoritative, and recursion available, because some resolvers ignore a server without it.
    header = struct.pack("!6H", number, 0x8480 | (flags & 0x0100) | code, 1 if question else 0, len(answers), 0, 0)
    return header + question + b"".join(answers)


def _read_name(message: bytes, at: int) -> tuple[str, int]:
    """The name in lower case, and the position after it; questions have no compression."""
    labels = []
    while length := message[at]:
        if length > 63:
            raise Malformed
        labels.append(message[at + 1 : at + 1 + length].decode("ascii", errors="replace").lower())
        at += 1 + length
    return ".".join(labels), at + 1


def _packed_name(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def _accepted_size(query: bytes, at: int, additional: int) -> int:
    # An OPT record has the root as its name, and the size in the field of the class.
    if additional and query[at : at + 1] == b"\0":
        kind, size = struct.unpack_from("!HH", query, at + 1)
        if kind == OPT:
            return max(int(size), PLAIN_SIZE)
    return PLAIN_SIZE


class DnsServer(asyncio.DatagramProtocol):
    def __init__(self, resolve: Resolve, reverse: Reverse) -> None:
        self._resolve = resolve
        self._reverse = reverse

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # In some versions of Python the transport is no instance of DatagramTransport.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, sender: tuple[str | Any, int]) -> None:
        reply = answer(data, self._resolve, self._reverse)
        if reply:
            self._transport.sendto(reply, sender)
