"""Definitions of custom resources for tests of API servers."""

from collections.abc import Mapping
from typing import Any

from shared.cluster import Manifest, Resource

INTEGER, STRING = {"type": "integer"}, {"type": "string"}


def an_object(properties: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The schema of an object with these properties."""
    return {"type": "object", "properties": properties} | more


STATUS = an_object({"phase": STRING, "replicas": INTEGER})


def a_version(name: str, spec: Mapping[str, Any], status: Mapping[str, Any] = STATUS, **more: Any) -> dict[str, Any]:
    """Served, but not stored, unless `more` says otherwise; `spec` and `status` are schemas."""
    schema = {"openAPIV3Schema": an_object({"spec": spec, "status": status})}
    return {"name": name, "served": True, "storage": False, "subresources": {"status": {}}, "schema": schema} | more


def scaling(replicas: str, status: str = ".status.replicas") -> dict[str, Any]:
    """Subresources: the status, and a scale that is this field of the spec."""
    return {"status": {}, "scale": {"specReplicasPath": replicas, "statusReplicasPath": status}}


def a_definition(resource: Resource[Any], *versions: Mapping[str, Any], **names: Any) -> Manifest:
    """Of a namespaced kind in these versions; without any, in one of its own without a schema."""
    given = {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind, **names}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {"group": resource.group, "scope": "Namespaced", "names": given, "versions": [*versions]},
    }
