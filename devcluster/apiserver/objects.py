"""Creating, updating and patching objects as the real API server does it: what is checked, kept, counted and refused.

Everything here is synchronous, so that each write is made on the state it was checked against.
Deleting is in `deletion.py`; HTTP is in `handlers.py`.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

from devcluster.apiserver.deletion import finish
from devcluster.apiserver.entry import Entry, Place
from devcluster.apiserver.errors import (
    ApiError,
    Cause,
    Json,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    forbidden_field,
    invalid,
    invalid_value,
    method_not_allowed,
    modified,
    not_found,
)
from devcluster.apiserver.kinds import NO_RULES, RULES, custom, definitions, events
from devcluster.apiserver.kinds.rules import Rules
from devcluster.apiserver.metadata import (
    check_type,
    give_identity,
    keep_identity,
    place_of,
    read_metadata,
    settle_name,
    settle_namespace,
)
from devcluster.apiserver.names import metadata_causes
from devcluster.apiserver.resources import DEFINITIONS, EVENTS, NAMESPACES, NODES, Registry, Resource
from devcluster.apiserver.schema import same
from devcluster.apiserver.shapes import check_shape
from devcluster.apiserver.store import Change, Store

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
UNSAVED = 0
"""The version of an entry that only shows what a write would have stored (dry run)."""


@dataclass(frozen=True, kw_only=True)
class Write:
    """How a write is to be done."""

    dry_run: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)
    """Filled while writing; the client is shown them."""
    must_say_version: bool = False
    """A PUT, which replaces what its author has read."""


class Objects:
    """The store with the API's rules around it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.registry = Registry()
        for entry in store.all(DEFINITIONS.key):
            self.registry.define(entry.object())
        store.listeners.append(self._follow_definitions)
        for name in SYSTEM_NAMESPACES:
            if not store.get(NAMESPACES.key, Place("", name)):
                self.create(NAMESPACES, "", {"metadata": {"name": name}}, Write())

    def _follow_definitions(self, change: Change) -> None:
        if change.key == DEFINITIONS.key:
            if change.type == "DELETED":
                self.registry.forget(change.entry.object())
            else:
                self.registry.define(change.entry.object())

    def find(self, resource: Resource, place: Place) -> Entry:
        entry = self.store.get(resource.key, place)
        if entry is None:
            raise not_found(resource.group, resource.plural, place.name)
        return entry

    # Creating

    def create(self, resource: Resource, namespace: str, obj: object, how: Write) -> Entry:
        new = check_type(resource, obj)
        dropped = read_metadata(resource, new)
        metadata = new["metadata"]
        settle_namespace(resource, metadata, namespace)
        settle_name(resource, metadata)
        self._check_open(resource, place_of(metadata))
        for name in ("uid", "resourceVersion", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(name, None)
        # Whoever creates an object says what it shall be; how it is, is written to the status subresource.
        if "status" in resource.subresources and resource.key != NODES.key:
            new.pop("status", None)
        new = self._admit(resource, new, None, how, dropped)
        if self.store.get(resource.key, place_of(metadata)):
            raise already_exists(resource.group, resource.plural, metadata["name"])
        give_identity(new["metadata"])
        if _counts_generations(resource):
            new["metadata"]["generation"] = 1
        if resource.key == DEFINITIONS.key:
            new["status"] = definitions.established(new, None)
        if how.dry_run:
            return Entry(new, UNSAVED)
        return self.store.put(resource.key, new)

    def _check_open(self, resource: Resource, place: Place) -> None:
        """Nothing is created in a namespace that is missing or going away, nor of a kind that is."""
        if resource.custom:
            definition = self.store.get(DEFINITIONS.key, Place("", resource.qualified))
            if definition and definition.deleting:
                raise method_not_allowed()
        if not resource.namespaced:
            return
        namespace = self.store.get(NAMESPACES.key, Place("", place.namespace))
        if namespace is None:
            raise not_found("", "namespaces", place.namespace)
        if namespace.deleting:
            why = f"unable to create new content in namespace {place.namespace} because it is being terminated"
            cause = Cause(
                "metadata.namespace", "NamespaceTerminating", f"namespace {place.namespace} is being terminated"
            )
            raise forbidden(resource.group, resource.plural, place.name, why, [cause])

    def _admit(self, resource: Resource, new: Json, old: Json | None, how: Write, dropped: list[str]) -> Json:
        """`new` in the form in which it is stored: converted, completed, found valid."""
        rules = _rules(resource)
        if resource.key == EVENTS.key and resource is not EVENTS:
            new = events.to_core(new) | {"apiVersion": EVENTS.api_version}
        check_shape(rules.shape, new, f'{resource.kind} in version "{resource.version}"')
        if resource.custom:
            dropped = dropped + custom.fill(resource, new)
        rules.fill(new, old)
        _tell_of_dropped_fields(resource, dropped, how)
        causes = metadata_causes(new["metadata"], rules.name) if _metadata_changed(new, old) else []
        causes += custom.wrong(resource, new, old) if resource.custom else rules.wrong(new, old)
        if resource.key == EVENTS.key and resource is not EVENTS and old is None:
            causes += events.wrong_in_the_new_group(new)
        if causes:
            raise invalid(resource.group, resource.kind, new["metadata"]["name"], causes)
        return new

    # Changing

    def update(self, resource: Resource, place: Place, obj: object, how: Write, subresource: str = "") -> Entry:
        """Replace the object, or only its status."""
        old = self.find(resource, place)
        new = check_type(resource, obj)
        dropped = read_metadata(resource, new)
        name = new["metadata"].get("name")
        if name != place.name:
            raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({place.name})")
        return self._replace(resource, old, new, how, subresource=subresource, dropped=dropped)

    def patch(
        self, resource: Resource, place: Place, change: Callable[[Json], object], how: Write, subresource: str = ""
    ) -> Entry:
        """Replace the object by what `change` makes of it; versions and uids that it brings in are preconditions."""
        old = self.find(resource, place)
        new = check_type(resource, change(self.served(resource, old)))
        dropped = read_metadata(resource, new)
        if new["metadata"].get("name") != place.name:
            cause = invalid_value("metadata.name", new["metadata"].get("name"), "field is immutable")
            raise invalid(resource.group, resource.kind, place.name, [cause])
        return self._replace(resource, old, new, how, subresource=subresource, dropped=dropped)

    def _replace(
        self, resource: Resource, entry: Entry, new: Json, how: Write, *, subresource: str, dropped: list[str]
    ) -> Entry:
        old, metadata = entry.object(), new["metadata"]
        settle_namespace(resource, metadata, entry.place.namespace)
        self._check_preconditions(resource, entry, metadata, how)
        keep_identity(metadata, old["metadata"])
        metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        if subresource == "status":
            new = _only_status(resource, new, self.served(resource, entry))
        elif "status" in resource.subresources:
            new = {name: value for name, value in new.items() if name != "status"}
            if "status" in old:
                new["status"] = copy.deepcopy(old["status"])
        before = self.served(resource, entry) if resource.custom else old
        new = self._admit(resource, new, before, how, dropped)
        self._check_finalizers(resource, new, old)
        if resource.key == DEFINITIONS.key and subresource != "status":
            new["status"] = definitions.established(new, old)
        if _counts_generations(resource) and _spec_changed(resource, new, before):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        # A write that changes nothing is no write: nobody is told of it, and no version is spent on it.
        if same(new, before) or how.dry_run:
            return entry if same(new, before) else Entry(new, entry.version)
        return finish(self.store, resource.key, new)

    def _check_preconditions(self, resource: Resource, entry: Entry, metadata: Json, how: Write) -> None:
        version = metadata.get("resourceVersion", "")
        if not version and how.must_say_version and (resource.custom or _rules(resource).must_say_version):
            cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(resource.group, resource.kind, entry.place.name, [cause])
        uid = metadata.get("uid", "")
        if uid and uid != entry.uid:
            raise conflict(resource.group, resource.plural, entry.place.name, uid_mismatch(uid, entry.uid))
        if version not in ("", "0", str(entry.version)):
            raise modified(resource.group, resource.plural, entry.place.name)

    def _check_finalizers(self, resource: Resource, new: Json, old: Json) -> None:
        if not old["metadata"].get("deletionTimestamp"):
            return
        added = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
        if added:
            names = ", ".join(f'"{name}"' for name in sorted(added))
            detail = f"no new finalizers can be added if the object is being deleted, found new finalizers [{names}]"
            cause = forbidden_field("metadata.finalizers", detail)
            raise invalid(resource.group, resource.kind, new["metadata"]["name"], [cause])

    # Reading

    def served(self, resource: Resource, entry: Entry) -> Json:
        """The object as this kind and version show it."""
        obj = entry.object()
        if resource.key == EVENTS.key and resource is not EVENTS:
            obj = events.from_core(obj)
        obj["apiVersion"] = resource.api_version
        return obj


def uid_mismatch(wanted: str, found: str) -> str:
    return f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"


def _rules(resource: Resource) -> Rules:
    return NO_RULES if resource.custom else RULES.get(resource.key, NO_RULES)


def _counts_generations(resource: Resource) -> bool:
    return resource.custom or _rules(resource).counts_generations


def _metadata_changed(new: Json, old: Json | None) -> bool:
    return old is None or new["metadata"] != old["metadata"]


def _only_status(resource: Resource, new: Json, old: Json) -> Json:
    """The old object with the new status; of built-in kinds the labels and annotations may change with it."""
    changed = {name: value for name, value in old.items() if name != "status"}
    if "status" in new:
        changed["status"] = new["status"]
    if not resource.custom:
        kept = {name: value for name, value in old["metadata"].items() if name not in ("labels", "annotations")}
        along = {name: new["metadata"][name] for name in ("labels", "annotations") if name in new["metadata"]}
        changed["metadata"] = kept | along
    return changed


def _spec_changed(resource: Resource, new: Json, old: Json) -> bool:
    ignored = {"metadata", "status"} if "status" in resource.subresources else {"metadata"}
    return not same(
        {name: value for name, value in new.items() if name not in ignored},
        {name: value for name, value in old.items() if name not in ignored},
    )


def _tell_of_dropped_fields(resource: Resource, dropped: list[str], how: Write) -> None:
    if not dropped or how.field_validation == "Ignore":
        return
    unknown = [f'unknown field "{path}"' for path in dropped]
    if how.field_validation == "Strict":
        raise ApiError(
            400,
            "BadRequest",
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}:'
            f" strict decoding error: {', '.join(unknown)}",
        )
    how.warnings.extend(unknown)
