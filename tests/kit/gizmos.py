"""A custom resource served in two versions that know different fields, as the definitions of old operators are.

Objects are stored as v1.  There is a third version that is not served.
"""

from collections.abc import Mapping
from typing import Any

from shared.cluster import Manifest, Resource
from shared.cluster.objects import Custom

GROUP = "versions.muster.dev"
GIZMOS = Resource(GROUP, "v1", "gizmos", "Gizmo", Custom)
NEW_GIZMOS = Resource(GROUP, "v2beta1", "gizmos", "Gizmo", Custom)
BOTH = (GIZMOS, NEW_GIZMOS)

INTEGER, STRING = {"type": "integer"}, {"type": "string"}
OLD_SPEC: dict[str, Any] = {
    "size": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3},
    "colour": {"type": "string", "enum": ["red", "blue"]},
    "replicas": INTEGER,
    "slots": {"type": "integer", "default": 1},
}
NEW_SPEC: dict[str, Any] = {
    "size": {"type": "integer", "minimum": 5},
    "colour": {"type": "string", "default": "blue"},
    "replicas": INTEGER,
    "added": STRING,
}


def a_version(name: str, spec: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Served, but not stored, unless `more` says otherwise; `spec` is what its spec may have."""
    status = {"phase": STRING, "replicas": INTEGER}
    schemas = {"spec": {"type": "object", "properties": spec}, "status": {"type": "object", "properties": status}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": schemas}}
    return {"name": name, "served": True, "storage": False, "subresources": {"status": {}}, "schema": schema} | more


def scaling(replicas: str) -> dict[str, Any]:
    return {"status": {}, "scale": {"specReplicasPath": replicas, "statusReplicasPath": ".status.replicas"}}


def a_column(name: str) -> dict[str, Any]:
    return {"name": name.capitalize(), "type": "string", "jsonPath": f".spec.{name}"}


DEFINITION: Manifest = {
    "metadata": {"name": f"{GIZMOS.plural}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": GIZMOS.plural, "singular": "gizmo", "kind": GIZMOS.kind, "shortNames": ["gz"]},
        "versions": [
            a_version(
                NEW_GIZMOS.version,
                NEW_SPEC,
                subresources=scaling(".spec.replicas"),
                additionalPrinterColumns=[a_column("added"), a_column("colour")],
            ),
            a_version("v1alpha1", {}, served=False),
            a_version(
                GIZMOS.version,
                OLD_SPEC,
                storage=True,
                subresources=scaling(".spec.slots"),
                additionalPrinterColumns=[{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
            ),
        ],
    },
}


def a_gizmo(resource: Resource[Custom] = GIZMOS, name: str = "g", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}
