"""The rules of each built-in kind, besides those of all objects: field types, names, defaults, validation.

`RULES` has an entry for each kind with such rules; objects of the others are stored as they were sent.
Custom resources are in `custom.py`, pods in `pods.py`.  These modules use neither HTTP nor the store.
Kubernetes Events have one store, and are served in the shape of the core group and in that of events.k8s.io.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from devcluster.apiserver import custom, pods, resources
from devcluster.apiserver.errors import Cause, Json, forbidden_field, invalid_value
from devcluster.apiserver.metadata import NameRule, label_1123, subdomain
from devcluster.apiserver.pods import parse_quantity
from devcluster.apiserver.shapes import ANYTHING, CONFIG_MAP, DEFINITION, EVENT, NODE, POD, SECRET, SERVICE, SPECIFIED
from devcluster.apiserver.store import Key


@dataclass(frozen=True, kw_only=True)
class Rules:
    shape: Any = ANYTHING
    """The types of its fields."""
    name: NameRule = subdomain
    fill: Callable[[Json, Json | None], None] = lambda _obj, _old: None
    """Complete the object in place with defaults; `old` is the object before an update."""
    wrong: Callable[[Json, Json | None], list[Cause]] = lambda _obj, _old: []
    """The causes for which the completed object is invalid; the second argument is the object before an update."""
    counts_generations: bool = False
    """True if `metadata.generation` grows with every change of the spec."""
    created_by_update: bool = False
    """True if a PUT of an object that does not exist creates it."""
    requires_version: bool = False
    """True if a write must name the resourceVersion that it replaces; a patch names it unless it removes the field."""


NAME_LABEL = "kubernetes.io/metadata.name"


def _fill_config_map(config: Json, old: Json | None) -> None:
    for field in ("data", "binaryData"):
        if not config.get(field):
            config.pop(field, None)


def _fill_secret(secret: Json, old: Json | None) -> None:
    plain = secret.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        secret["data"] = (secret.get("data") or {}) | encoded
    if not secret.get("data"):
        secret.pop("data", None)
    secret["type"] = secret.get("type") or "Opaque"


def _wrong_change(thing: Json, old: Json | None) -> list[Cause]:
    if old is None or not old.get("immutable"):
        return []
    return [
        forbidden_field(field, "field is immutable when `immutable` is set")
        for field in ("data", "binaryData", "immutable")
        if (thing.get(field) or {}) != (old.get(field) or {})
    ]


def _fill_lease(lease: Json, old: Json | None) -> None:
    lease["spec"] = lease.get("spec") or {}


def _fill_namespace(namespace: Json, old: Json | None) -> None:
    metadata = namespace["metadata"]
    metadata["labels"] = (metadata.get("labels") or {}) | {NAME_LABEL: metadata["name"]}
    if old is None:
        namespace["spec"] = {"finalizers": ["kubernetes"]}
        namespace["status"] = {"phase": "Active"}
    else:
        namespace["spec"] = old["spec"]


def _fill_node(node: Json, old: Json | None) -> None:
    node["spec"] = node.get("spec") or {}
    node["status"] = node.get("status") or {}


def _wrong_node(node: Json, old: Json | None) -> list[Cause]:
    causes = []
    for name, text in (node["status"].get("allocatable") or {}).items():
        try:
            parse_quantity(text)
        except ValueError as error:
            causes.append(invalid_value(f"status.allocatable.{name}", text, str(error)))
    return causes


def _fill_service(service: Json, old: Json | None) -> None:
    """A Service has no ClusterIP, because there is no proxy: its name resolves to the addresses of its pods."""
    spec = service["spec"] = service.get("spec") or {}
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        # A Service without a selector may have endpoints with any address.
        any_family = spec.get("clusterIP") == "None" and not spec.get("selector")
        spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if any_family else ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "RequireDualStack" if any_family else "SingleStack")
        if spec.get("clusterIP"):
            spec.setdefault("clusterIPs", [spec["clusterIP"]])
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if "port" in port:
            port.setdefault("targetPort", port["port"])
    if old is None:
        service["status"] = {"loadBalancer": {}}


CORE_EVENT_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
"""The fields of events.k8s.io/v1 that have another name in the core group."""

NEW_EVENT_NAMES = {core: new for new, core in CORE_EVENT_NAMES.items()}


def to_core_event(event: Json) -> Json:
    return {CORE_EVENT_NAMES.get(name, name): value for name, value in event.items()}


def from_core_event(event: Json) -> Json:
    return {NEW_EVENT_NAMES.get(name, name): value for name, value in event.items()}


def _fill_event(event: Json, old: Json | None) -> None:
    for field in ("involvedObject", "source"):
        event[field] = event.get(field) or {}
    for field in ("eventTime", "firstTimestamp", "lastTimestamp"):
        event.setdefault(field, None)
    event.setdefault("reportingComponent", event["source"].get("component", ""))
    event.setdefault("reportingInstance", event["source"].get("host", ""))


_CONFIG_MAPS = Rules(shape=CONFIG_MAP, fill=_fill_config_map, wrong=_wrong_change)
_LEASES = Rules(shape=SPECIFIED, fill=_fill_lease, requires_version=True, created_by_update=True)
_NAMESPACES = Rules(shape=SPECIFIED, name=label_1123, fill=_fill_namespace)
_NODES = Rules(shape=NODE, fill=_fill_node, wrong=_wrong_node)
_RBAC = Rules(name=lambda name: "" if name.isprintable() and "/" not in name else "may not contain '/'")
"""RBAC objects may have names such as `system:node`."""
_SECRETS = Rules(shape=SECRET, fill=_fill_secret, wrong=_wrong_change)
_SERVICES = Rules(shape=SERVICE, name=label_1123, fill=_fill_service, created_by_update=True)
_PODS = Rules(shape=POD, fill=pods.fill, wrong=pods.wrong, counts_generations=True)
_EVENTS = Rules(shape=EVENT, fill=_fill_event, created_by_update=True)
_DEFINITIONS = Rules(
    shape=DEFINITION,
    fill=custom.fill_definition,
    wrong=custom.wrong_definition,
    counts_generations=True,
    requires_version=True,
)


RULES: dict[Key, Rules] = {
    resources.PODS.key: _PODS,
    resources.SERVICES.key: _SERVICES,
    resources.CONFIG_MAPS.key: _CONFIG_MAPS,
    resources.SECRETS.key: _SECRETS,
    resources.EVENTS.key: _EVENTS,
    resources.NAMESPACES.key: _NAMESPACES,
    resources.NODES.key: _NODES,
    resources.LEASES.key: _LEASES,
    resources.DEFINITIONS.key: _DEFINITIONS,
    **{
        Key(resources.RBAC, plural): _RBAC
        for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
    },
}

NO_RULES = Rules()
