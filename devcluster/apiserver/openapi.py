"""OpenAPI v3, as far as kubectl reads it.

`kubectl explain` shows the schemas of custom kinds, and kubectl leaves the validation of fields to a server that says
that it validates.
"""

from devcluster.apiserver.errors import Json, no_such_path
from devcluster.apiserver.resources import Registry, Resource

# kubectl looks for `fieldValidation` among the parameters of `patch`.
PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string"}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def index(registry: Registry) -> Json:
    """The documents there are."""
    paths = {_path(one): {"serverRelativeURL": f"/openapi/v3/{_path(one)}"} for one in registry if not one.virtual}
    return {"paths": paths}


def document(registry: Registry, path: str) -> Json:
    served = [one for one in registry if _path(one) == path and not one.virtual]
    if not served:
        raise no_such_path()
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes (development server)", "version": "v1.32"},
        "paths": {f"/{path}/{one.plural}/{{name}}": {"patch": _patch(one)} for one in served},
        "components": {"schemas": {_schema_name(one): _schema(one) for one in served if one.schema}},
    }


def _path(resource: Resource) -> str:
    return f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"


def _patch(resource: Resource) -> Json:
    return {
        "x-kubernetes-group-version-kind": _kind(resource),
        "x-kubernetes-action": "patch",
        "parameters": PARAMETERS,
    }


def _schema_name(resource: Resource) -> str:
    return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])


def _schema(resource: Resource) -> Json:
    return {**(resource.schema or {}), "x-kubernetes-group-version-kind": [_kind(resource)]}


def _kind(resource: Resource) -> Json:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}
