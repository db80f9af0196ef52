"""Deleting: preconditions, grace periods, propagation and finalizers.

An object with a finalizer or a grace period is only marked as being deleted; `finish` removes it once it has neither.
The collector deletes the dependents of the object and the contents of a namespace.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from devcluster.apiserver.errors import Json, conflict, forbidden
from devcluster.apiserver.resources import DEFINITIONS, NAMESPACES, PODS
from devcluster.apiserver.store import Entry, Key, Store
from devcluster.clock import after, now

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
INSTANCES = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer that keeps a definition until its last resource is gone."""

IMMORTAL = ("default", "kube-system", "kube-public")
"""Namespaces that every cluster has."""

EVICTED: Json = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}

POLICIES = ("Background", "Foreground", "Orphan")


@dataclass(frozen=True, kw_only=True)
class Delete:
    """The options of a deletion."""

    uid: str = ""
    resource_version: str = ""
    grace: int | None = None
    """Seconds that a pod's containers have to end; None for the pod's own terminationGracePeriodSeconds."""
    policy: str = ""
    dry_run: bool = False


class Deleted(NamedTuple):
    entry: Entry
    gone: bool


def delete(store: Store, key: Key, entry: Entry, how: Delete) -> Deleted:
    if key == NAMESPACES.key and entry.place.name in IMMORTAL:
        raise forbidden("", "namespaces", entry.place.name, "this namespace may not be deleted")
    _check_preconditions(key, entry, how)
    obj = entry.object()
    metadata = obj["metadata"]
    finalizers = _finalizers(key, metadata.get("finalizers") or [], how)
    grace = _grace(key, obj, how)
    held = bool(finalizers) or grace > 0 or key == NAMESPACES.key
    if how.dry_run:
        return Deleted(entry, not held)
    if not held:
        if key == PODS.key and _says_something_new(metadata, finalizers, grace):
            # Watches see the mark of deletion even of a pod that is removed at once.
            obj = store.put(key, _marked(obj, key, finalizers, grace)).object()
        return Deleted(store.delete(key, obj), True)
    if not _says_something_new(metadata, finalizers, grace):
        return Deleted(entry, False)
    return Deleted(store.put(key, _marked(obj, key, finalizers, grace)), False)


def evict(store: Store, entry: Entry, how: Delete) -> Deleted:
    """Delete a pod after its condition DisruptionTarget was set."""
    if not how.dry_run:
        _check_preconditions(PODS.key, entry, how)
        pod = entry.object()
        status = pod.setdefault("status", {})
        others = [one for one in status.get("conditions") or () if one.get("type") != "DisruptionTarget"]
        status["conditions"] = [*others, EVICTED | {"lastTransitionTime": now()}]
        entry, how = store.put(PODS.key, pod), replace(how, resource_version="")
    return delete(store, PODS.key, entry, how)


def _marked(obj: Json, key: Key, finalizers: list[str], grace: int) -> Json:
    """`obj`, changed in place, with the marks of a deletion."""
    metadata = obj["metadata"]
    if "generation" in metadata and not metadata.get("deletionTimestamp"):
        metadata["generation"] += 1
    metadata["deletionTimestamp"] = after(grace) if grace else metadata.get("deletionTimestamp") or now()
    metadata["deletionGracePeriodSeconds"] = grace
    metadata["finalizers"] = finalizers
    if not finalizers:
        del metadata["finalizers"]
    if key == NAMESPACES.key:
        obj["status"] = (obj.get("status") or {}) | {"phase": "Terminating"}
    return obj


def finish(store: Store, key: Key, obj: Json) -> Entry:
    """Store a changed object, or remove it if it is being deleted and has no finalizer and no grace period left."""
    metadata = obj["metadata"]
    if not metadata.get("finalizers"):
        metadata.pop("finalizers", None)
    held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    if key == NAMESPACES.key:
        held = held or (obj.get("spec") or {}).get("finalizers")
    if metadata.get("deletionTimestamp") and not held:
        return store.delete(key, obj)
    return store.put(key, obj)


def _check_preconditions(key: Key, entry: Entry, how: Delete) -> None:
    kind = entry.object().get("kind", "")
    if how.uid and how.uid != entry.uid:
        why = (
            f"the UID in the precondition ({how.uid}) does not match the UID in record ({entry.uid})."
            " The object might have been deleted and then recreated"
        )
        raise conflict(key.group, kind, entry.place.name, why)
    if how.resource_version and how.resource_version != str(entry.version):
        why = (
            f"the ResourceVersion in the precondition ({how.resource_version}) does not match the ResourceVersion in"
            f" record ({entry.version}). The object might have been modified"
        )
        raise conflict(key.group, kind, entry.place.name, why)


def _finalizers(key: Key, current: list[str], how: Delete) -> list[str]:
    finalizers = [name for name in current if not how.policy or name not in (ORPHAN, FOREGROUND)]
    added = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(how.policy)
    if added:
        finalizers.append(added)
    if key == DEFINITIONS.key and INSTANCES not in finalizers:
        finalizers.append(INSTANCES)
    return finalizers


def _grace(key: Key, obj: Json, how: Delete) -> int:
    """The grace period; 0 for other kinds than Pod, and for a pod that is not bound or has ended."""
    if key != PODS.key:
        return 0
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    asked = how.grace if how.grace is not None else spec.get("terminationGracePeriodSeconds", 30)
    return 1 if asked < 0 else int(asked)


def _says_something_new(metadata: Json, finalizers: list[str], grace: int) -> bool:
    """True for the first deletion, and for a later one that shortens the grace period or changes the propagation."""
    if not metadata.get("deletionTimestamp"):
        return True
    return finalizers != (metadata.get("finalizers") or []) or grace < metadata.get("deletionGracePeriodSeconds", 0)
