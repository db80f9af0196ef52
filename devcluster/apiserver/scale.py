"""The scale subresource of custom resources, for `kubectl scale`."""

from typing import Any

from devcluster.apiserver.errors import Json, invalid, invalid_value
from devcluster.apiserver.jsonpath import find

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
        # The real server omits a zero here, but not in the status.
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def write(paths: Json, obj: Json, wanted: Any) -> Json:
    """`obj` with the replicas of the Scale `wanted`; the Scale's resourceVersion and uid become preconditions."""
    metadata = wanted.get("metadata") if isinstance(wanted, dict) else None
    spec = wanted.get("spec") if isinstance(wanted, dict) else None
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    name = obj["metadata"]["name"]
    if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 0:
        cause = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
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
