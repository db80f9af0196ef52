"""The rules of the built-in kinds with few of them: defaults, and the changes that are refused."""

import base64

from devcluster.apiserver.errors import Cause, Json, forbidden_field, invalid_value
from devcluster.apiserver.kinds.rules import Rules
from devcluster.apiserver.names import label_1123
from devcluster.apiserver.quantity import parse_quantity
from devcluster.apiserver.shapes import CONFIG_MAP, NODE, SECRET, SERVICE, SPECIFIED

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


CONFIG_MAPS = Rules(shape=CONFIG_MAP, fill=_fill_config_map, wrong=_wrong_change)
LEASES = Rules(shape=SPECIFIED, fill=_fill_lease, requires_version=True, created_by_update=True)
NAMESPACES = Rules(shape=SPECIFIED, name=label_1123, fill=_fill_namespace)
NODES = Rules(shape=NODE, fill=_fill_node, wrong=_wrong_node)
RBAC = Rules(name=lambda name: "" if name.isprintable() and "/" not in name else "may not contain '/'")
"""RBAC objects may have names such as `system:node`."""
SECRETS = Rules(shape=SECRET, fill=_fill_secret, wrong=_wrong_change)
SERVICES = Rules(shape=SERVICE, name=label_1123, fill=_fill_service, created_by_update=True)
