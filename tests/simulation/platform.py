"""The rest of the cluster: kube-scheduler, kubelets with what their containers do, the garbage collector, nodes.

Driven by what changes in the store; every delay and every end comes from one source of chance.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Protocol

import msgspec

from services.scaler.core import commands
from services.scaler.launcher_commands import LINK
from shared.cluster import Execution, Manifest, Resource
from shared.cluster.kinds import CONFIGMAPS, NODES, PODS
from shared.errors import Refused
from shared.job.naming import config_name
from tests.kit import gangs
from tests.memory.store import MemoryStore
from tests.memory.watching import Held
from tests.simulation.loop import outside

FOLLOWERS = ("-worker-", "-ps-", "-server-", "-node-")
"""Parts of the names of pods whose end is rarely that of the job."""

SLOW_SCRIPT_SECONDS = 30.0
LONGEST_USE_SECONDS = 12.0
"""How long a launcher uses a worker that left its hosts files: longer than some requests have time."""

COLLECT_SECONDS = 0.05
"""How long garbage lies before it is collected."""

GARBAGE = ("", "garbage")
"""Under this name it is drawn when garbage is collected."""

NODE_NAMES = ("node-0", "node-1", "node-2")

REFUSED = "refused"
"""An image that an admission policy refuses."""

SILENT = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
TOLERATION_SECONDS = 3.0
"""How long the pods of a silent node are tolerated there."""
ANNOUNCED = {"key": "cloud.google.com/impending-node-termination", "effect": "NoSchedule"}
"""A machine that is taken back."""

SECRET = "open-sesame"
"""The value of a variable of every container and script, and what every script prints."""

CODES = (0, 0, 0, 0, 0, 0, 1, 1, 127, 137, 143, 255)
"""How containers end that end by themselves."""


SIDE, INIT = "side", "fetch"
"""The container that runs on beside the training, and the one that has to end before it."""
AGAIN = (1, 127)
"""The exit codes after which a kubelet restarts the training container in place, where its pod says so."""


class Workload(msgspec.Struct, frozen=True, omit_defaults=True):
    """What containers do."""

    longest_seconds: float = 8.0
    """A leading container that ends by itself ends within this time."""
    hang: int = 10
    """Leading containers, of 100, that run until their pod is deleted."""
    fail: int = 5
    """Other containers, of 100, that end by themselves."""
    slow_scripts: int = 20
    """Scripts, of 100, that may take longer than their request has time."""
    unready: int = 3
    """Pods, of 100, that do not start before the weather clears."""
    rejected: int = 0
    """Pods, of 100, that their kubelet rejects."""


class Scripts(Protocol):
    """Who is told of each script, whose text is the name of its request."""

    def ran(self, namespace: str, request: str) -> None: ...

    def done(self, namespace: str, request: str) -> None: ...


class Platform:
    """What a cluster has besides its API server."""

    def __init__(self, store: MemoryStore, seed: int, workload: Workload, scripts: Scripts) -> None:
        self._store = store
        self._scripts = scripts
        self._seed = seed
        self._workload = workload
        self._loop = asyncio.get_running_loop()
        self._outside = outside()
        self._next: dict[str, str] = {}
        """The uid of each pod → what happens to it next."""
        self._collecting = False
        self._drawn = Counter[tuple[str, str]]()
        """By namespace and name of a pod, how often something was drawn for it."""
        self._silent = set[str]()
        """The nodes whose kubelet says nothing."""
        self._used: dict[tuple[str, str], tuple[Held, float]] = {}
        """Workers that left the hosts files, with the launcher that runs processes on them, and until when."""
        self.places = 0
        """The number of pods that find a node until then; 0 for any number."""
        self.calm = False
        """True once every container ends well, and every pod starts."""
        self.last_words: Callable[[Held], str | None] = lambda held: None
        """What a container writes that is told to end; None where it writes nothing and its end is not seen."""
        store.listeners.append(self._changed)
        store.program = self._program
        store.admit(PODS, _must_not_be_refused)
        for name in NODE_NAMES:
            store.create(NODES, "", {"metadata": {"name": name}})

    def clear(self) -> None:
        """From now on all goes well."""
        self.calm = True
        for name in NODE_NAMES:
            self.open_node(name)
        for held in self._store.find(PODS):
            self._next.pop(held.metadata["uid"], None)
            self._care(held)

    def end(self, namespace: str, name: str, code: int | None) -> None:
        """The container of a pod ends, or the pod is evicted for want of memory of its node."""
        held = self._store.get(PODS, namespace, name)
        if held is None or _phase(held) != "Running" or held.manifest["spec"].get("nodeName") in self._silent:
            return
        if code is None:
            status = {"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"}
            self._store.patch(PODS, *held.at, {"status": {**status, "conditions": None}}, subresource="status")
        else:
            self._report(held, "Failed" if code else "Succeeded", code)

    def lose_node(self, node: str) -> None:
        """A node dies: its pods vanish without a word."""
        for held in self._on(node):
            self._after(0.05, self._remove, held.metadata["uid"], held)

    def silence_node(self, node: str) -> None:
        """A kubelet says no more; the control plane gives the pods of its node up after a while."""
        if self._store.get(NODES, "", node) is None:
            return
        self._silent.add(node)
        self._store.patch(NODES, "", node, {"spec": {"taints": [SILENT]}})
        self._set_ready(node, "Unknown")
        for held in self._on(node):
            self._mark(held, {"type": "Ready", "status": "False"})
        self._after(TOLERATION_SECONDS, self._give_up, node)

    def _give_up(self, node: str) -> None:
        for held in self._on(node) if node in self._silent else ():
            if _phase(held) in ("Succeeded", "Failed"):
                continue
            self._mark(held, {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"})
            self._store.delete(PODS, *held.at)

    def _mark(self, held: Held, condition: dict[str, str]) -> None:
        kept = [each for each in held.manifest["status"].get("conditions", ()) if each["type"] != condition["type"]]
        with suppress(Refused):
            conditions = {"status": {"conditions": [*kept, condition]}}
            self._store.patch(PODS, *held.at, conditions, subresource="status")

    def _set_ready(self, node: str, status: str) -> None:
        conditions = [{"type": "Ready", "status": status, "lastTransitionTime": "2030-01-01T00:00:00Z"}]
        self._store.patch(NODES, "", node, {"status": {"conditions": conditions}}, subresource="status")

    def drain_node(self, node: str) -> None:
        """A node is closed, and its pods are evicted."""
        taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        self._store.patch(NODES, "", node, {"spec": {"taints": [taint]}})
        for held in self._on(node):
            self._mark(held, {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"})
            self._store.delete(PODS, *held.at)

    def announce_node(self, node: str) -> None:
        """A node will be taken away soon; its pods run on."""
        self._store.patch(NODES, "", node, {"spec": {"taints": [ANNOUNCED]}})

    def delete_node(self, node: str) -> None:
        """A node is deleted, and its pods with it after a while."""
        self._store.delete(NODES, "", node)
        self._after(1.0, self.lose_node, node)

    def open_node(self, node: str) -> None:
        if self._store.get(NODES, "", node) is None:
            self._store.create(NODES, "", {"metadata": {"name": node}})
        self._store.patch(NODES, "", node, {"spec": {"taints": None}})
        if node in self._silent:
            self._silent.remove(node)
            self._set_ready(node, "True")
            for held in self._on(node):
                if _phase(held) == "Running" and not held.metadata.get("deletionTimestamp"):
                    self._mark(held, {"type": "Ready", "status": "True"})
                self._next.pop(held.metadata["uid"], None)
                self._care_again(held.at)

    def _on(self, node: str) -> list[Held]:
        return [held for held in self._store.find(PODS) if held.manifest["spec"].get("nodeName") == node]

    def _changed(self, resource: Resource[Any], before: Held | None, after: Held | None) -> None:
        if resource.plural == PODS.plural and after is not None:
            self._care(after)
        if resource.plural == CONFIGMAPS.plural and before is not None and after is not None:
            self._note_left(before, after)
        # An object that is created after its owner went is garbage from the start.
        due = after is None or after.metadata.get("finalizers") or (before is None and self._store.is_garbage(after))
        if due and not self._collecting:
            self._collecting = True
            self._after(COLLECT_SECONDS * (1 + self._draw(GARBAGE).random()), self._collect)

    def _note_left(self, before: Held, after: Held) -> None:
        """A launcher goes on with the processes of workers that left its hosts files, some of them for seconds."""
        launcher = self._store.get(PODS, after.at[0], f"{after.at[1].removesuffix(config_name(''))}-launcher")
        if launcher is None:
            return
        for name in sorted(_hosts(before) - _hosts(after)):
            # Not by the version, which other tenants' writes raise, too.
            chance = Random(f"{self._seed} {after.at} {sorted(_hosts(after))} {name}")
            until = self._loop.time() + chance.choice((0.0, 0.0, 1.0, LONGEST_USE_SECONDS)) * chance.random()
            self._used[after.at[0], name] = launcher, until

    def in_use(self, namespace: str, pod: str) -> bool:
        """True if the launcher still runs a process on a worker that left its hosts files."""
        launcher, until = self._used.get((namespace, pod), (None, 0.0))
        if launcher is None or until <= self._loop.time():
            return False
        held = self._store.get(PODS, *launcher.at)
        # A container that the kubelet began again has read the new hosts files.
        return held is not None and trains(held) and _restarts_of(held) == _restarts_of(launcher)

    def _collect(self) -> None:
        self._collecting = False
        self._store.collect_garbage()

    def _draw(self, at: tuple[str, str]) -> Random:
        """What happens to a pod depends on no other pod: a plan with fewer jobs has the same lives of the others."""
        self._drawn[at] += 1
        return Random(f"{self._seed} {at} {self._drawn[at]}")

    def _care(self, held: Held) -> None:
        """Plan what happens to this pod next."""
        uid, chance = held.metadata["uid"], self._draw(held.at)
        stage, seconds, act = self._stage(held, chance)
        if stage == self._next.get(uid):
            return
        self._next[uid] = stage
        if seconds is not None:
            self._after(seconds * (0.5 + chance.random()), self._act, uid, held.at, stage, act)

    def _stage(self, held: Held, chance: Random) -> tuple[str, float | None, Callable[[Held], None]]:
        phase = _phase(held)
        if held.metadata.get("deletionTimestamp"):
            if trains(held) and (words := self.last_words(held)) is not None:
                return "terminate", 0.1, lambda pod: self._report(pod, "Failed", 143, words)
            return "remove", 0.1, lambda pod: self._store.remove(PODS, *pod.at)
        if not held.manifest["spec"].get("nodeName"):
            return "bind", 0.01, self._bind
        if phase == "Pending":
            stuck = not self.calm and chance.random() * 100 < self._workload.unready
            return "start", None if stuck else 0.05, self._start_of(held)
        if phase == "Running" and (code := _code(held)) is not None:
            # The training ended, and its pod did not.
            again = _restarts(held, code)
            return f"again {_restarts_of(held)}", 0.2 if again else None, lambda pod: self._report(pod, "Running", None)
        if phase == "Running":
            return self._end_of(held, chance)
        return "ended", None, lambda pod: None

    def _start_of(self, held: Held) -> Callable[[Held], None]:
        """How a pod begins: most run, some are rejected, or fail in their init container; drawn apart."""
        pick = Random(f"{self._seed} {held.metadata['uid']} start").random() * 100
        if not self.calm and pick < self._workload.rejected:
            return self._reject
        if not self.calm and pick < 25 and held.manifest["spec"].get("initContainers"):
            return self._fail_before
        return lambda pod: self._report(pod, "Running", None)

    def _reject(self, held: Held) -> None:
        status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy device"}
        self._store.patch(PODS, *held.at, {"status": status}, subresource="status")

    def _fail_before(self, held: Held) -> None:
        waits = {"name": _first(held), "ready": False, "state": {"waiting": {"reason": "PodInitializing"}}}
        failed = {"name": INIT, "ready": False, "state": {"terminated": {"exitCode": 7, "reason": "Error"}}}
        status = {"phase": "Failed", "containerStatuses": [waits], "initContainerStatuses": [failed]}
        self._store.patch(PODS, *held.at, {"status": status}, subresource="status")

    def _end_of(self, held: Held, chance: Random) -> tuple[str, float | None, Callable[[Held], None]]:
        workload = self._workload
        leads = not any(part in held.at[1] for part in FOLLOWERS)
        code = 0 if self.calm else chance.choice(CODES)
        seconds: float | None = workload.longest_seconds * chance.random()
        if self.calm:
            # A follower may be its job's leader too; one whose job ends before is deleted first.
            seconds = 1.0 if leads else 5.0
        elif chance.random() * 100 < (workload.hang if leads else 100 - workload.fail):
            seconds = None
        phase = "Failed" if code else "Succeeded"
        return "calm end" if self.calm else "end", seconds, lambda pod: self._report(pod, phase, code)

    def _act(self, uid: str, at: tuple[str, str], stage: str, act: Callable[[Held], None]) -> None:
        held = self._store.get(PODS, *at)
        if held is None or held.metadata["uid"] != uid or self._next.get(uid) != stage:
            return
        if held.manifest["spec"].get("nodeName") not in self._silent:
            # What happens on a silent node is known when it is back.
            act(held)

    def _bind(self, held: Held) -> None:
        if gangs.waits(self._store, held, self.places if self.places and not self.calm else None):
            if not gangs.waits(self._store, held):
                self._mark(held, {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"})
            self._next.pop(held.metadata["uid"])
            self._after(0.2, self._care_again, held.at)
            return
        nodes = [node.at[1] for node in self._store.find(NODES) if not (node.manifest.get("spec") or {}).get("taints")]
        if self._is_full():
            self._mark(held, {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"})
            self._next.pop(held.metadata["uid"], None)
            self._after(0.3, self._care_again, held.at)
        elif nodes:
            self._store.bind(*held.at, self._draw(held.at).choice(nodes))
            for other in gangs.others(self._store, held):
                if not self._is_full():
                    self._store.bind(*other.at, self._draw(other.at).choice(nodes))
        else:
            self._next.pop(held.metadata["uid"])
            self._after(1.0, self._care_again, held.at)

    def _is_full(self) -> bool:
        placed = (held for held in self._store.find(PODS) if held.manifest["spec"].get("nodeName"))
        taken = sum(_phase(held) not in ("Succeeded", "Failed") for held in placed) if self.places else 0
        return bool(self.places) and not self.calm and taken >= self.places

    def preempt(self, namespace: str, stem: str, count: int) -> None:
        """Pods of higher priority get the places of the first of these pods."""
        placed = [held for held in self._store.find(PODS, namespace) if held.manifest["spec"].get("nodeName")]
        self.places = max(self.places - count, 1) if self.places else 0
        for held in [held for held in placed if held.at[1].startswith(stem) and trains(held)][:count]:
            self._mark(held, {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"})
            self._store.delete(PODS, *held.at)

    def _care_again(self, at: tuple[str, str]) -> None:
        held = self._store.get(PODS, *at)
        if held is not None:
            self._care(held)

    def _remove(self, uid: str, held: Held) -> None:
        self._store.remove(PODS, *held.at, uid=uid)

    def _report(self, held: Held, phase: str, code: int | None, words: str = "") -> None:
        ready = phase == "Running"
        state: dict[str, Any] = {"running": {}} if ready else {}
        if code is not None:
            reason = {0: "Completed", 137: "OOMKilled"}.get(code, "Error")
            state = {"terminated": {"exitCode": code, "reason": reason, **({"message": words} if words else {})}}
        restarts = _restarts_of(held) + (code is None and _code(held) is not None)
        statuses = [{"name": _first(held), "ready": ready, "state": state, "restartCount": restarts}]
        if has_side(held):
            statuses = [{"name": SIDE, "ready": True, "state": {"running": {}}}, *statuses]
        if code is not None and (has_side(held) or _restarts(held, code)):
            phase, ready = "Running", False
        kept = [each for each in held.manifest["status"].get("conditions", ()) if each["type"] != "Ready"]
        status = {
            "phase": phase,
            "conditions": [*kept, {"type": "Ready", "status": str(ready)}],
            "containerStatuses": statuses,
        }
        self._store.patch(PODS, *held.at, {"status": status}, subresource="status")

    async def _program(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> Execution:
        held = self._store.get(PODS, namespace, pod)
        if held is None or _phase(held) != "Running":
            raise Refused(f"execute in {namespace}/{pod}: it does not run", reason="CannotExecute")
        if tuple(command) == commands.LOOK:
            used = sorted(name for where, name in self._used if where == namespace and self.in_use(namespace, name))
            return Execution(0, b"\0".join([b"launcher", *(name.encode() for name in used), b""]))
        if len(command) == 2:
            job = pod.rpartition("-launcher")[0]
            files = self._store.get(CONFIGMAPS, namespace, config_name(job))
            # The script that discovers hosts prints this file.
            return Execution(0, files.manifest["data"]["hostfile"].encode() if files is not None else b"")
        if LINK in command:
            return Execution(0, b"")
        request = command[command.index("sh", len(commands.QUIETLY)) + 1]
        self._scripts.ran(namespace, request)
        chance = self._draw((namespace, pod))
        slow = not self.calm and chance.random() * 100 < self._workload.slow_scripts
        await asyncio.sleep((SLOW_SCRIPT_SECONDS if slow else 0.5) * chance.random())
        code = 0 if self.calm or not self._workload.fail else chance.choice((0, 0, 0, 1))
        if not code:
            self._scripts.done(namespace, request)
        return Execution(code, SECRET.encode())

    def _after(self, seconds: float, what: Callable[..., None], *args: Any) -> None:
        self._loop.call_later(seconds, what, *args, context=self._outside)


def _must_not_be_refused(before: Manifest | None, after: Manifest) -> None:
    if any(container["image"] == REFUSED for container in after["spec"]["containers"]):
        raise Refused("the image is not from our registry", reason="Invalid", field="spec.containers[0].image")


def _hosts(held: Held) -> set[str]:
    """The names of the workers that hosts files list."""
    lines = ((held.manifest.get("data") or {}).get("hostfile") or "").splitlines()
    return {re.split("[:. ]", line)[0] for line in lines if line.strip()}


def _phase(held: Held) -> str:
    return str((held.manifest.get("status") or {}).get("phase", ""))


def has_side(held: Held) -> bool:
    """True if a container runs on beside the training."""
    return any(container["name"] == SIDE for container in held.manifest["spec"]["containers"])


def _first(held: Held) -> str:
    return str(held.manifest["spec"]["containers"][0]["name"])


def _training(held: Held) -> dict[str, Any]:
    statuses = (held.manifest.get("status") or {}).get("containerStatuses") or ()
    return next((known for known in statuses if known["name"] == _first(held)), {})


def _code(held: Held) -> int | None:
    """The exit code of a training container that ended."""
    end = (_training(held).get("state") or {}).get("terminated")
    return end["exitCode"] if end is not None else None


def _restarts_of(held: Held) -> int:
    return int(_training(held).get("restartCount", 0))


def _restarts(held: Held, code: int) -> bool:
    """True if the kubelet restarts the training container after this exit."""
    first = held.manifest["spec"]["containers"][0]
    rules = [rule["exitCodes"] for rule in first.get("restartPolicyRules") or ()]
    return any((code in rule["values"]) == (rule["operator"] == "In") for rule in rules)


def trains(held: Held) -> bool:
    """True if the training container of the pod runs."""
    return _phase(held) == "Running" and _code(held) is None


def runs(held: Held) -> bool:
    """True if a container of the pod runs."""
    return trains(held) or (_phase(held) == "Running" and has_side(held))
