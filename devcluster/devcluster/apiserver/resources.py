"""The kinds that are served: the built-in ones and those of custom resource definitions."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from devcluster.apiserver import cel
from devcluster.apiserver.errors import Json, qualified
from devcluster.apiserver.store import Key

STAGES = (None, "beta", "alpha")
"""The stages of a version, by the text in its name; a stable version has none."""
ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, kw_only=True, eq=False)
class Resource:
    """One kind in one served version."""

    group: str = ""
    version: str = "v1"
    plural: str
    kind: str
    singular: str = ""
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()
    """The fields that field selectors can use besides name and namespace."""
    renamed_fields: Mapping[str, str] = field(default_factory=dict)
    """The same, for fields that are stored under another path."""
    stored_as: Key | None = None
    """The key under which the objects are stored, if two kinds share them (the two kinds of Kubernetes Event)."""
    virtual: bool = False
    """True for a review: answered at once, never stored."""
    definition: Json | None = field(default=None, repr=False)
    """The version of the custom resource definition that this kind comes from."""
    schemas: Mapping[str, Json] = field(default_factory=dict, repr=False)
    """The schemas of all versions of a custom kind, served or not, by apiVersion."""
    stored_version: str = ""
    """The apiVersion in which a custom kind is stored."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self) -> Key:
        return self.stored_as or Key(self.group, self.plural)

    @property
    def qualified(self) -> str:
        return qualified(self.plural, self.group)

    @property
    def verbs(self) -> tuple[str, ...]:
        if self.virtual:
            return ("create",)
        # As in the real server, namespaces have no `deletecollection`.
        return tuple(verb for verb in ALL_VERBS if verb != "deletecollection" or self.plural != "namespaces")

    @property
    def selectable(self) -> dict[str, str]:
        """The fields that field selectors can use, and the paths where they are stored."""
        same = {path: path for path in self.fields | {"metadata.name", "metadata.namespace"}}
        return same | dict(self.renamed_fields)

    # Custom resources

    @property
    def custom(self) -> bool:
        return self.definition is not None

    @cached_property
    def schema(self) -> Json | None:
        schema: Json | None = ((self.definition or {}).get("schema") or {}).get("openAPIV3Schema")
        return schema

    @cached_property
    def ruled(self) -> Json | None:
        return cel.ruled_part(self.schema) if self.schema else None

    @property
    def columns(self) -> list[Json]:
        columns: list[Json] = (self.definition or {}).get("additionalPrinterColumns") or []
        return columns or [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]

    @property
    def scale(self) -> Json | None:
        scale: Json | None = ((self.definition or {}).get("subresources") or {}).get("scale")
        return scale


def _review(group: str, kind: str) -> Resource:
    return Resource(group=group, plural=kind.lower() + "s", kind=kind, namespaced=False, virtual=True)


RBAC = "rbac.authorization.k8s.io"
AUTHORIZATION = "authorization.k8s.io"
REFERENCE_FIELDS = ("apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid")

PODS = Resource(
    plural="pods",
    kind="Pod",
    short_names=("po",),
    categories=("all",),
    subresources=frozenset({"status", "log", "exec", "eviction"}),
    fields=frozenset({"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "status.phase", "status.podIP"}),
)
NAMESPACES = Resource(
    plural="namespaces",
    kind="Namespace",
    namespaced=False,
    short_names=("ns",),
    subresources=frozenset({"status"}),
    fields=frozenset({"status.phase"}),
)
NODES = Resource(
    plural="nodes",
    kind="Node",
    namespaced=False,
    short_names=("no",),
    subresources=frozenset({"status"}),
    fields=frozenset({"spec.unschedulable"}),
)
SERVICES = Resource(
    plural="services",
    kind="Service",
    short_names=("svc",),
    categories=("all",),
    subresources=frozenset({"status"}),
    fields=frozenset({"spec.clusterIP", "spec.type"}),
)
SECRETS = Resource(plural="secrets", kind="Secret", fields=frozenset({"type"}))
CONFIG_MAPS = Resource(plural="configmaps", kind="ConfigMap", short_names=("cm",))
EVENTS = Resource(
    plural="events",
    kind="Event",
    short_names=("ev",),
    fields=frozenset({"reason", "reportingComponent", "source", "type"})
    | {f"involvedObject.{name}" for name in REFERENCE_FIELDS},
)
NEW_EVENTS = Resource(
    group="events.k8s.io",
    plural="events",
    kind="Event",
    short_names=("ev",),
    fields=frozenset({"reason", "type"}),
    renamed_fields={"reportingController": "reportingComponent"}
    | {f"regarding.{name}": f"involvedObject.{name}" for name in REFERENCE_FIELDS},
    stored_as=EVENTS.key,
)
LEASES = Resource(group="coordination.k8s.io", plural="leases", kind="Lease")
DEFINITIONS = Resource(
    group="apiextensions.k8s.io",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    subresources=frozenset({"status"}),
)
API_SERVICES = Resource(group="apiregistration.k8s.io", plural="apiservices", kind="APIService", namespaced=False)
SUBJECT_REVIEW = _review("authentication.k8s.io", "SelfSubjectReview")
TOKEN_REVIEW = _review("authentication.k8s.io", "TokenReview")
ACCESS_REVIEWS = tuple(
    _review(AUTHORIZATION, kind)
    for kind in ("SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview")
)

BUILT_IN = (
    PODS,
    SERVICES,
    CONFIG_MAPS,
    SECRETS,
    EVENTS,
    NAMESPACES,
    NODES,
    Resource(plural="serviceaccounts", kind="ServiceAccount", short_names=("sa",), subresources=frozenset({"token"})),
    LEASES,
    NEW_EVENTS,
    Resource(group="discovery.k8s.io", plural="endpointslices", kind="EndpointSlice"),
    Resource(group=RBAC, plural="roles", kind="Role"),
    Resource(group=RBAC, plural="rolebindings", kind="RoleBinding"),
    Resource(group=RBAC, plural="clusterroles", kind="ClusterRole", namespaced=False),
    Resource(group=RBAC, plural="clusterrolebindings", kind="ClusterRoleBinding", namespaced=False),
    Resource(
        group="scheduling.k8s.io", plural="priorityclasses", kind="PriorityClass", namespaced=False, short_names=("pc",)
    ),
    DEFINITIONS,
    API_SERVICES,
    *ACCESS_REVIEWS,
    SUBJECT_REVIEW,
    TOKEN_REVIEW,
)


class Registry:
    """The kinds served now.  Custom kinds come and go with their definitions."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, str, str], Resource] = {}
        self._defined: dict[Key, tuple[Json, Json]] = {}
        """The spec and the accepted names of each served custom kind's definition."""
        for resource in BUILT_IN:
            self._add(resource)

    def _add(self, resource: Resource) -> None:
        self._resources[resource.group, resource.version, resource.plural] = resource

    def __iter__(self) -> Iterator[Resource]:
        return iter([*self._resources.values()])

    def get(self, group: str, version: str, plural: str) -> Resource | None:
        return self._resources.get((group, version, plural))

    def of(self, key: Key) -> Resource | None:
        """Any version of the kind that is stored under `key`."""
        return next((one for one in self._resources.values() if one.key == key and not one.virtual), None)

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        """The kind that an owner reference names, if that version is served."""
        found = (one for one in self if (one.api_version, one.kind) == (api_version, kind) and not one.virtual)
        return next(found, None)

    def groups(self) -> dict[str, list[str]]:
        """The versions of every group, the preferred one first."""
        groups: dict[str, list[str]] = {}
        for resource in self:
            versions = groups.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        return {group: sorted(versions, key=_preference) for group, versions in groups.items()}

    def define(self, definition: Json) -> None:
        """Serve exactly the versions of the definition from now on; without a change its `Resource`s stay the same."""
        key = stored_key(definition)
        defined = (definition["spec"], definition["status"].get("acceptedNames") or {})
        if is_established(definition) and defined == self._defined.get(key):
            return
        self.forget(definition)
        if is_established(definition):
            self._defined[key] = defined
            for resource in resources_of(definition):
                self._add(resource)

    def forget(self, definition: Json) -> None:
        key = stored_key(definition)
        self._defined.pop(key, None)
        for one in self:
            if one.custom and one.key == key:
                del self._resources[one.group, one.version, one.plural]


def stored_key(definition: Json) -> Key:
    """The store's key of the kind that a definition defines."""
    spec = definition["spec"]
    return Key(spec["group"], spec["names"]["plural"])


def is_established(definition: Json) -> bool:
    """True once the names were accepted: the kind is served from then on."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any((one.get("type"), one.get("status")) == ("Established", "True") for one in conditions)


def resources_of(definition: Json) -> Iterable[Resource]:
    """The kind in each served version, with the accepted names."""
    spec = definition["spec"]
    names: dict[str, Any] = spec["names"]
    accepted: dict[str, Any] = definition["status"].get("acceptedNames") or {}
    schemas = {f"{spec['group']}/{one['name']}": one["schema"]["openAPIV3Schema"] for one in spec["versions"]}
    stored = next(one["name"] for one in spec["versions"] if one.get("storage"))
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        yield Resource(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            singular=accepted.get("singular") or "",
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(accepted.get("shortNames") or ()),
            categories=tuple(accepted.get("categories") or ()),
            subresources=frozenset(
                name for name, value in (version.get("subresources") or {}).items() if value is not None
            ),
            definition=version,
            schemas=schemas,
            stored_version=f"{spec['group']}/{stored}",
        )


def _preference(version: str) -> tuple[int, int, int, str]:
    """The sort key of versions: stable, beta, alpha, each with the newest first; then other names, alphabetically."""
    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if not match:
        return len(STAGES), 0, 0, version
    return STAGES.index(match[2]), -int(match[1]), -int(match[3] or 0), version
