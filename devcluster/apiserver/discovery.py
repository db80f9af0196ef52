"""Discovery: which groups, versions and kinds there are, one document each."""

from devcluster.apiserver.errors import Json, no_such_path
from devcluster.apiserver.resources import Registry, Resource


def core_versions() -> Json:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def groups(registry: Registry) -> Json:
    listed = [_group(group, versions) for group, versions in registry.groups().items() if group]
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
    kind = _response_kind(resource, name)
    return {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "group": kind["group"],
        "version": kind["version"],
        "kind": kind["kind"],
        "verbs": _subresource_verbs(name),
    }


def _response_kind(resource: Resource, subresource: str) -> Json:
    if subresource == "scale":
        return {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    if subresource == "eviction":
        # By this kubectl knows that it can drain a node with evictions, and need not simply delete.
        return {"group": "policy", "version": "v1", "kind": "Eviction"}
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _subresource_verbs(name: str) -> list[str]:
    match name:
        case "status" | "scale":
            return ["get", "patch", "update"]
        case "log":
            return ["get"]
        case "exec":
            return ["create", "get"]
        case _:
            return ["create"]
