"""What is true of a job now, as one frozen value; `evolve` in `evolve.py` is the only one who makes the next.

Mappings and sets are never changed in place.
"""

from collections.abc import Mapping
from typing import Literal, TypeVar

import msgspec

from shared.job.conditions import Condition
from shared.job.events.event import At
from shared.job.integrity import Integrity
from shared.job.losses import Failure, Refill, Tally, Vacancy
from shared.job.naming import JobKey, Slot, Uid, WorkerName, config_name, pod_name
from shared.job.request import Request
from shared.job.spec import LAUNCHER, WORKER, JobSpec, Problem
from shared.job.views import ChildView, Exit, PodView, alive

K = TypeVar("K")
V = TypeVar("V")

Phase = Literal["", "Created", "Running", "Scaling", "Restarting", "Suspended", "Succeeded", "Failed"]


class Departure(msgspec.Struct, frozen=True, gc=False):
    """A worker that left the hosts files and has its slot still."""

    version: int
    """Of the first hosts files without it."""
    drain: int
    """Seconds that it gets from when they are in place."""
    seen: int = 0
    """The sequence at which they were seen in place; 0 before."""


class Refusal(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An effect that was refused, and when it may be tried again."""

    reason: str
    field: str
    permanent: bool
    count: int
    """How many times in a row."""
    at: At
    """What the back-off counts from."""
    due: bool = False
    """The back-off ran out."""
    probe: int = 1
    """How many pods the next try may make: one, then 2, 4, 8 while they succeed."""


class Job(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A job, folded.  `Job(key=...)` is what is true before anything happened."""

    key: JobKey
    kind: str = ""
    api_version: str = ""
    generation: int = 0
    version: int = 0
    epoch: int = 0
    spec: JobSpec | None = None
    """The last valid one."""
    problems: tuple[Problem, ...] = ()
    """Of the newest generation."""
    deleting: bool = False
    orphan: bool = False
    gone: bool = False
    expired: bool = False
    integrity: Integrity = Integrity()
    another: bool = False
    """Another operator began it and may still be running; nobody acts on it."""
    adopted: bool = False
    """It was taken over from another operator."""
    inherited: frozenset[Uid] = frozenset()
    """The pods that another operator made, of a job that was taken over from it."""

    phase: Phase = ""
    attempt: int = 0
    restarts: int = 0
    restart_wanted: bool = False
    """A person asked for a restart that has not begun."""
    active: At | None = None
    """Since when it is taken on without a pause; None before, and while it is Suspended."""
    assigned: At | None = None
    """When this attempt got its first slots."""
    restarting: At | None = None
    """When the attempt before was given up; None once the next one began."""
    paused: bool = False
    """It was Suspended when it had workers, and its next attempt has not begun."""
    ended: At | None = None
    """When it was over."""
    conditions: tuple[Condition, ...] = ()
    start_time: str = ""
    completion_time: str = ""

    slots: frozenset[Slot] = frozenset()
    """Where a pod shall be: assigned or accepted, and neither released nor spent."""
    spent: frozenset[Slot] = frozenset()
    """Where the pod ended or vanished by itself: it is not made again, and its remains may stay."""
    unseen: frozenset[Slot] = frozenset()
    """Of the attempt before: places that were given up before a pod was seen in them.  One may be on its way."""
    unseen_since: int = 0
    """The sequence at which they were given up."""
    size: int = 0
    """How many workers it shall have: what a restart begins with.  Changed by requests, not by losses."""
    vacancies: Mapping[Slot, Vacancy] = {}
    """Slots of this attempt, but the launcher's, that are spent and were neither replaced nor released."""
    refilled: Mapping[Slot, Refill] = {}
    """Slots that took the place of others in this attempt; those of pods that are gone do no harm."""
    replaced: int = 0
    """How many pods of this attempt were replaced for a fault of their own."""
    disrupted: Mapping[Uid, str] = {}
    """Pods that are about to go with their node, or evicted, and why."""
    next_index: int = 0
    """The highest worker index ever used in this attempt, plus one."""
    pods: Mapping[Uid, PodView] = {}
    launcher_lost: bool = False
    launcher_gone: PodView | None = None
    """The launcher of this attempt as it ended, or as last seen once its pod is no more.

    An end that was seen outlives the pod, and whoever deletes it afterwards.
    """
    tallies: Mapping[str, Tally] = {}
    failures: tuple[Failure, ...] = ()
    """The newest ones, at most `KEPT_FAILURES`."""
    gathered: bool = False
    """As many workers as its minimum have run in this attempt, since its phase was Running."""
    below_minimum: int = 0
    """The sequence at which a running job fell below its minimum; 0 while it has enough workers."""

    children: Mapping[tuple[str, str], ChildView] = {}
    """By (kind, name)."""
    members: frozenset[int] = frozenset()
    """Worker indices in the newest hosts files."""
    hosts_version: int = 0
    listed: bool = False
    """Hosts files were published in this attempt."""
    leaving: frozenset[int] = frozenset()
    """No longer members, not yet released."""
    departures: Mapping[Slot, Departure] = {}
    """Workers that left the hosts files, whoever releases them; those released meanwhile do no harm."""

    requests: Mapping[Uid, Request] = {}
    """In the order first seen."""
    scaling: Uid = Uid("")
    """The request that is being carried out."""

    refusals: Mapping[str, Refusal] = {}
    """By effect."""
    passed: frozenset[tuple[int, str]] = frozenset()
    """Timers that ran out: (anchor, timer)."""

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def starting(self) -> bool:
        """Its attempt has begun, and its launcher has not run yet."""
        return self.phase in ("Created", "Restarting") and not self.between_attempts

    @property
    def begun(self) -> bool:
        """Its attempt has got its first slots."""
        return self.next_index > 0 or self.assigned is not None

    @property
    def under_way(self) -> bool:
        """It has come so far that what cannot be made any more ends it no longer: its judge was there."""
        if self.spec is None or self.spec.has_launcher:
            return self.seen_launcher is not None
        return self.phase in ("Running", "Scaling")

    @property
    def between_attempts(self) -> bool:
        """No pod shall be: the last attempt was given up or interrupted, and the next has not begun."""
        return self.restarting is not None or self.paused or self.phase == "Suspended"

    @property
    def halted(self) -> bool:
        """Nothing may be decided or done: the history cannot be trusted, or the job is another operator's."""
        return self.integrity.doubt is not None or self.another

    @property
    def served_apart(self) -> bool:
        """Every pod has a Service of its own: its kind wants it so, or pods of another operator know no other names."""
        apart = self.spec is not None and self.spec.handling.services == "Pods"
        return apart or any(uid in self.inherited for uid in self.pods)

    @property
    def launcher(self) -> PodView | None:
        """The launcher pod of this attempt."""
        for pod in self.pods.values():
            if pod.role == LAUNCHER and pod.attempt == self.attempt:
                return pod
        return None

    @property
    def seen_launcher(self) -> PodView | None:
        """The launcher pod of this attempt, or how it was when it was last there."""
        return self.launcher_gone or self.launcher

    @property
    def launched(self) -> bool:
        """A launcher's place was assigned in this attempt."""
        return any(slot.role == LAUNCHER for slot in self.slots | self.spent)

    @property
    def workers(self) -> frozenset[Slot]:
        """Worker slots where a pod shall be."""
        return frozenset(slot for slot in self.slots if slot.role == WORKER)

    @property
    def launcher_alone(self) -> bool:
        """A launcher without workers."""
        return self.spec is not None and self.spec.has_launcher and not (self.size or self.spec.worker.replicas)

    @property
    def hosts(self) -> ChildView | None:
        """The hosts ConfigMap as last seen."""
        return self.children.get(("ConfigMap", config_name(self.key.name)))

    @property
    def open_request(self) -> Request | None:
        return self.requests.get(self.scaling)

    @property
    def arriving(self) -> frozenset[Slot]:
        """The workers that the open request brings, as long as it can still take them back."""
        request = self.open_request
        return request.added if request is not None and not request.published else frozenset()

    @property
    def departing(self) -> frozenset[Slot]:
        """The workers that the open request takes, before it changed the size."""
        request = self.open_request
        if request is None or request.published:
            return frozenset()
        return frozenset(self.worker_slot(member.index) for member in request.leaving)

    @property
    def outgoing(self) -> frozenset[Slot]:
        """The workers that shall go: those that the open request takes, and those that left the hosts files."""
        return self.departing | {self.worker_slot(index) for index in self.leaving}

    def may_try(self, effect: str) -> bool:
        """It was not refused, or long enough ago."""
        refusal = self.refusals.get(effect)
        return refusal is None or refusal.due

    def by_slot(self) -> dict[Slot, PodView]:
        """The pod in each slot; where two carry the same labels, one that is not going wins."""
        found: dict[Slot, PodView] = {}
        for pod in self.pods.values():
            known = found.get(pod.slot)
            if known is None or known.deleting:
                found[pod.slot] = pod
        return found

    def pod_name(self, slot: Slot) -> WorkerName:
        """What the pod of a slot is called."""
        stem = next((role.stem for role in self.spec.roles if role.name == slot.role), "") if self.spec else ""
        return WorkerName(f"{stem}{slot.index}") if stem else pod_name(self.key.name, slot)

    def worker_slot(self, index: int) -> Slot:
        """The place of a worker of this attempt."""
        return Slot(self.attempt, WORKER, index)

    def worker_name(self, index: int) -> WorkerName:
        return self.pod_name(self.worker_slot(index))


def exit_of(job: Job, pod: PodView) -> Exit | None:
    """How the training container of a pod ended; None while it runs, or when nobody saw its end."""
    roles = job.spec.roles if job.spec else ()
    container = next((role.container for role in roles if role.name == pod.role), "")
    return next((end for end in pod.exits if end.container == container), None)


def running_workers(job: Job) -> int:
    """How many workers run, Ready or not, and were not asked to go."""
    pods = job.by_slot()
    return sum(1 for slot in job.workers if (pod := pods.get(slot)) and alive(pod) and pod.phase == "Running")


def hosts_seen(job: Job, version: int) -> bool:
    """The cluster holds hosts files of at least this version, and the launcher was nudged to load them.

    Where nobody reads such files, whoever should know of the members knows.
    """
    if job.spec is not None and not job.spec.handling.hosts_files:
        return True
    hosts, launcher = job.hosts, job.launcher
    if hosts is None or not hosts.ours or hosts.hosts < version:
        return False
    return not alive(launcher) or (launcher is not None and launcher.hosts >= version)


def without(mapping: Mapping[K, V], key: K) -> dict[K, V]:
    """A mapping less one key."""
    return {kept: value for kept, value in mapping.items() if kept != key}
