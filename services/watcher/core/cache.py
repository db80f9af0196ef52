"""The cache: the newest state of the objects that the watches have shown.  Pure.

An object counts as absent only after a complete list, and a job only after its own GET.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from services.watcher.core.disruption import GONE, leaves
from services.watcher.core.observed import ObservedJob, ObservedNode, ObservedRequest, recorded_part
from services.watcher.core.progress import newest_checkpoint, taken_at_end
from shared.cluster import Resource
from shared.cluster.objects import Custom, Toleration
from shared.cluster.scope import SYSTEM
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.queueing import with_flavors, with_placement
from shared.frameworks.runtimes import JobRuntime, Reference
from shared.job.events.watcher import JobObserved
from shared.job.fold import Histories
from shared.job.naming import NO_UID, JobKey, Uid
from shared.job.policies.gangs import POD_GROUP
from shared.job.state import Job, JobResource
from shared.job.views import ChildView, PodView, WorkloadView, ended

replace = msgspec.structs.replace

T = TypeVar("T")

Concerned = tuple[JobKey, ...]
"""The histories that a change concerns, in an order that every process agrees on."""

CHILDREN = ("Service", "ConfigMap")
"""The kinds of a job's children besides pods and Secrets, which no watch shows."""

WORKLOAD = "Workload"
"""The kind of the children with which jobs wait in queues of Kueue."""


class Listing(dict[tuple[str, str], T]):
    """The objects of one resource by (namespace, name), and the version that its watch has reached."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        """The newest resourceVersion seen; 0 until the first complete LIST."""
        self.outdated = False
        """The store was restored since: the objects count for nothing until the next LIST."""
        self.at_once = False
        """A whole list is being put in, which shows many writes as one."""
        self.blind = True
        self.answered = False
        """The first LIST in this epoch has succeeded or failed."""
        self.absent = False
        """The kind has not been served since the start, so that no object can be missing."""

    @property
    def listed(self) -> bool:
        return self.version > 0 and not self.outdated


class Cache:
    """The listings of all resources, and indices over them.

    What sets an object, or removes it, returns the histories that this concerns.
    """

    def __init__(
        self, kinds: Kinds = BUILT_IN, *, takes_over: bool = False, kueue: bool = False, gangs: bool = False
    ) -> None:
        """`takes_over` confirms that the earlier operators are gone; with `kueue` jobs wait in its queues.

        With `gangs` jobs have PodGroups.
        """
        self._kinds = kinds
        self.scaled = kinds.scaled
        self.takes_over = takes_over
        self.epoch = 0
        """Raised when versions went back, because etcd was restored from a backup."""
        self.jobs: Mapping[Resource[Custom], Listing[ObservedJob]] = {each.resource: Listing() for each in kinds}
        self.runtimes: Mapping[Resource[Custom], Listing[JobRuntime]] = {
            each.resource: Listing() for kind in kinds for each in kind.runtimes
        }
        self.requests: dict[str, Listing[ObservedRequest]] = {"ScaleIn": Listing(), "ScaleOut": Listing()}
        self.pods: Listing[tuple[JobKey, PodView]] = Listing()
        selectors = {each.take_over.selector for each in kinds if each.take_over.selector} if takes_over else ()
        self.inherited: Mapping[str, Listing[tuple[JobKey, PodView]]] = {each: Listing() for each in sorted(selectors)}
        """Pods of other operators, by the selector of their labels, also after they got Muster's labels."""
        kinds_of_children = (*CHILDREN, *[WORKLOAD] * kueue, *[POD_GROUP] * gangs)
        self.children: dict[str, Listing[tuple[JobKey, ChildView]]] = {kind: Listing() for kind in kinds_of_children}
        self.flavors: Listing[Custom] = Listing()
        """Kueue's ResourceFlavors: what the pods of an admitted job get."""
        self.namespaces: Listing[tuple[str, ...]] | None = None
        """The labels that each namespace lacks for Muster to work there; None if it works in all but the system's."""
        self.nodes: Listing[ObservedNode] = Listing()
        self.ending_nodes: dict[str, ObservedNode] = {}
        """The nodes that are about to be removed, by name, and removed ones that still have pods."""
        self.lost_nodes: dict[str, ObservedNode] = {}
        """The nodes that are not Ready or unreachable, by name."""
        self.without_nodes = False
        """Nodes may not be seen: pods show that their node is lost."""
        self.held_back = True
        """No job counts as gone: too many vanished at once, or not every kind was listed yet."""
        self.found: set[JobKey] = set()
        """The jobs of the first list, which are older than this process."""
        self._resources: dict[JobKey, ObservedJob] = {}
        self._pods_of: dict[JobKey, dict[Uid, PodView]] = {}
        self._ended_of: dict[JobKey, dict[int, PodView]] = {}
        """Of each attempt the removed pod that took the newest checkpoint at its end, which may not be recorded yet."""
        self._over_of: dict[JobKey, dict[Uid, PodView]] = {}
        """Pods that are removed, or are being deleted, after their training ended, which may not be recorded yet."""
        self._inherited_of: dict[JobKey, dict[Uid, PodView]] = {}
        self._jobs_on: dict[str, dict[Uid, JobKey]] = {}
        self._tolerations: dict[Uid, tuple[Toleration, ...]] = {}
        self._lost_by_pod: dict[Uid, str] = {}
        """Pods that show themselves that their node is lost, with the reason."""
        self._children_of: dict[JobKey, dict[tuple[str, str], ChildView]] = {}
        self._requests_for: dict[tuple[str, str], dict[Uid, ObservedRequest]] = {}
        """The requests about each name of a job, by (namespace, name)."""
        self._by_uid: dict[Uid, ObservedRequest] = {}

    def listings(self) -> Iterator[Listing[Any]]:
        yield from self.jobs.values()
        yield from self.runtimes.values()
        yield from self.requests.values()
        yield self.pods
        yield from self.inherited.values()
        yield from self.children.values()
        yield self.flavors
        yield self.nodes
        if self.namespaces is not None:
            yield self.namespaces

    def sees(self, kind: Resource[Custom]) -> bool:
        """True if every watch works that concerns jobs of this kind.

        The watch of nodes does not count, because it may be forbidden (`sees_nodes` says it for the timers that depend
        on nodes).  Nor do the watches of other kinds of job, and those of Kueue's objects and PodGroups: jobs in
        no queue go on without Kueue, and no timer of a job depends on them.
        """
        requests = self.requests.values() if kind == self.scaled else ()
        children = (self.children[each] for each in CHILDREN)
        watched = (self.jobs[kind], *requests, self.pods, *self.inherited.values(), *children)
        return not any(listing.blind or listing.outdated for listing in watched)

    @property
    def sees_nodes(self) -> bool:
        """True if nodes are watched, or if the pods have to show which of them are lost."""
        return not self.nodes.blind if self.nodes.listed else self.without_nodes

    def listing_of(self, job: Job) -> Listing[ObservedJob] | None:
        """The listing of the job's kind; None for a kind that this process does not know."""
        resource = self._resources.get(job.key)
        shown = resource.observed if resource is not None else job.resource
        framework = self._kinds.find(shown.api_version, shown.kind)
        return self.jobs[framework.resource] if framework is not None else None

    @property
    def scalable(self) -> Listing[ObservedJob]:
        """The listing of the jobs that requests name; empty if this process does not know their kind."""
        return self.jobs[self.scaled] if self.scaled is not None else Listing()

    def enter(self, epoch: int) -> None:
        """Begin an epoch: all objects count for nothing until they are listed again."""
        if epoch > self.epoch:
            self.epoch = epoch
            for listing in self.listings():
                listing.outdated, listing.answered = listing.version > 0, False

    def works_in(self, namespace: str) -> bool:
        if namespace.startswith(SYSTEM):
            return False
        return self.namespaces is None or self.namespaces.get(("", namespace)) == ()

    def set_namespace(self, name: str, lacks: tuple[str, ...] | None) -> Concerned:
        """Set or remove a namespace, by the labels that it lacks; return the histories that may begin now."""
        assert self.namespaces is not None
        before = self.namespaces.pop(("", name), None)
        if lacks is not None:
            self.namespaces["", name] = lacks
        if before == lacks or lacks != () or self.namespaces.at_once:
            return ()
        return _once(*(key for key in self.keys() if key.namespace == name))

    def keys(self) -> Iterator[JobKey]:
        """Every job of which the cache has a resource, a pod, a child or a request, some of them several times.

        The cache may change during the iteration.
        """
        yield from [*self._resources]
        yield from [*self._pods_of]
        yield from [*self._children_of]
        yield from map(self.key_of, [*self._by_uid.values()])

    def job(self, key: JobKey) -> ObservedJob | None:
        return self._resources.get(key)

    def pods_of(self, key: JobKey) -> Mapping[Uid, PodView]:
        ours, theirs = self._pods_of.get(key, {}), self._inherited_of.get(key)
        if not theirs:
            return ours
        older = {uid for uid, pod in theirs.items() if uid in ours and ours[uid].version >= pod.version}
        return ours | {uid: pod for uid, pod in theirs.items() if uid not in older}

    def ended_of(self, key: JobKey) -> Iterable[PodView]:
        """The removed pods of a job that took a checkpoint at their end, as they were last seen."""
        return self._ended_of.get(key, {}).values()

    def pods_to_tell(self, job: Job) -> Mapping[Uid, PodView]:
        """The job's pods; one that is deleted after its training ended is as it was then until the log has that end.

        A completed pod may be deleted at any moment, such as by the controller that collects pods: that is no loss.
        """
        now, over = self.pods_of(job.key), self._over_of.get(job.key, {})
        late = {uid: pod for uid, pod in over.items() if _lacks_end(job, uid)}
        return {**now, **late} if late else now

    def forget_ended(self, histories: Histories) -> None:
        """Forget those whose end is recorded, or never will be, as that of a pod with the labels of no job.

        A pod of the next attempt may come and go before the log's end is read, and no fact of that attempt is older.
        """
        for key, over in [*self._over_of.items()]:
            history = histories.get(key)
            for uid in [uid for uid in over if history is None or not _lacks_end(history.job, uid)]:
                _drop(self._over_of, key, uid)
        for key, pods in [*self._ended_of.items()]:
            history = histories.get(key)
            for attempt, pod in [*pods.items()]:
                is_next = history is not None and attempt == history.job.attempt.number + 1
                if history is None or not (is_next or taken_at_end(history.job, [pod])):
                    _drop(self._ended_of, key, attempt)

    def inherited_selector(self, resource: JobResource | JobObserved) -> str | None:
        """The selector of another operator's pods for jobs of this kind; None for an unknown kind."""
        framework = self._kinds.find(resource.api_version, resource.kind)
        return framework.take_over.selector if framework is not None else None

    def has_inherited(self, job: Job) -> bool:
        """True if all pods were listed that an earlier operator may have made for the job."""
        listing = self._inherited_listing(job)
        return listing is not None and listing.listed

    def _inherited_listing(self, job: Job) -> Listing[tuple[JobKey, PodView]] | None:
        return self.inherited.get(self.inherited_selector(job.resource) or "")

    def shows_gone(self, job: Job, pod: PodView) -> bool:
        """True if the list that would show the pod is complete, so that its absence means that it is gone.

        The other lists do not count: one that shows no pod of this cluster never gets beyond its first version.
        """
        listing = self.pods if pod.claimed else self._inherited_listing(job)
        if listing is None or not listing.listed:
            return False
        return pod.version <= listing.version or self.epoch > job.resource.epoch

    def children_of(self, key: JobKey) -> dict[tuple[str, str], ChildView]:
        return self._children_of.get(key, {})

    def requests_of(self, key: JobKey) -> dict[Uid, ObservedRequest]:
        """The requests that belong to this history."""
        about = self._requests_for.get((key.namespace, key.name), {})
        return {uid: request for uid, request in about.items() if self.key_of(request) == key}

    def request(self, uid: Uid) -> ObservedRequest | None:
        return self._by_uid.get(uid)

    def key_of(self, request: ObservedRequest) -> JobKey:
        """The history of a request: its owner's, else that of the named job, else that of orphaned requests."""
        if request.owner:
            return JobKey(request.namespace, request.job, request.owner)
        resource = self.scalable.get((request.namespace, request.job))
        return resource.key if resource is not None else JobKey(request.namespace, request.job, NO_UID)

    def set_job(self, kind: Resource[Custom], at: tuple[str, str], seen: ObservedJob | None) -> Concerned:
        before = self.jobs[kind].pop(at, None)
        if before is not None:
            del self._resources[before.key]
            if seen is None:
                self.found.discard(before.key)
        if seen is not None:
            self.jobs[kind][at] = self._resources[seen.key] = seen
            if not self.jobs[kind].version:
                self.found.add(seen.key)
        concerned = _once(*(resource.key for resource in (before, seen) if resource is not None))
        if kind != self.scaled or (before is not None and seen is not None and before.key == seen.key):
            # The same incarnation: no request moves to another history.
            return concerned
        return _once(JobKey(at[0], at[1], NO_UID), *concerned)

    def runtime(self, reference: Reference) -> JobRuntime | None:
        listing = self.runtimes.get(reference.resource)
        return listing.get((reference.namespace, reference.name)) if listing is not None else None

    def set_runtime(self, kind: Resource[Custom], at: tuple[str, str], seen: JobRuntime | None) -> None:
        self.runtimes[kind].pop(at, None)
        if seen is not None:
            self.runtimes[kind][at] = seen

    def set_request(self, kind: str, at: tuple[str, str], seen: ObservedRequest | None) -> Concerned:
        before = self.requests[kind].pop(at, None)
        if before is not None:
            _drop(self._requests_for, (before.namespace, before.job), before.uid)
            self._by_uid.pop(before.uid, None)
        if seen is not None:
            self.requests[kind][at] = self._by_uid[seen.uid] = seen
            self._requests_for.setdefault((seen.namespace, seen.job), {})[seen.uid] = seen
        concerned = [request for request in (before, seen) if request is not None]
        waiting = (JobKey(request.namespace, request.job, NO_UID) for request in concerned)
        return _once(*waiting, *map(self.key_of, concerned))

    def set_pod(
        self,
        at: tuple[str, str],
        seen: tuple[JobKey, PodView] | None,
        tolerations: tuple[Toleration, ...] = (),
        lost: str = "",
    ) -> Concerned:
        """Set or remove the pod at (namespace, name); return the histories that it concerns.

        `lost` says why its node is lost, if the pod shows that itself.

        It concerns none if nothing changed that an event tells, for example when it was bound to a node that stays.
        """
        before = self.pods.pop(at, None)
        if before is not None:
            _drop(self._pods_of, before[0], before[1].uid)
            _drop(self._jobs_on, before[1].node, before[1].uid)
            self._tolerations.pop(before[1].uid, None)
            self._lost_by_pod.pop(before[1].uid, None)
            stays = seen is not None and seen[1].uid == before[1].uid and not seen[1].deleting
            if ended(before[1]) and not (before[1].deleting or stays):
                self._over_of.setdefault(before[0], {})[before[1].uid] = before[1]
            if seen is None and newest_checkpoint(before[1]) >= 0:
                of_job, pod = self._ended_of.setdefault(before[0], {}), before[1]
                of_job[pod.attempt] = max(pod, of_job.get(pod.attempt, pod), key=newest_checkpoint)
        if seen is not None:
            self.pods[at] = seen
            self._pods_of.setdefault(seen[0], {})[seen[1].uid] = seen[1]
            if seen[1].node:
                self._jobs_on.setdefault(seen[1].node, {})[seen[1].uid] = seen[0]
            if tolerations:
                self._tolerations[seen[1].uid] = tolerations
            if lost:
                self._lost_by_pod[seen[1].uid] = lost
        if before is not None and before[1].node in self.ending_nodes:
            self._forget_if_empty(before[1].node)
        if before is not None and seen is not None and before[0] == seen[0] and before[1].uid == seen[1].uid:
            watched = seen[1].node in self.ending_nodes or seen[1].node in self.lost_nodes
            told = recorded_part(before[1]) != recorded_part(seen[1]) or watched
            # It begins the time after which it is well.
            told = told or before[1].runs_again != seen[1].runs_again
            return (seen[0],) if told else ()
        return _once(*(key for key, _ in filter(None, (before, seen))))

    def set_inherited(self, selector: str, at: tuple[str, str], seen: tuple[JobKey, PodView] | None) -> Concerned:
        listing = self.inherited[selector]
        before = listing.pop(at, None)
        if before is not None:
            _drop(self._inherited_of, before[0], before[1].uid)
        if seen is not None:
            listing[at] = seen
            self._inherited_of.setdefault(seen[0], {})[seen[1].uid] = seen[1]
        return _once(*(key for key, _ in filter(None, (before, seen))))

    def set_node(self, name: str, seen: ObservedNode | None) -> Concerned:
        """Set or remove a node; return the histories with pods on it if it is newly announced to go, lost or back."""
        before, was_lost = self.ending_nodes.pop(name, None), self.lost_nodes.pop(name, None)
        if seen is None:
            self.nodes.pop(("", name), None)
        else:
            self.nodes["", name] = seen
        # The pods of a deleted node are removed some time later.
        now = seen if seen is not None else GONE
        if now.lost:
            self.lost_nodes[name] = now
        if now.reason:
            self.ending_nodes[name] = now
            self._forget_if_empty(name)
        news = now != before if now.reason else before is not None
        news = news or now.lost != (was_lost.lost if was_lost is not None else "")
        return _once(*self._jobs_on.get(name, {}).values()) if news else ()

    def notice(self, pod: PodView) -> ObservedNode | None:
        """The pod's node if the pod has to leave it; None if it may stay."""
        node = self.ending_nodes.get(pod.node)
        return node if node is not None and leaves(node, self._tolerations.get(pod.uid, ())) else None

    @property
    def any_lost(self) -> bool:
        """True if the node of some pod may be lost."""
        return bool(self.lost_nodes or (self.without_nodes and self._lost_by_pod))

    def lost_node(self, pod: PodView) -> ObservedNode | None:
        """The pod's node if it is lost; None if it is Ready or deleted.  Where nodes are not seen, the pod decides."""
        if self.nodes.listed:
            return self.lost_nodes.get(pod.node)
        lost = self._lost_by_pod.get(pod.uid, "")
        return ObservedNode(lost=lost) if lost else None

    def _forget_if_empty(self, node: str) -> None:
        if ("", node) not in self.nodes and node not in self._jobs_on:
            self.ending_nodes.pop(node, None)

    def set_child(self, kind: str, at: tuple[str, str], seen: tuple[JobKey, ChildView] | None) -> Concerned:
        before = self.children[kind].pop(at, None)
        if before is not None:
            _drop(self._children_of, before[0], (kind, before[1].name))
        if seen is not None:
            self.children[kind][at] = seen
            self._children_of.setdefault(seen[0], {})[kind, seen[1].name] = seen[1]
        return _once(*(key for key, _ in filter(None, (before, seen))))

    def set_flavor(self, name: str, flavor: Custom | None) -> Concerned:
        """Set or remove a ResourceFlavor; return the histories with a Workload that was admitted to it."""
        self.flavors.pop(("", name), None)
        if flavor is not None:
            self.flavors["", name] = flavor
        return _once(*(key for key, child in self.children[WORKLOAD].values() if name in _flavors(child.workload)))

    def recordable(self, child: ChildView, known: ChildView | None) -> ChildView | None:
        """The child as events have it; None for a Workload that was just admitted to a flavor that is not listed yet.

        `known` is the one in the log: as long as an admission lasts, pods get what its flavors had when it began.
        """
        if child.workload is None:
            return child
        before = known.workload if known is not None and known.uid == child.uid else None
        if before is not None and before.goes_on(child.workload):
            return replace(child, workload=with_placement(child.workload, before))
        flavors = {name: flavor for (_, name), flavor in self.flavors.items()}
        if child.workload.begins and not _flavors(child.workload) <= flavors.keys():
            return None
        return replace(child, workload=with_flavors(child.workload, flavors))


def _lacks_end(job: Job, uid: Uid) -> bool:
    """True if the log has a pod, and not that its training ended."""
    return uid in job.pods.views and not ended(job.pods.views[uid])


def _flavors(workload: WorkloadView | None) -> set[str]:
    return {name for each in workload.pod_sets for name in each.flavors} if workload is not None else set()


G = TypeVar("G")
K = TypeVar("K")
V = TypeVar("V")


def _once(*keys: JobKey) -> Concerned:
    return tuple(dict.fromkeys(keys))


def _drop(index: dict[G, dict[K, V]], key: G, inner: K) -> None:
    held = index.get(key, {})
    held.pop(inner, None)
    if not held:
        index.pop(key, None)
