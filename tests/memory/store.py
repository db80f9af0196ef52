"""The store of a cluster in memory: objects, their versions, and the changes that watches deliver.

The rules are those of an API server as far as Muster relies on them.
Every call is synchronous; the only clock is the one that is passed in.
Users, kubelets and controllers of a test call the store directly; services go through a `MemoryCluster`.

A test takes the part of kube-controller-manager with `collect_garbage`, of kube-scheduler with `bind`, and of a kubelet
with `patch(..., subresource="status")`, `remove` and `program`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from shared.cluster import Execution, Manifest, Resource, pod_fields
from shared.cluster.answers import UNKNOWN_FIELD
from shared.cluster.decoding import encode
from shared.cluster.kinds import PODS
from shared.cluster.objects import Object
from shared.errors import Conflict, Refused
from shared.frameworks.kinds import BUILT_IN
from tests.memory.merge import merged
from tests.memory.trouble import Faults, Outage
from tests.memory.watching import Change, Check, Held, Kind, View

T = TypeVar("T", bound=Object)

ORPHAN = "orphan"
"""The finalizer that stands for `--cascade=orphan`."""

WITHOUT_STATUS = frozenset({"configmaps", "secrets", "events", "serviceaccounts", "roles", "rolebindings", "leases"})
WITHOUT_GENERATION = WITHOUT_STATUS | {"services"}

KEPT_BY_SERVER = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
"""Metadata that a client's write does not change."""

Program = Callable[[str, str, str, Sequence[str]], Awaitable[Execution]]
"""Runs the commands of all images: called with namespace, pod, container and command."""

Listener = Callable[[Resource[Any], Held | None, Held | None], None]

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class MemoryStore:
    """The objects of one cluster."""

    def __init__(self, *, now: Callable[[], datetime] = lambda: EPOCH) -> None:
        self.version = 0
        """The newest resourceVersion; one count over all kinds, like etcd's revision."""
        self._collected = -1
        """The version at which there was no garbage."""
        self.pod_quota: dict[str, int] = {}
        """The most pods that a namespace may hold, ended ones not counted."""
        self.newer: Sequence[str] = ()
        """Paths of a pod's fields that this API server knows and this release does not."""
        self.terminating: set[str] = set()
        """Namespaces that are being deleted."""
        self.program: Program | None = None
        """Runs the commands in pods; without it every command is refused."""
        self.listeners: list[Listener] = []
        """Called with the kind, the object before and the object after each change, at the moment when it is made."""
        self.faults = Faults()
        self.outage = Outage(self.wake)
        self._withdrawn: set[tuple[str, str]] = set()
        """Kinds, by group and plural, whose definition is not installed."""
        self._now = now
        self._uids = 0
        self._kinds: dict[tuple[str, str], Kind] = {}

    def kind(self, resource: Resource[T]) -> Kind:
        return self._kinds.setdefault((resource.group, resource.plural), Kind())

    def serves(self, resource: Resource[Any]) -> bool:
        """True until the kind's definition is withdrawn."""
        return (resource.group, resource.plural) not in self._withdrawn

    def withdraw(self, resource: Resource[Any]) -> None:
        """Delete the kind's definition, and all its objects with it."""
        for held in self.find(resource):
            self._drop(resource, held, held.manifest)
        self._withdrawn.add((resource.group, resource.plural))
        self.kind(resource).wake()

    def install(self, resource: Resource[Any]) -> None:
        """Serve a kind that was withdrawn."""
        self._withdrawn.discard((resource.group, resource.plural))
        self.kind(resource).wake()

    def wake(self) -> None:
        """Wake every watch."""
        for kind in self._kinds.values():
            kind.wake()

    def admit(self, resource: Resource[T], check: Check) -> None:
        """Call `check(before, after)` on each write of a kind; it refuses by raising `Refused`.  One per kind."""
        self.kind(resource).check = check

    def get(self, resource: Resource[T], namespace: str, name: str) -> Held | None:
        return self.kind(resource).objects.get((namespace, name))

    def find(self, resource: Resource[T], namespace: str = "", selector: str = "") -> list[Held]:
        view = View(namespace, selector)
        return [held for held in self.kind(resource).objects.values() if view.shows(held)]

    def check(self, resource: Resource[Any], namespace: str, manifest: Manifest) -> None:
        """Raise what `create` raises."""
        metadata = manifest.get("metadata") or {}
        name = metadata.get("name")
        if not name or metadata.get("namespace", namespace) != namespace:
            raise Refused(
                f"create a {resource.kind}: it needs a name, and the namespace of the call",
                reason="Invalid",
                field="metadata.name",
            )
        what = f"create {resource.kind} {namespace}/{name}"
        found = pod_fields.unknown(manifest.get("spec")) if resource.kind == PODS.kind else ()
        unknown = [path for *_, path in found if path not in self.newer]
        if unknown:
            words = 'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
            words += ", ".join(f'unknown field "{path}"' for path in unknown)
            raise Refused(f"{what}: {words}", reason=UNKNOWN_FIELD, field=unknown[0], words=words)
        if (namespace, name) in self.kind(resource).objects:
            raise Refused(f"{what}: it exists already", reason="AlreadyExists")
        if namespace in self.terminating:
            raise Refused(f"{what}: the namespace is being terminated", reason="NamespaceTerminating")
        self._must_be_within_quota(resource, namespace, what)

    def create(self, resource: Resource[T], namespace: str, manifest: Manifest) -> Held:
        manifest = _own(manifest)
        self.check(resource, namespace, manifest)
        metadata = manifest["metadata"]
        self._uids += 1
        metadata |= {
            "namespace": namespace,
            "uid": f"{self._uids:08x}-0000-4000-8000-000000000000",
            "creationTimestamp": _stamp(self._now()),
        }
        for given in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            metadata.pop(given, None)
        created = {**manifest, "apiVersion": resource.api_version, "kind": resource.kind}
        if resource.plural not in WITHOUT_STATUS:
            created.pop("status", None)
        if resource.plural not in WITHOUT_GENERATION:
            metadata["generation"] = 1
        if resource.plural == PODS.plural:
            created["status"] = {"phase": "Pending"}
        return self._put(resource, None, {**created, "metadata": metadata})

    def bring_back(self, resource: Resource[Any], held: Held) -> None:
        """An object that went is there again, with its uid, as from a backup."""
        manifest = _own(held.manifest)
        manifest["metadata"].pop("deletionTimestamp", None)
        self.check(resource, held.at[0], manifest)
        self._put(resource, None, manifest)

    def patch(
        self, resource: Resource[T], namespace: str, name: str, manifest: Manifest, *, subresource: str = ""
    ) -> Held:
        """Merge-patch; the subresource is `status`, `scale` or none.  A patch that changes nothing makes no version."""
        what = f"patch {resource.kind} {namespace}/{name}"
        held = self.get(resource, namespace, name)
        has_status = resource.plural not in WITHOUT_STATUS
        if held is not None and subresource == "scale":
            manifest, subresource = _unscaled(resource, manifest), ""
        if held is None or (subresource and not (subresource == "status" and has_status)):
            raise Refused(f"{what} {subresource}".rstrip() + ": not found", reason="NotFound")
        manifest = _own(manifest)
        wanted = manifest.get("metadata") or {}
        for field in ("resourceVersion",) if subresource else ("uid", "resourceVersion"):
            if wanted.get(field) not in (None, held.metadata[field]):
                raise Conflict(f"{what}: its {field} is {held.metadata[field]}, not {wanted[field]}")
        if wanted.get("name", name) != name or wanted.get("namespace", namespace) != namespace:
            raise Refused(f"{what}: an object cannot be renamed", reason="BadRequest")
        if wanted.get("deletionTimestamp") not in (None, held.metadata.get("deletionTimestamp")) and not subresource:
            field = "metadata.deletionTimestamp"
            raise Refused(f"{what}: {field} is immutable", reason="Invalid", field=field)
        after = merged(held.manifest, manifest)
        if subresource:
            after = {**held.manifest, "status": after.get("status")}
        elif has_status:
            after = _with(after, "status", held.manifest.get("status"))
        metadata = dict(after["metadata"])
        for field in ("resourceVersion", *KEPT_BY_SERVER):
            _set(metadata, field, held.metadata.get(field))
        # An object keeps the API version in which it was created.
        after = {**after, "apiVersion": held.manifest["apiVersion"], "kind": resource.kind, "metadata": metadata}
        if after == held.manifest:
            return held
        if "generation" in metadata and _content(after) != _content(held.manifest):
            metadata["generation"] += 1
        if metadata.get("deletionTimestamp") and not _is_held_back(metadata):
            return self._drop(resource, held, after)
        return self._put(resource, held, after)

    def delete(
        self,
        resource: Resource[T],
        namespace: str,
        name: str,
        *,
        uid: str = "",
        version: str = "",
        cascade: bool = True,
        grace: int | None = None,
    ) -> Held | None:
        """Delete an object; do nothing if it is gone, or has another uid or another version than a given one.

        A pod on a node gets a deletionTimestamp and waits for `remove`; an object with finalizers waits for their
        removal.  Without `cascade`, `collect_garbage` orphans its dependents.
        """
        held = self.get(resource, namespace, name)
        if held is None or (uid and uid != held.metadata["uid"]):
            return None
        if version and version != held.metadata["resourceVersion"]:
            return None
        metadata = dict(held.metadata)
        grace = _grace(resource, held.manifest) if grace is None else grace
        if not cascade:
            metadata["finalizers"] = sorted({*metadata.get("finalizers", ()), ORPHAN})
        ends = not grace and not metadata.get("finalizers")
        if not metadata.get("deletionTimestamp") and (not ends or resource.plural == PODS.plural):
            # Watches see the deletionTimestamp even of a pod that is deleted at once.
            metadata["deletionTimestamp"] = _stamp(self._now() + timedelta(seconds=grace))
            metadata["deletionGracePeriodSeconds"] = grace
            if "generation" in metadata:
                metadata["generation"] += 1
            held = self._put(resource, held, {**held.manifest, "metadata": metadata})
        return self._drop(resource, held, held.manifest) if ends else held

    def remove(self, resource: Resource[T], namespace: str, name: str, *, uid: str = "") -> None:
        """Delete the object without grace, as a kubelet does after a pod's containers have ended."""
        held = self.get(resource, namespace, name)
        if held is None or uid not in ("", held.metadata["uid"]):
            return
        if held.metadata.get("deletionGracePeriodSeconds"):
            # The kubelet's deletion with grace period 0 is a change of its own before the object goes.
            metadata = {**held.metadata, "deletionGracePeriodSeconds": 0}
            held = self._put(resource, held, {**held.manifest, "metadata": metadata})
        self._drop(resource, held, held.manifest)

    def bind(self, namespace: str, name: str, node: str) -> Held:
        """Place a pod, as kube-scheduler does."""
        held = self.get(PODS, namespace, name)
        assert held is not None, f"no pod {namespace}/{name} to bind"
        spec = {**(held.manifest.get("spec") or {}), "nodeName": node}
        return self._put(PODS, held, {**held.manifest, "spec": spec})

    def program_of(self, namespace: str, pod: str) -> Program:
        """The function that runs commands in this pod."""
        what = f"execute in {namespace}/{pod}"
        if self.get(PODS, namespace, pod) is None:
            raise Refused(f"{what}: not found", reason="NotFound")
        if self.program is None:
            raise Refused(f"{what}: there are no programs in memory", reason="CannotExecute")
        return self.program

    def terminate_namespace(self, namespace: str) -> None:
        """Refuse new objects in the namespace, and delete all that it holds."""
        self.terminating.add(namespace)
        for resource, held in self._everything():
            if held.at[0] == namespace:
                self.delete(resource, *held.at)

    def collect_garbage(self) -> int:
        """Delete objects whose owners are all gone, and release orphans; return how many objects changed.

        The dependents of an object stay until it is gone; a pod on a node takes its grace period first.
        """
        changed = 0
        while self.version != self._collected:
            uids = {held.metadata["uid"] for _, held in self._everything()}
            orphaning = {
                held.metadata["uid"]: (resource, held)
                for resource, held in self._everything()
                if ORPHAN in held.metadata.get("finalizers", ()) and held.metadata.get("deletionTimestamp")
            }
            before = self.version
            for resource, held in self._everything():
                self._settle_owners(resource, held, uids, orphaning.keys())
            for resource, held in orphaning.values():
                kept = [name for name in held.metadata["finalizers"] if name != ORPHAN]
                self.patch(resource, *held.at, {"metadata": {"finalizers": kept or None}})
            if self.version == before:
                self._collected = before
            changed += self.version - before
        return changed

    def is_garbage(self, held: Held) -> bool:
        """True if an object has owners, and all of them are gone."""
        owners = {owner["uid"] for owner in held.metadata.get("ownerReferences") or ()}
        return bool(owners) and owners.isdisjoint(each.metadata["uid"] for _, each in self._everything())

    def compact(self) -> None:
        """Drop the history: a watch that has not read all of it lists again."""
        for kind in self._kinds.values():
            kind.compact()

    def _settle_owners(self, resource: Resource[Any], held: Held, uids: set[str], orphaning: Any) -> None:
        owners = held.metadata.get("ownerReferences") or ()
        if not owners:
            return
        kept = [owner for owner in owners if owner["uid"] not in orphaning]
        if len(kept) < len(owners):
            self.patch(resource, *held.at, {"metadata": {"ownerReferences": kept or None}})
        elif not any(owner["uid"] in uids for owner in owners):
            self.delete(resource, *held.at, uid=held.metadata["uid"])

    def _everything(self) -> list[tuple[Resource[Object], Held]]:
        return [
            (Resource(group, *_version_and_kind(held.manifest, plural), type=Object), held)
            for (group, plural), kind in self._kinds.items()
            for held in kind.objects.values()
        ]

    def _put(self, resource: Resource[T], before: Held | None, manifest: Manifest) -> Held:
        kind = self.kind(resource)
        kind.check(before.manifest if before else None, manifest)
        after = Held(self._next_version(manifest))
        kind.objects[after.at] = after
        kind.record(Change(before, after, after))
        self._tell(resource, before, after)
        return after

    def _drop(self, resource: Resource[T], before: Held, manifest: Manifest) -> Held:
        last = Held(self._next_version(manifest))
        kind = self.kind(resource)
        del kind.objects[before.at]
        kind.record(Change(before, None, last))
        self._tell(resource, before, None)
        return last

    def _tell(self, resource: Resource[Any], before: Held | None, after: Held | None) -> None:
        for listener in self.listeners:
            listener(resource, before, after)

    def _next_version(self, manifest: Manifest) -> Manifest:
        self.version += 1
        return {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": str(self.version)}}

    def _must_be_within_quota(self, resource: Resource[T], namespace: str, what: str) -> None:
        most = self.pod_quota.get(namespace)
        if most is None or resource.plural != PODS.plural:
            return
        active = [pod for pod in self.find(PODS, namespace) if not _is_over(pod.manifest)]
        if len(active) >= most:
            raise Refused(f"{what}: exceeded quota, {most} pods", reason="QuotaExceeded")


def _own(manifest: Manifest) -> dict[str, Any]:
    """A copy: later changes of the caller's manifest do not reach the store."""
    copy: dict[str, Any] = msgspec.json.decode(encode(manifest))
    return copy


def _version_and_kind(manifest: Manifest, plural: str) -> tuple[str, str, str]:
    return manifest["apiVersion"].rpartition("/")[2], plural, manifest["kind"]


def _grace(resource: Resource[T], manifest: Manifest) -> int:
    """The grace period in seconds; 0 unless it is a pod on a node that has not ended."""
    spec = manifest.get("spec") or {}
    if resource.plural != PODS.plural or not spec.get("nodeName") or _is_over(manifest):
        return 0
    return int(spec.get("terminationGracePeriodSeconds", 30))


def _is_over(pod: Manifest) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _is_held_back(metadata: Mapping[str, Any]) -> bool:
    return bool(metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"))


def _content(manifest: Manifest) -> dict[str, Any]:
    """The part whose changes the generation counts: all but metadata and status."""
    return {name: value for name, value in manifest.items() if name not in ("metadata", "status")}


def _unscaled(resource: Resource[Any], scale: Manifest) -> Manifest:
    """The patch of a job that a patch of its `scale` stands for."""
    paths = [kind.definition.scale for kind in BUILT_IN if kind.resource.plural == resource.plural]
    path = next((path for path in paths if path is not None), None)
    if path is None:
        raise Refused(f"{resource.plural}/scale: not found", reason="NotFound")
    change: Any = scale["spec"]["replicas"]
    for step in reversed(path.spec.strip(".").split(".")):
        change = {step: change}
    return {"metadata": scale["metadata"], **change}


def _with(manifest: Manifest, name: str, value: Any) -> dict[str, Any]:
    result = dict(manifest)
    _set(result, name, value)
    return result


def _set(target: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        target.pop(name, None)
    else:
        target[name] = value


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
