"""OpenAPI v3, as far as kubectl reads it: which fields `explain` shows, and that the server validates fields itself."""

import copy
import hashlib

import msgspec

from devcluster.apiserver.errors import Json, no_such_path
from devcluster.apiserver.resources import Registry, Resource

JSON = "application/json"
# kubectl looks for this parameter of `patch` before it leaves validation to the server.
PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string"}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def index(registry: Registry) -> Json:
    """The documents there are; the hash tells clients when to read one again."""
    paths = {}
    for group, versions in registry.groups().items():
        for version in versions:
            path = _path(group, version)
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={_hash(registry, group, version)}"}
    return {"paths": paths}


def document(registry: Registry, path: str) -> Json:
    for group, versions in registry.groups().items():
        for version in versions:
            if _path(group, version) == path:
                return _document(_served(registry, group, version))
    raise no_such_path()


def _path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _served(registry: Registry, group: str, version: str) -> list[Resource]:
    return [one for one in registry if (one.group, one.version) == (group, version) and not one.virtual]


def _hash(registry: Registry, group: str, version: str) -> str:
    described = [[one.plural, one.schema] for one in _served(registry, group, version)]
    return hashlib.sha256(msgspec.json.encode(described)).hexdigest().upper()


def _document(resources: list[Resource]) -> Json:
    paths: Json = {}
    schemas: Json = {}
    for resource in resources:
        name = _schema_name(resource)
        schemas[name] = _schema(resource)
        scope = "namespaces/{namespace}/" if resource.namespaced else ""
        path = f"/{_path(resource.group, resource.version)}/{scope}{resource.plural}"
        paths[path] = {"get": _operation(resource, name, "list"), "post": _operation(resource, name, "post")}
        paths[path + "/{name}"] = {
            method: _operation(resource, name, method) for method in ("get", "put", "patch", "delete")
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes (development server)", "version": "v1.32"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _schema_name(resource: Resource) -> str:
    if not resource.group:
        return f"io.k8s.api.core.{resource.version}.{resource.kind}"
    return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])


def _schema(resource: Resource) -> Json:
    schema: Json = copy.deepcopy(resource.schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    common = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    schema["properties"] = (schema.get("properties") or {}) | common
    schema["x-kubernetes-group-version-kind"] = [_group_version_kind(resource)]
    return schema


def _group_version_kind(resource: Resource) -> Json:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _operation(resource: Resource, schema_name: str, action: str) -> Json:
    content = {"content": {JSON: {"schema": {"$ref": f"#/components/schemas/{schema_name}"}}}}
    operation: Json = {
        "x-kubernetes-group-version-kind": _group_version_kind(resource),
        "x-kubernetes-action": action,
        "parameters": PARAMETERS,
        "responses": {"200": {"description": "OK", **content}},
    }
    if action in ("post", "put", "patch"):
        operation["requestBody"] = content
    return operation
