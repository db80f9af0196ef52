"""Discovery: the groups, versions and kinds, and the part of OpenAPI v3 that kubectl reads.

`kubectl explain` shows the schemas of custom kinds.  kubectl leaves the validation of fields to a server whose OpenAPI
document has the parameter `fieldValidation`.
"""

from collections.abc import Iterable

from devcluster.apiserver.errors import Json, no_such_path
from devcluster.apiserver.resources import Registry, Resource


def core_versions() -> Json:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def groups(registry: Registry, aggregated: Iterable[Json] = ()) -> Json:
    """All groups; `aggregated` are those of other servers."""
    listed = [*aggregated]
    listed += [_group(group, versions) for group, versions in registry.groups().items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def group(registry: Registry, name: str) -> Json:
    versions = registry.groups().get(name)
    if not name or not versions:
        raise no_such_path()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def _group(name: str, versions: list[str]) -> Json:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def resources(registry: Registry, group: str, version: str) -> Json:
    listed: list[Json] = []
    for resource in (one for one in registry if (one.group, one.version) == (group, version)):
        listed.append(_listed(resource))
        listed += [_listed_subresource(resource, name) for name in sorted(resource.subresources)]
    if not listed:
        raise no_such_path()
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def _listed(resource: Resource) -> Json:
    words = {"shortNames": [*resource.short_names], "categories": [*resource.categories]}
    return {
        "name": resource.plural,
        "singularName": resource.singular or resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": [*resource.verbs],
        **{name: values for name, values in words.items() if values},
    }


def _listed_subresource(resource: Resource, name: str) -> Json:
    return {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        **_response_kind(resource, name),
        "verbs": _subresource_verbs(name),
    }


def _response_kind(resource: Resource, subresource: str) -> Json:
    if subresource == "scale":
        return {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    if subresource == "eviction":
        # With this, `kubectl drain` evicts pods instead of deleting them.
        return {"group": "policy", "version": "v1", "kind": "Eviction"}
    return _kind(resource)


def _subresource_verbs(name: str) -> list[str]:
    verbs = {"log": ["get"], "exec": ["create", "get"], "eviction": ["create"]}
    return verbs.get(name, ["get", "patch", "update"])


KIND = "x-kubernetes-group-version-kind"

# kubectl looks for `fieldValidation` among the parameters of `patch`.
PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string"}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def openapi_paths(registry: Registry) -> Json:
    """The OpenAPI documents, for the index."""
    return {_path(one): {"serverRelativeURL": f"/openapi/v3/{_path(one)}"} for one in registry if not one.virtual}


def openapi_document(registry: Registry, path: str) -> Json:
    served = [one for one in registry if _path(one) == path and not one.virtual]
    if not served:
        raise no_such_path()
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes (development server)", "version": "v1.32"},
        "paths": {f"/{path}/{one.plural}/{{name}}": {"patch": _patch(one)} for one in served},
        "components": {"schemas": {_name(one): one.schema | {KIND: [_kind(one)]} for one in served if one.schema}},
    }


def _path(resource: Resource) -> str:
    return f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"


def _patch(resource: Resource) -> Json:
    return {KIND: _kind(resource), "x-kubernetes-action": "patch", "parameters": PARAMETERS}


def _name(resource: Resource) -> str:
    return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])


def _kind(resource: Resource) -> Json:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}
