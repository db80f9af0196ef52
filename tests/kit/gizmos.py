"""A custom resource served in two versions that know different fields, as the definitions of old operators are.

Objects are stored as v1.  There is a third version that is not served.
"""

from typing import Any

from shared.cluster import Resource
from shared.cluster.objects import Custom
from tests.kit.definitions import INTEGER, STRING, a_definition, a_version, an_object, scaling

GROUP = "versions.muster.dev"
GIZMOS = Resource(GROUP, "v1", "gizmos", "Gizmo", Custom)
NEW_GIZMOS = Resource(GROUP, "v2beta1", "gizmos", "Gizmo", Custom)
BOTH = (GIZMOS, NEW_GIZMOS)

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


def a_column(name: str) -> dict[str, Any]:
    return {"name": name.capitalize(), "type": "string", "jsonPath": f".spec.{name}"}


DEFINITION = a_definition(
    GIZMOS,
    a_version(
        NEW_GIZMOS.version,
        an_object(NEW_SPEC),
        subresources=scaling(".spec.replicas"),
        additionalPrinterColumns=[a_column("added"), a_column("colour")],
    ),
    a_version("v1alpha1", an_object({}), served=False),
    a_version(
        GIZMOS.version,
        an_object(OLD_SPEC),
        storage=True,
        subresources=scaling(".spec.slots"),
        additionalPrinterColumns=[{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
    ),
    shortNames=["gz"],
)


def a_gizmo(resource: Resource[Custom] = GIZMOS, name: str = "g", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}
