"""The garbage collector: deletes dependents after their last owner, and the contents of namespaces and definitions.

Each change puts tasks into a queue, and the collector works through it in the background, as the real controllers do.
A task looks its object up again when it runs, so a repeated or late task does no harm.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable

import structlog

from devcluster.apiserver.deletion import FOREGROUND, INSTANCES, ORPHAN, Delete, delete, finish
from devcluster.apiserver.errors import ApiError, Json
from devcluster.apiserver.objects import Objects
from devcluster.apiserver.resources import DEFINITIONS, NAMESPACES, stored_key
from devcluster.apiserver.store import DELETED, Change, Entry, Key, Place

Reference = tuple[Key, Place]

log = structlog.get_logger()


class Collector:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._store = objects.store
        self._dependents: dict[str, set[Reference]] = defaultdict(set)
        """By the owner's uid."""
        self._places: dict[str, Reference] = {}
        """The object of each existing uid."""
        self._tasks: asyncio.Queue[Callable[[], None]] = asyncio.Queue()
        stored = [(key, entry) for key in self._store.kinds() for entry in self._store.all(key)]
        for key, entry in stored:
            self._index(key, entry)
        # A crash loses the queue: after a start every object is checked once.
        for key, entry in stored:
            self._add_tasks(key, entry)
        self._store.listeners.append(self._on_change)

    async def run(self) -> None:
        """Run the queued tasks, for as long as the server runs."""
        while True:
            task = await self._tasks.get()
            try:
                task()
            except ApiError as error:
                log.warning("collection refused", reason=error.reason, message=error.message)
            # A namespace of thousands must not keep clients waiting.
            await asyncio.sleep(0)

    # Queueing

    def _on_change(self, change: Change) -> None:
        key, entry, previous = change.key, change.entry, change.previous
        for owner in previous.owners if previous else ():
            self._dependents[owner].discard((key, entry.place))
        if change.type == DELETED:
            self._places.pop(entry.uid, None)
            self._add(lambda: self._check_dependents(entry.uid))
            for owner in entry.owners:
                self._add(lambda owner=owner: self._continue_foreground(owner))  # type: ignore[misc]
            self._add_tasks_of_container(key, entry)
            return
        self._index(key, entry)
        self._add_tasks(key, entry, owners_changed=previous is None or previous.owners != entry.owners)

    def _index(self, key: Key, entry: Entry) -> None:
        self._places[entry.uid] = (key, entry.place)
        for owner in entry.owners:
            self._dependents[owner].add((key, entry.place))

    def _add_tasks(self, key: Key, entry: Entry, *, owners_changed: bool = True) -> None:
        reference = (key, entry.place)
        if entry.owners and owners_changed:
            self._add(lambda: self._check_owners(reference))
        if not entry.deleting:
            return
        self._add(lambda: self._continue_foreground(entry.uid))
        self._add(lambda: self._orphan(entry.uid))
        if key == NAMESPACES.key:
            self._add(lambda: self._empty_namespace(entry.place.name))
        if key == DEFINITIONS.key:
            self._add(lambda: self._empty_definition(entry.place))

    def _add_tasks_of_container(self, key: Key, entry: Entry) -> None:
        """A removed object may have been the last one of its namespace or kind that is being deleted."""
        namespace = self._store.get(NAMESPACES.key, Place("", entry.place.namespace))
        if namespace and namespace.deleting:
            self._add(lambda: self._empty_namespace(entry.place.namespace))
        definition = self._store.get(DEFINITIONS.key, Place("", f"{key.plural}.{key.group}"))
        if definition and definition.deleting:
            self._add(lambda: self._empty_definition(definition.place))

    def _add(self, task: Callable[[], None]) -> None:
        self._tasks.put_nowait(task)

    # Owners

    def _check_dependents(self, uid: str) -> None:
        for reference in [*self._dependents.pop(uid, ())]:
            self._check_owners(reference)

    def _check_owners(self, reference: Reference) -> None:
        """Delete an object without an existing owner; with one, drop the references to owners that are gone."""
        entry = self._store.get(*reference)
        if entry is None or not entry.owners or entry.deleting:
            return
        obj = entry.object()
        owners = obj["metadata"]["ownerReferences"]
        existing = [owner for owner in owners if self._exists(owner, entry.place.namespace)]
        if not existing:
            delete(self._store, reference[0], entry, Delete(uid=entry.uid, policy="Background"))
        elif len(existing) < len(owners):
            obj["metadata"]["ownerReferences"] = existing
            finish(self._store, reference[0], obj)

    def _exists(self, owner: Json, namespace: str) -> bool:
        """True if the owner exists with exactly the name, kind and uid of the reference."""
        resource = self._objects.registry.of_kind(owner["apiVersion"], owner["kind"])
        if resource is None:
            # A version that is not served now may be served again: the real collector waits too.
            return True
        entry = self._store.get(resource.key, Place(namespace if resource.namespaced else "", owner["name"]))
        return entry is not None and entry.uid == owner["uid"]

    def _orphan(self, uid: str) -> None:
        """Remove the references to an owner that is deleted with policy Orphan, then its finalizer."""
        held = self._held_by(uid, ORPHAN)
        if held is None:
            return
        for key, place in [*self._dependents.get(uid, ())]:
            dependent = self._store.get(key, place)
            if dependent:
                obj = dependent.object()
                owners = [owner for owner in obj["metadata"]["ownerReferences"] if owner["uid"] != uid]
                obj["metadata"]["ownerReferences"] = owners
                if not owners:
                    del obj["metadata"]["ownerReferences"]
                finish(self._store, key, obj)
        self._release(held, ORPHAN)

    def _continue_foreground(self, uid: str) -> None:
        """Remove the finalizer of an owner that is deleted with policy Foreground once no dependent blocks it."""
        held = self._held_by(uid, FOREGROUND)
        if held is None:
            return
        blocked = False
        for key, place in [*self._dependents.get(uid, ())]:
            dependent = self._store.get(key, place)
            if dependent is None:
                continue
            owners = dependent.object()["metadata"]["ownerReferences"]
            blocked |= any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in owners)
            if not dependent.deleting:
                delete(self._store, key, dependent, Delete(policy="Foreground"))
        if not blocked:
            self._release(held, FOREGROUND)

    def _held_by(self, uid: str, finalizer: str) -> Reference | None:
        reference = self._places.get(uid)
        entry = self._store.get(*reference) if reference else None
        if entry is None or not entry.deleting:
            return None
        return reference if finalizer in (entry.object()["metadata"].get("finalizers") or ()) else None

    def _release(self, reference: Reference, finalizer: str) -> None:
        entry = self._store.get(*reference)
        if entry is None:
            return
        obj = entry.object()
        obj["metadata"]["finalizers"] = [name for name in obj["metadata"].get("finalizers") or () if name != finalizer]
        finish(self._store, reference[0], obj)

    # Containers

    def _empty_namespace(self, name: str) -> None:
        entry = self._store.get(NAMESPACES.key, Place("", name))
        if entry is None or not entry.deleting:
            return
        if self._empty(self._store.kinds(), name):
            obj = entry.object()
            obj["spec"] = (obj.get("spec") or {}) | {"finalizers": []}
            finish(self._store, NAMESPACES.key, obj)

    def _empty_definition(self, place: Place) -> None:
        entry = self._store.get(DEFINITIONS.key, place)
        if entry and entry.deleting and self._empty([stored_key(entry.object())], ""):
            self._release((DEFINITIONS.key, place), INSTANCES)

    def _empty(self, keys: list[Key], namespace: str) -> bool:
        """Delete all objects of these kinds in the namespace; return True if none is left."""
        left = [(key, entry) for key in keys for entry in self._store.all(key, namespace)]
        for key, entry in left:
            if not entry.deleting:
                delete(self._store, key, entry, Delete(policy="Background"))
        return not any(self._store.all(key, namespace) for key in keys)
