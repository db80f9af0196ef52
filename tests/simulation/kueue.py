"""Kueue with queues that share their room, as far as Workloads tell of it: it admits in order, replaces slices, evicts.

What it never does: take quota back from a Workload that is not finished or gone.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

from shared.cluster import Resource
from shared.cluster.kinds import PODS
from shared.errors import Refused
from shared.frameworks.queueing import FLAVORS, REPLACES, WORKLOAD, WORKLOADS
from shared.job.naming import JOB_UID
from shared.job.policies.quota import REPLACED
from tests.kit.invariants import ENDED
from tests.memory.store import MemoryStore
from tests.memory.watching import Held
from tests.simulation.platform import runs

LOOK_SECONDS = 0.05
CHECKS_SECONDS = 0.3
"""How long the admission checks of every third Workload take."""

NOON = "2030-01-01T12:00:00Z"


class Kueue:
    """Queues with room for so many pods together; a Workload may name any queue."""

    def __init__(
        self, store: MemoryStore, seed: int, room: int, later: Callable[[float, Callable[[], None]], None]
    ) -> None:
        self.room = room
        self._store = store
        self._later = later
        self._chance = Random(f"{seed} kueue")
        self._looking = False
        store.create(FLAVORS, "", {"metadata": {"name": "pool"}, "spec": {"nodeLabels": {"pool": "a"}}})
        store.listeners.append(self._changed)

    def clear(self) -> None:
        """From now on there is room for all."""
        self.room = 1_000_000
        self._look()

    def evict(self, namespace: str, job: str) -> None:
        """Take a job's quota for another one."""
        for held in self._of(namespace, job):
            if is_true(held, "QuotaReserved") and not is_true(held, "Finished"):
                self._write(held, {"Evicted": ("True", "Preempted")})

    def delete(self, namespace: str, job: str) -> None:
        """A person deletes the Workloads of a job."""
        for held in self._of(namespace, job):
            self._store.delete(WORKLOADS, *held.at)

    def _of(self, namespace: str, job: str) -> list[Held]:
        owned = [held for held in self._store.find(WORKLOADS, namespace) if held.metadata.get("ownerReferences")]
        return [held for held in owned if held.metadata["ownerReferences"][0]["name"] == job]

    def _changed(self, resource: Resource[Any], before: Held | None, after: Held | None) -> None:
        if resource.plural == WORKLOADS.plural and not self._looking:
            self._looking = True
            self._later(LOOK_SECONDS * (1 + self._chance.random()), self._look)

    def _look(self) -> None:
        self._looking = False
        live = [held for held in self._store.find(WORKLOADS) if not is_true(held, "Finished")]
        for held in live:
            if held.metadata.get("deletionTimestamp") and not held.metadata.get("ownerReferences"):
                self._store.patch(WORKLOADS, *held.at, {"metadata": {"finalizers": None}})
            elif is_true(held, "QuotaReserved"):
                if not is_true(held, "Admitted") and not is_true(held, "Evicted"):
                    self._write(held, {"Admitted": ("True", "Admitted")})
            elif not held.metadata.get("deletionTimestamp") and held.manifest["spec"].get("active") is not False:
                self._admit(held, live)

    def _admit(self, held: Held, live: Iterable[Held]) -> None:
        known = {each.at: each for each in live}
        replaced = (held.metadata.get("annotations") or {}).get(REPLACES, "").split("/")
        before = self._store.get(WORKLOADS, *replaced) if len(replaced) == 2 else None
        if before is not None and (is_true(before, "Evicted") or not is_true(before, "QuotaReserved")):
            before = None
        if before is not None and before.manifest["spec"]["queueName"] != held.manifest["spec"]["queueName"]:
            # Kueue looks for it in the queue of the new one alone.
            before = None
        given = sum(pods(self._now(each)) for each in known.values() if is_true(self._now(each), "QuotaReserved"))
        freed = pods(before) if before is not None and not is_true(before, "Finished") else 0
        if given - freed + pods(held) > self.room:
            if known_condition(held, "QuotaReserved").get("reason") != "Pending":
                self._write(held, {"QuotaReserved": ("False", "Pending")})
            return
        sets = [
            {"name": each["name"], "count": each["count"], "flavors": {"cpu": "pool"}}
            for each in held.manifest["spec"]["podSets"]
        ]
        conditions = {"QuotaReserved": ("True", "QuotaReserved")}
        if self._chance.random() < 0.7:
            conditions["Admitted"] = ("True", "Admitted")
        else:
            self._later(CHECKS_SECONDS, self._look)
        if known_condition(held, "Evicted"):
            conditions["Evicted"] = ("False", "QuotaReserved")
        self._write(held, conditions, admission={"clusterQueue": "all", "podSetAssignments": sets})
        if before is not None:
            self._write(before, {"Finished": ("True", REPLACED)})

    def _now(self, held: Held) -> Held:
        return self._store.get(WORKLOADS, *held.at) or held

    def _write(self, held: Held, conditions: dict[str, tuple[str, str]], **status: Any) -> None:
        kept = [each for each in _conditions(held) if each["type"] not in conditions]
        changed = [
            {"type": kind, "status": word, "reason": reason, "message": "", "lastTransitionTime": NOON}
            for kind, (word, reason) in conditions.items()
        ]
        with suppress(Refused):
            patch = {"status": {"conditions": [*kept, *changed], **status}}
            self._store.patch(WORKLOADS, *held.at, patch, subresource="status")


def pods(held: Held) -> int:
    """The number of pods that a Workload is for."""
    return sum(each["count"] for each in held.manifest["spec"]["podSets"])


def is_true(held: Held, kind: str) -> bool:
    return known_condition(held, kind).get("status") == "True"


def known_condition(held: Held, kind: str) -> dict[str, Any]:
    return next((each for each in _conditions(held) if each["type"] == kind), {})


def _conditions(held: Held) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (held.manifest.get("status") or {}).get("conditions") or []
    return found


def beyond_quota(store: MemoryStore, over: Callable[[str], bool]) -> Iterator[str]:
    """The jobs in a queue with more pods than they have quota for; `over` tells by its uid that a job has ended.

    A call that was on its way at a job's end may still make a pod; such a pod is deleted.
    """
    quota: dict[str, int] = {}
    for held in store.find(WORKLOADS):
        if not is_true(held, "Finished"):
            uid = held.metadata["labels"][JOB_UID]
            quota[uid] = max(quota.get(uid, 0), pods(held) if is_true(held, "QuotaReserved") else 0)
    there: dict[str, int] = {}
    for held in store.find(PODS):
        uid = (held.metadata.get("labels") or {}).get(JOB_UID, "")
        # A person may have taken the label.
        queued = uid and WORKLOAD in (held.metadata.get("annotations") or {})
        if (
            queued
            and held.metadata.get("ownerReferences")
            and (held.manifest.get("status") or {}).get("phase") not in ENDED
        ):
            there[uid] = there.get(uid, 0) + 1
    for uid, number in there.items():
        if number > quota.get(uid, 0) and not over(uid):
            yield f"I29 job {uid} has {number} pods, and quota for {quota.get(uid, 0)}"


def kept_after_the_end(store: MemoryStore, over: Iterable[str]) -> Iterator[str]:
    """The Workloads that keep quota, or their finalizer, of jobs that are over; by their uids.

    A pod whose other container runs on has its job's quota; that it may run, the rule of given-up slots says.  What a
    deletion orphaned is a person's to delete: it may have been over before the log had that it orphans.
    """
    ended = {*over} - {(held.metadata.get("labels") or {}).get(JOB_UID) for held in store.find(PODS) if runs(held)}
    for held in store.find(WORKLOADS):
        kept = not is_true(held, "Finished") or held.metadata.get("finalizers")
        if kept and held.metadata.get("ownerReferences") and held.metadata["labels"][JOB_UID] in ended:
            yield f"I30 Workload {held.at[1]} keeps its quota, and its job is over"


def quota_twice(store: MemoryStore) -> Iterator[str]:
    """The jobs with quota by more than one Workload, once all is quiet."""
    holders = Counter(
        held.metadata["labels"][JOB_UID]
        for held in store.find(WORKLOADS)
        if is_true(held, "QuotaReserved") and not is_true(held, "Finished")
    )
    for uid, number in holders.items():
        if number > 1:
            yield f"I31 job {uid} has quota by {number} Workloads"
