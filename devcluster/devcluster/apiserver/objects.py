"""Creating, updating and patching objects with the checks of the real API server.

All functions are synchronous, so that no other write comes between the checks of a write and its storing.
Deleting is in `deletion.py`; HTTP is in `handlers.py`.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from devcluster.apiserver import custom, errors, pods
from devcluster.apiserver.deletion import finish
from devcluster.apiserver.errors import Cause, Json
from devcluster.apiserver.kinds import NO_RULES, RULES, Rules, from_core_event, to_core_event
from devcluster.apiserver.metadata import (
    check_type,
    give_identity,
    keep_identity,
    metadata_causes,
    place_of,
    read_metadata,
    settle_name,
    settle_namespace,
)
from devcluster.apiserver.ownership import OURS, Writer, owned
from devcluster.apiserver.resources import DEFINITIONS, EVENTS, NAMESPACES, NODES, PODS, Registry, Resource
from devcluster.apiserver.schema import apply_defaults, prune, same
from devcluster.apiserver.shapes import check_shape
from devcluster.apiserver.store import Change, Entry, Place, Store
from devcluster.clock import now

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
UNSAVED = 0
"""The version of the entry that answers a dry run."""


@dataclass(frozen=True, kw_only=True)
class Write:
    dry_run: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)
    """Filled during the write, and sent to the client."""
    replaces: bool = False
    """True for a PUT, which replaces the version that the client has read."""
    writer: Writer = OURS


class Objects:
    """The store behind the API's rules."""

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
            raise errors.not_found(resource.group, resource.plural, place.name)
        return entry

    # Creating

    def create(self, resource: Resource, namespace: str, obj: object, how: Write) -> Entry:
        return self._create(resource, namespace, _read(resource, obj, how), how)

    def _create(self, resource: Resource, namespace: str, new: Json, how: Write) -> Entry:
        metadata = new["metadata"]
        settle_namespace(resource, metadata, namespace)
        settle_name(metadata)
        self._check_open(resource, place_of(metadata))
        version = metadata.pop("resourceVersion", "")
        for name in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(name, None)
        # A client that creates an object gives its spec; the status is written to its subresource.
        if "status" in resource.subresources and resource.key != NODES.key:
            new.pop("status", None)
        self._admit(resource, new, None, how)
        if version.isdecimal() and version.strip("0") and not how.dry_run:
            raise errors.ApiError(500, "", "resourceVersion should not be set on objects to be created")
        taken = self.store.get(resource.key, place_of(metadata))
        if taken:
            raise errors.already_exists(resource.group, resource.plural, metadata["name"], ending=taken.deleting)
        give_identity(new["metadata"])
        if _counts_generations(resource):
            new["metadata"]["generation"] = 1
        if resource.custom:
            new["metadata"]["managedFields"] = owned(None, new, how.writer, now())
        if resource.key == DEFINITIONS.key:
            new["status"] = custom.established(new)
        if how.dry_run:
            # As the real server: the answer to a dry run has the client's resourceVersion.
            new["metadata"] |= {"resourceVersion": version} if version else {}
            return Entry(custom.stored(resource, new), UNSAVED)
        return self.store.put(resource.key, custom.stored(resource, new))

    def _check_open(self, resource: Resource, place: Place) -> None:
        """Raise if the namespace is missing or being deleted, or if the definition of the kind is."""
        if resource.custom:
            definition = self.store.get(DEFINITIONS.key, Place("", resource.qualified))
            if definition and definition.deleting:
                raise errors.method_not_allowed()
        if not resource.namespaced:
            return
        namespace = self.store.get(NAMESPACES.key, Place("", place.namespace))
        if namespace is None:
            raise errors.not_found("", "namespaces", place.namespace)
        if namespace.deleting:
            why = f"unable to create new content in namespace {place.namespace} because it is being terminated"
            cause = Cause(
                "metadata.namespace", "NamespaceTerminating", f"namespace {place.namespace} is being terminated"
            )
            raise errors.forbidden(resource.group, resource.plural, place.name, why, [cause])

    def _admit(
        self,
        resource: Resource,
        new: Json,
        old: Json | None,
        how: Write,
        subresource: str = "",
        claimed: Sequence[Cause] = (),
    ) -> None:
        """Fill in defaults of `new` in place, and raise if it is invalid."""
        rules = _rules(resource)
        rules.fill(new, old)
        causes = []
        if old is None or new["metadata"] != old["metadata"]:
            causes += metadata_causes(new["metadata"], rules.name)
        if resource.custom:
            causes += custom.wrong(resource, new, old, causes, subresource)
        else:
            causes += rules.wrong(new, old)
        # A write to the status of a custom resource ignores its metadata; one to that of a pod ignores a deletion.
        if not (subresource and resource.custom):
            ignored = subresource and resource.key == PODS.key
            causes += [cause for cause in claimed if cause.field == "metadata.uid" or not ignored]
        if causes:
            # Events are validated in the shape of the core group.
            group = EVENTS.group if resource.key == EVENTS.key else resource.group
            raise errors.invalid(group, resource.kind, new["metadata"]["name"], causes)

    # Changing

    def update(self, resource: Resource, place: Place, obj: object, how: Write, subresource: str = "") -> Entry:
        """Replace the object, or only its status."""
        new = _read(resource, obj, how)
        settle_namespace(resource, new["metadata"], place.namespace)
        _must_have_name(new, place.name)
        old = self.store.get(resource.key, place)
        if old is None:
            if not subresource and _rules(resource).created_by_update:
                if uid := new["metadata"].get("uid"):
                    raise errors.conflict(resource.group, resource.plural, place.name, uid_mismatch(uid, ""))
                version_of(new["metadata"].get("resourceVersion", ""))
                if not how.dry_run:
                    new["metadata"].pop("resourceVersion", None)
                return self._create(resource, place.namespace, new, how)
            raise errors.not_found(resource.group, resource.plural, place.name)
        return self._replace(resource, old, new, how, subresource)

    def patch(
        self,
        resource: Resource,
        place: Place,
        change: Callable[[Json], object],
        how: Write,
        subresource: str = "",
        *,
        defaults: bool = True,
    ) -> Entry:
        """Replace the object by the result of `change`; a resourceVersion or uid that it sets is a precondition."""
        old = self.find(resource, place)
        new = _read(resource, change(self.served(resource, old)), how, patched=True, defaults=defaults)
        _must_have_name(new, place.name)
        return self._replace(resource, old, new, how, subresource)

    def _replace(self, resource: Resource, entry: Entry, new: Json, how: Write, subresource: str) -> Entry:
        old, metadata = entry.object(), new["metadata"]
        before = self.served(resource, entry) if resource.custom else old
        settle_namespace(resource, metadata, entry.place.namespace)
        self._check_preconditions(resource, entry, metadata, how)
        claimed = keep_identity(metadata, old["metadata"])
        metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        if "managedFields" in old["metadata"]:
            metadata["managedFields"] = old["metadata"]["managedFields"]
        if subresource == "status":
            new = _only_status(resource, new, self.served(resource, entry))
        elif "status" in resource.subresources:
            new = {name: value for name, value in new.items() if name != "status"}
            if "status" in before:
                new["status"] = copy.deepcopy(before["status"])
        self._admit(resource, new, before, how, subresource, claimed)
        self._check_finalizers(resource, new, old)
        if resource.key == DEFINITIONS.key and subresource != "status":
            new["status"] = custom.established(new)
        if _counts_generations(resource) and _spec_changed(resource, new, before):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if resource.custom and not same(new, before):
            new["metadata"] = new["metadata"] | {"managedFields": owned(before, new, how.writer, now())}
        new = custom.stored(resource, new)
        # A write that changes nothing is not stored: it gets no new version, and watches get no event.
        if same(new, old) or how.dry_run:
            return entry if same(new, old) else Entry(new, entry.version)
        return finish(self.store, resource.key, new)

    def _check_preconditions(self, resource: Resource, entry: Entry, metadata: Json, how: Write) -> None:
        uid = metadata.get("uid", "")
        # In a patch another uid is a change of an immutable field, which `keep_identity` reports.
        if uid and uid != entry.uid and how.replaces:
            raise errors.conflict(resource.group, resource.plural, entry.place.name, uid_mismatch(uid, entry.uid))
        version = version_of(metadata.get("resourceVersion", ""))
        if not version and (resource.custom or _rules(resource).requires_version):
            cause = errors.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.invalid(resource.group, resource.plural, entry.place.name, [cause])
        if version not in (0, entry.version):
            raise errors.modified(resource.group, resource.plural, entry.place.name)

    def _check_finalizers(self, resource: Resource, new: Json, old: Json) -> None:
        if not old["metadata"].get("deletionTimestamp"):
            return
        added = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
        if added:
            names = ", ".join(f'"{name}"' for name in sorted(added))
            detail = "no new finalizers can be added if the object is being deleted, found new finalizers"
            detail += f" []string{{{names}}}"
            cause = errors.forbidden_field("metadata.finalizers", detail)
            raise errors.invalid(resource.group, resource.kind, new["metadata"]["name"], [cause])

    # Reading

    def served(self, resource: Resource, entry: Entry) -> Json:
        """The object as this kind and version show it."""
        obj = custom.shown(resource, entry).object()
        if resource.key == EVENTS.key and resource is not EVENTS:
            obj = from_core_event(obj)
        obj["apiVersion"] = resource.api_version
        return obj


def _read(resource: Resource, obj: object, how: Write, *, patched: bool = False, defaults: bool = True) -> Json:
    """A sent or patched object of this kind, with defaults and without unknown fields."""
    new = check_type(resource, obj, patched=patched)
    dropped = read_metadata(resource, new)
    if resource.key == EVENTS.key and resource is not EVENTS:
        new = to_core_event(new) | {"apiVersion": EVENTS.api_version}
    check_shape(_rules(resource).shape, new, f'{resource.kind} in version "{resource.version}"')
    if resource.key == PODS.key:
        dropped += pods.drop_unknown(new)
    if resource.schema is not None:
        dropped += prune(resource.schema, new)
        if defaults:
            apply_defaults(resource.schema, new)
    _tell_of_dropped_fields(resource, dropped, how)
    return new


def _must_have_name(obj: Json, name: str) -> None:
    if (found := obj["metadata"].get("name")) != name:
        raise errors.bad_request(f"the name of the object ({found}) does not match the name on the URL ({name})")


def version_of(text: str) -> int:
    """A resourceVersion as a number; 0 when none was given."""
    if not text:
        return 0
    if not text.isascii() or not text.isdecimal() or len(text) > 20:
        raise errors.ApiError(500, "", f'strconv.ParseUint: parsing "{text}": invalid syntax')
    return int(text)


def uid_mismatch(wanted: str, found: str) -> str:
    return f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"


def _rules(resource: Resource) -> Rules:
    return NO_RULES if resource.custom else RULES.get(resource.key, NO_RULES)


def _counts_generations(resource: Resource) -> bool:
    return resource.custom or _rules(resource).counts_generations


def _only_status(resource: Resource, new: Json, old: Json) -> Json:
    """The old object with the new status; the metadata of built-in kinds changes too, except for a pod's owners."""
    changed = {name: value for name, value in old.items() if name != "status"}
    if "status" in new:
        changed["status"] = new["status"]
    if not resource.custom:
        kept = ("ownerReferences",) if resource.key == PODS.key else ()
        before = {name: value for name, value in old["metadata"].items() if name in kept}
        along = {name: value for name, value in new["metadata"].items() if name not in kept}
        changed["metadata"] = along | before
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
        raise errors.UndecodableError(
            400,
            "BadRequest",
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}:'
            f" strict decoding error: {', '.join(unknown)}",
        )
    how.warnings.extend(unknown)
