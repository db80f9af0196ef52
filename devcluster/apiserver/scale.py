"""The scale subresource of custom resources: `kubectl scale` without knowing the kind."""

from typing import Any

from devcluster.apiserver.entry import as_text
from devcluster.apiserver.errors import Cause, Json, invalid, invalid_value
from devcluster.apiserver.jsonpath import find
from devcluster.apiserver.resources import Resource

MOST = 2**31 - 1
IDENTITY = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def read(paths: Json, obj: Json) -> Json:
    """The object as an autoscaling/v1 Scale."""
    status: Json = {"replicas": find(obj, paths["statusReplicasPath"]) or 0}
    replicas = find(obj, paths["specReplicasPath"]) or 0
    selector = find(obj, paths["labelSelectorPath"]) if paths.get("labelSelectorPath") else None
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: obj["metadata"][name] for name in IDENTITY if name in obj["metadata"]},
        # The real server leaves a nought out, here and not in the status.
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def scale_causes(resource: Resource, obj: Json) -> list[Cause]:
    """What keeps the object from being shown as a Scale."""
    paths = resource.scale
    if not paths:
        return []
    return [cause for name in ("specReplicasPath", "statusReplicasPath") for cause in _replica_causes(obj, paths[name])]


def _replica_causes(obj: Json, path: str) -> list[Cause]:
    value: Any = obj
    steps = path.strip(".").split(".")
    for depth, step in enumerate(steps):
        if not isinstance(value, dict):
            where = "." + ".".join(steps)
            wanted = f"accessor error: {_go(value)}, expected map[string]interface{{}}"
            return [invalid_value(path, 0, f"{where} {wanted}")] if depth else []
        if step not in value:
            return []
        value = value[step]
    if isinstance(value, bool) or not isinstance(value, int):
        return [invalid_value(path, 0, f".{'.'.join(steps)} accessor error: {_go(value)}, expected int64")]
    if value < 0:
        return [invalid_value(path, value, "should be a non-negative integer")]
    return [invalid_value(path, value, f"should be less than or equal to {MOST}")] if value > MOST else []


def _go(value: Any) -> str:
    """A value and its type as Go prints them."""
    names = {bool: "bool", str: "string", float: "float64", int: "int64", list: "[]interface {}"}
    text = f"{value:g}" if isinstance(value, float) else as_text(value) if value is not None else "<nil>"
    return f"{text} is of the type {names.get(type(value), '<nil>')}"


def write(paths: Json, obj: Json, wanted: Any) -> Json:
    """`obj` with the replicas of the Scale `wanted`, whose version and uid become preconditions."""
    metadata = wanted.get("metadata") if isinstance(wanted, dict) else None
    spec = wanted.get("spec") if isinstance(wanted, dict) else None
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    name = obj["metadata"]["name"]
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        cause = invalid_value("spec.replicas", replicas, "must be a number")
        raise invalid("autoscaling", "Scale", name, [cause])
    *parents, last = paths["specReplicasPath"].strip(".").split(".")
    parent = obj
    for step in parents:
        inner = parent.setdefault(step, {})
        if not isinstance(inner, dict):
            raise invalid(
                "autoscaling", "Scale", name, [invalid_value(paths["specReplicasPath"], None, "no such place")]
            )
        parent = inner
    parent[last] = replicas
    if isinstance(metadata, dict):
        for field in ("resourceVersion", "uid"):
            if metadata.get(field):
                obj["metadata"][field] = metadata[field]
    return obj
