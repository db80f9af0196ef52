"""The smallest possible kube-scheduler: a pending pod goes to the Ready node with the fewest pods that has room.

A node's room is its allocatable amounts minus the requests of its pods.  The binder respects node selectors, cordons,
untolerated taints and scheduling gates.  It ignores affinity, priorities and pods of other schedulers, and evicts none.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal

from devcluster.apiserver.deletion import finish
from devcluster.apiserver.errors import Json
from devcluster.apiserver.pods import parse_quantity
from devcluster.apiserver.resources import NODES, PODS
from devcluster.apiserver.store import DELETED, Change, Entry, Key, Place, Store, dig
from devcluster.clock import now

SCHEDULER = "default-scheduler"
DEFAULT_MAX_PODS = "110"

KEEPS_OFF = ("NoSchedule", "NoExecute")
"""The taint effects that keep pods off a node; `PreferNoSchedule` is ignored."""

Amounts = dict[str, Decimal]


class Node:
    """The fields of a node that binding depends on."""

    def __init__(self, entry: Entry) -> None:
        node = entry.object()
        spec, status = node.get("spec") or {}, node.get("status") or {}
        conditions = {one.get("type"): one.get("status") for one in status.get("conditions") or ()}
        self.name = entry.place.name
        self.open = conditions.get("Ready") == "True" and not spec.get("unschedulable") and not entry.deleting
        self.labels = entry.labels
        self.allocatable = _amounts({"pods": DEFAULT_MAX_PODS} | (status.get("allocatable") or {}))
        taints = spec.get("taints") or ()
        self.taints = [taint for taint in taints if taint.get("effect") in KEEPS_OFF]
        self.offer = (self.open, self.labels, self.allocatable, self.taints)
        """A change of one of these lets pending pods be tried again."""


class Use:
    """The requests of the pods on one node."""

    def __init__(self) -> None:
        self.pods: dict[Place, Amounts] = {}
        self.total: Amounts = defaultdict(Decimal)

    def add(self, place: Place, pod: Json) -> None:
        if place not in self.pods:
            self.pods[place] = _requests(pod)
            for name, amount in self.pods[place].items():
                self.total[name] += amount

    def remove(self, place: Place) -> None:
        for name, amount in self.pods.pop(place).items():
            self.total[name] -= amount


class Binder:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._nodes: dict[str, Node] = {}
        self._pending: dict[Place, None] = {}
        self._used: dict[str, Use] = defaultdict(Use)
        """By node."""
        self._homes: dict[Place, str] = {}
        """The node of each pod that uses one."""
        self._due: dict[Place, None] = {}
        """The pending pods to try now: a new pod, or all of them after a node was added or room became free."""
        self._awake = asyncio.Event()
        for key in (NODES.key, PODS.key):
            for entry in store.all(key):
                self._take(key, entry)
        store.listeners.append(self._on_change)

    def _on_change(self, change: Change) -> None:
        if change.key not in (PODS.key, NODES.key):
            return
        place = change.entry.place
        if change.type != DELETED:
            self._take(change.key, change.entry)
        elif change.key == NODES.key:
            self._nodes.pop(place.name, None)
        else:
            self._pending.pop(place, None)
            self._free(place)

    def _take(self, key: Key, entry: Entry) -> None:
        if key == NODES.key:
            before = self._nodes.get(entry.place.name)
            node = self._nodes[entry.place.name] = Node(entry)
            if before is None or node.offer != before.offer:
                self._try(*self._pending)
            return
        pod = entry.object()
        spec, phase = pod["spec"], dig(pod, "status.phase")
        if phase in ("Succeeded", "Failed"):
            self._free(entry.place)
        elif node_name := spec.get("nodeName"):
            self._used[node_name].add(entry.place, pod)
            self._homes[entry.place] = node_name
            self._pending.pop(entry.place, None)
        # The binder itself writes the condition of a pod without a node; that write does not queue the pod again.
        elif spec.get("schedulerName") == SCHEDULER and entry.place not in self._pending:
            self._pending[entry.place] = None
            self._try(entry.place)

    def _free(self, place: Place) -> None:
        node_name = self._homes.pop(place, None)
        if node_name is not None:
            self._used[node_name].remove(place)
            self._try(*self._pending)

    def _try(self, *places: Place) -> None:
        self._due.update(dict.fromkeys(places))
        self._awake.set()

    async def run(self) -> None:
        """Bind pending pods after each change that may give them a node, for as long as the server runs."""
        while True:
            await self._awake.wait()
            self._awake.clear()
            due, self._due = self._due, {}
            for number, place in enumerate(due, start=1):
                self._bind(place)
                if number % 100 == 0:
                    await asyncio.sleep(0)

    def _bind(self, place: Place) -> None:
        entry = self._store.get(PODS.key, place)
        if entry is None or entry.deleting or place not in self._pending:
            self._pending.pop(place, None)
            return
        pod = entry.object()
        if pod["spec"].get("schedulingGates"):
            # The removal of a gate is a change of the pod, which queues it again.
            del self._pending[place]
            return
        requests = _requests(pod)
        problems = {name: self._problem(node, pod, requests) for name, node in self._nodes.items()}
        fitting = [name for name, problem in problems.items() if not problem]
        if fitting:
            chosen = min(fitting, key=lambda name: (len(self._used[name].pods), name))
            pod["spec"]["nodeName"] = chosen
            _set_scheduled(pod, "True", "", "")
        else:
            reasons = sorted(set(problems.values())) or ["no nodes are registered"]
            message = f"0/{len(problems)} nodes are available: {', '.join(reasons)}."
            if not _set_scheduled(pod, "False", "Unschedulable", message):
                return
        finish(self._store, PODS.key, pod)

    def _problem(self, node: Node, pod: Json, requests: Amounts) -> str:
        """Why the pod cannot run on the node; empty if it can."""
        if not node.open:
            return "node is not ready or unschedulable"
        tolerations = pod["spec"].get("tolerations") or ()
        if any(not _tolerated(taint, tolerations) for taint in node.taints):
            return "node(s) had untolerated taint"
        wanted = pod["spec"].get("nodeSelector") or {}
        if any(node.labels.get(name) != value for name, value in wanted.items()):
            return "node didn't match Pod's node affinity/selector"
        used = self._used[node.name].total
        for name, amount in requests.items():
            if amount and used[name] + amount > node.allocatable.get(name, 0):
                return f"Insufficient {name}" if name != "pods" else "Too many pods"
        return ""


def _tolerated(taint: Json, tolerations: Iterable[Json]) -> bool:
    return any(
        one.get("effect") in (None, "", taint.get("effect"))
        and (one.get("key") == taint.get("key") or (not one.get("key") and one.get("operator") == "Exists"))
        and (one.get("operator") == "Exists" or (one.get("value") or "") == (taint.get("value") or ""))
        for one in tolerations
    )


def _set_scheduled(pod: Json, status: str, reason: str, message: str) -> bool:
    """Put the condition PodScheduled into the pod; return True if that changed the pod."""
    conditions = pod.setdefault("status", {}).setdefault("conditions", [])
    found = next((one for one in conditions if one.get("type") == "PodScheduled"), None)
    wanted: Json = {"type": "PodScheduled", "status": status}
    wanted |= {"reason": reason, "message": message} if reason else {}
    if found and {name: value for name, value in found.items() if name != "lastTransitionTime"} == wanted:
        return False
    if found:
        conditions.remove(found)
    conditions.append(wanted | {"lastTransitionTime": now()})
    return True


def _requests(pod: Json) -> Amounts:
    total: Amounts = defaultdict(Decimal, {"pods": Decimal(1)})
    for container in pod["spec"].get("containers") or ():
        for name, amount in _amounts((container.get("resources") or {}).get("requests") or {}).items():
            total[name] += amount
    return total


def _amounts(texts: Json) -> Amounts:
    return {name: parse_quantity(text) for name, text in texts.items()}
