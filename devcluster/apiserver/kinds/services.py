"""Services.  Nothing proxies here, so no ClusterIP is given out: names resolve to the pods themselves."""

from devcluster.apiserver.errors import Cause, Json, duplicate, invalid_value, not_supported, required
from devcluster.apiserver.kinds.rules import Rules
from devcluster.apiserver.names import label_1035, label_1123
from devcluster.apiserver.shapes import Service

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def fill(service: Json, old: Json | None) -> None:
    spec = service["spec"] = service.get("spec") or {}
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if "port" in port:
            port.setdefault("targetPort", port["port"])
    if old is None:
        service["status"] = {"loadBalancer": {}}


def wrong(service: Json, old: Json | None) -> list[Cause]:
    spec = service["spec"]
    causes = []
    if spec["type"] not in TYPES:
        causes.append(not_supported("spec.type", spec["type"], TYPES))
    ports = spec.get("ports") or []
    if not ports and spec.get("clusterIP") != "None" and spec["type"] != "ExternalName":
        causes.append(required("spec.ports"))
    names: set[str] = set()
    for index, port in enumerate(ports):
        causes += _wrong_port(port, f"spec.ports[{index}]", names, several=len(ports) > 1)
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
    number = port.get("port")
    if number is None or not 1 <= number <= 65535:
        causes.append(invalid_value(f"{path}.port", number or 0, "must be between 1 and 65535, inclusive"))
    return causes


RULES = Rules(shape=Service, name=label_1035, fill=fill, wrong=wrong)
