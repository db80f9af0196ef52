"""Discovery: which groups, versions and kinds there are, in the old form and the aggregated one."""

from devcluster.apiserver.errors import Json, no_such_path
from devcluster.apiserver.resources import Registry, Resource

AGGREGATED_VERSIONS = ("v2", "v2beta1")


def asked_aggregation(accept: str) -> str:
    """The newest version of aggregated discovery that the client accepts; empty for the old form."""
    wanted = accept.replace(" ", "")
    for version in AGGREGATED_VERSIONS:
        if f"g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList" in wanted:
            return version
    return ""


def aggregated_media(version: str) -> str:
    # kubectl compares the Content-Type with what it asked for, and takes the answer for the old form if it differs.
    return f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"


def aggregated(registry: Registry, *, core: bool, version: str) -> Json:
    items = []
    for group, versions in registry.groups().items():
        if (group == "") == core:
            listed = [
                {
                    "version": one,
                    "resources": [_discovered(resource) for resource in _in(registry, group, one)],
                    "freshness": "Current",
                }
                for one in versions
            ]
            items.append({"metadata": {"name": group, "creationTimestamp": None}, "versions": listed})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


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
    for resource in _in(registry, group, version):
        listed.append(_listed(resource))
        listed += [_listed_subresource(resource, name) for name in sorted(resource.subresources)]
    if not listed:
        raise no_such_path()
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def _in(registry: Registry, group: str, version: str) -> list[Resource]:
    return [resource for resource in registry if (resource.group, resource.version) == (group, version)]


def _singular(resource: Resource) -> str:
    return resource.singular or resource.kind.lower()


def _listed(resource: Resource) -> Json:
    return {
        "name": resource.plural,
        "singularName": _singular(resource),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": [*resource.verbs],
        **_words(resource),
    }


def _words(resource: Resource) -> Json:
    words = {"shortNames": [*resource.short_names], "categories": [*resource.categories]}
    return {name: values for name, values in words.items() if values}


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


def _discovered(resource: Resource) -> Json:
    discovered: Json = {
        "resource": resource.plural,
        "responseKind": _response_kind(resource, ""),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": _singular(resource),
        "verbs": [*resource.verbs],
        **_words(resource),
    }
    if resource.subresources:
        discovered["subresources"] = [
            {"subresource": name, "responseKind": _response_kind(resource, name), "verbs": _subresource_verbs(name)}
            for name in sorted(resource.subresources)
        ]
    return discovered


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
        case "exec" | "attach" | "portforward":
            return ["create", "get"]
        case "finalize":
            return ["update"]
        case _:
            return ["create"]
