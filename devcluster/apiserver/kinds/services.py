"""Services.  Nothing proxies here, so no ClusterIP is given out: names resolve to the pods themselves."""

from devcluster.apiserver.errors import Cause, Json, duplicate, forbidden_field, invalid_value, not_supported, required
from devcluster.apiserver.kinds.rules import Rules
from devcluster.apiserver.names import label_1123
from devcluster.apiserver.shapes import Service

PROTOCOLS = ("SCTP", "TCP", "UDP")
TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def fill(service: Json, old: Json | None) -> None:
    spec = service["spec"] = service.get("spec") or {}
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        # What has no selector may be served by any address.
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


def wrong(service: Json, old: Json | None) -> list[Cause]:
    spec = service["spec"]
    causes = []
    if spec["type"] == "ExternalName" and spec.get("clusterIP"):
        causes.append(forbidden_field("spec.clusterIPs", "may not be set for ExternalName services"))
    if spec["type"] not in TYPES:
        causes.append(not_supported("spec.type", spec["type"], TYPES))
    ports = spec.get("ports") or []
    if not ports and spec.get("clusterIP") != "None" and spec["type"] != "ExternalName":
        causes.append(required("spec.ports"))
    names: set[str] = set()
    taken: set[tuple[object, ...]] = set()
    for index, port in enumerate(ports):
        causes += _wrong_port(port, f"spec.ports[{index}]", names, several=len(ports) > 1)
        one = (port.get("port"), port.get("protocol"))
        if one in taken:
            causes.append(duplicate(f"spec.ports[{index}]", port))
        taken.add(one)
    if old is not None and (before := old["spec"].get("clusterIP")) and spec.get("clusterIP") != before:
        causes.append(invalid_value("spec.clusterIP", spec.get("clusterIP"), "field is immutable"))
    return causes


def _wrong_port(port: Json, path: str, names: set[str], *, several: bool) -> list[Cause]:
    causes = []
    name = port.get("name") or ""
    if several and not name:
        causes.append(required(f"{path}.name"))
    elif name and (problem := label_1123(name)):
        causes.append(invalid_value(f"{path}.name", name, problem))
    elif name and name in names:
        causes.append(duplicate(f"{path}.name", name))
    names.add(name)
    if port.get("protocol", "TCP") not in PROTOCOLS:
        causes.append(not_supported(f"{path}.protocol", port["protocol"], PROTOCOLS))
    number = port.get("port")
    if number is None or not 1 <= number <= 65535:
        for field in ("port", "targetPort") if port.get("targetPort") == number else ("port",):
            causes.append(invalid_value(f"{path}.{field}", number or 0, "must be between 1 and 65535, inclusive"))
    return causes


RULES = Rules(shape=Service, name=label_1123, fill=fill, wrong=wrong, created_by_update=True)
