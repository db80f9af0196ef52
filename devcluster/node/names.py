"""The DNS names of a cluster, computed from the Services and this node's pods.

There are no endpoints and no slices: a name exists as soon as its pod has an address.  Pods of other nodes have no
names here, because this node cannot reach them.
"""

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from devcluster.node.kubernetes import Json

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
