"""What is true of a job now, as one frozen value; `evolve` in `evolve.py` is the only one who makes the next.

Mappings and sets are never changed in place.
"""

from collections.abc import Mapping
from typing import Literal, TypeVar

import msgspec

from shared.job.attempt import Attempt, Unseen
from shared.job.conditions import Condition
from shared.job.events.event import At
from shared.job.integrity import Integrity
from shared.job.losses import Failure
from shared.job.membership import Departure, Members, Membership, Unknown
from shared.job.naming import JobKey, Slot, Uid, WorkerName, config_name, pod_name
from shared.job.scaling import Scaling
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, JobSpec, Problem
from shared.job.views import ChildView, Exit, PodView, alive

replace = msgspec.structs.replace

K = TypeVar("K")
V = TypeVar("V")

Phase = Literal["", "Created", "Running", "Scaling", "Restarting", "Suspended", "Succeeded", "Failed"]


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


class Restarting(msgspec.Struct, frozen=True, gc=False):
    """The last attempt was given up, and the next one has not begun."""

    at: At
    reason: str
    counted: bool
    """The next attempt counts against backoffLimit."""


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
    edited: int = 0
    """The sequence at which that spec was first observed."""
    problems: tuple[Problem, ...] = ()
    """Of the newest generation."""
    deleting: bool = False
    orphan: bool = False
    gone: int = 0
    """The sequence at which the resource was no more; 0 while it is there."""
    expired: bool = False
    integrity: Integrity = Integrity()
    another: bool = False
    """Another operator began it and may still be running; nobody acts on it."""
    adopted: bool = False
    """It was taken over from another operator."""

    phase: Phase = ""
    restarts: int = 0
    disruptions: int = 0
    """Attempts in a row that a disruption ended before they were steady."""
    restart_wanted: int = 0
    """The sequence at which a person asked for a restart that has not begun; 0 when there is none."""
    active: At | None = None
    """Since when the job is admitted and not suspended; None before, and while it is Suspended."""
    restarting: Restarting | None = None
    """Why the last attempt was given up; None once the next one began."""
    paused: bool = False
    """It was suspended when it had workers, and its next attempt has not begun."""
    ended: At | None = None
    """When the job was over."""
    conditions: tuple[Condition, ...] = ()
    failures: tuple[Failure, ...] = ()
    """The newest ones, at most `KEPT_FAILURES`."""
    start_time: str = ""
    completion_time: str = ""

    attempt: Attempt = Attempt()
    """The newest attempt."""
    unseen: Unseen = Unseen()
    """Of the attempt before."""
    membership: Membership = Unknown()
    scaling: Scaling = Scaling()

    pods: Mapping[Uid, PodView] = {}
    """Every pod of the job that is there, of any attempt, in the order first seen."""
    disrupted: Mapping[Uid, str] = {}
    """Pods that are about to go with their node, or evicted, and why."""
    children: Mapping[tuple[str, str], ChildView] = {}
    """By (kind, name)."""
    refusals: Mapping[str, Refusal] = {}
    """By effect."""
    timers_passed: Mapping[tuple[int, str], int] = {}
    """Timers that ran out, (anchor, timer), each with the sequence of its `TimePassed`."""

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def starting(self) -> bool:
        """Its attempt has begun, and its launcher has not run yet."""
        return self.phase in ("Created", "Restarting") and not self.between_attempts

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
        return apart or any(uid in self.attempt.inherited for uid in self.pods)

    @property
    def launcher(self) -> PodView | None:
        """The launcher pod of this attempt."""
        for pod in self.pods.values():
            if pod.role == LAUNCHER and pod.attempt == self.attempt.number:
                return pod
        return None

    @property
    def seen_launcher(self) -> PodView | None:
        """The launcher pod of this attempt, or how it was when it was last there."""
        return self.attempt.launcher_gone or self.launcher

    @property
    def launcher_alone(self) -> bool:
        """A launcher without workers."""
        return self.spec is not None and self.spec.has_launcher and not (self.scaling.size or self.spec.worker.replicas)

    @property
    def hosts(self) -> ChildView | None:
        """The hosts ConfigMap as last seen."""
        return self.children.get(("ConfigMap", config_name(self.key.name)))

    @property
    def listed_workers(self) -> SortedSet[int]:
        """Worker indices in the newest hosts files; none while the membership is unknown."""
        return self.membership.indices if isinstance(self.membership, Members) else SortedSet()

    @property
    def leaving(self) -> SortedSet[int]:
        """Workers that a scale-in took out of the hosts files and that were not released yet."""
        return self.membership.leaving if isinstance(self.membership, Members) else SortedSet()

    @property
    def departures(self) -> Mapping[Slot, Departure]:
        """Workers that left the hosts files, for whatever reason; entries of released slots are harmless."""
        return self.membership.departures if isinstance(self.membership, Members) else {}

    @property
    def departing(self) -> SortedSet[Slot]:
        """The workers that the open request removes, before it changed the size."""
        request = self.scaling.open_request
        if request is None or request.published:
            return SortedSet()
        return SortedSet(self.attempt.worker_slot(member.index) for member in request.leaving)

    @property
    def outgoing(self) -> SortedSet[Slot]:
        """The workers that the open request removes, and those that a scale-in took out of the hosts files."""
        return self.departing | SortedSet(self.attempt.worker_slot(index) for index in self.leaving)

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

    def worker_name(self, index: int) -> WorkerName:
        return self.pod_name(self.attempt.worker_slot(index))


def with_attempt(job: Job, **changes: object) -> Job:
    """The job with these fields of its attempt changed."""
    return replace(job, attempt=replace(job.attempt, **changes))


def with_scaling(job: Job, **changes: object) -> Job:
    """The job with these fields of its `Scaling` changed."""
    return replace(job, scaling=replace(job.scaling, **changes))


def exit_of(job: Job, pod: PodView) -> Exit | None:
    """How the training container of a pod ended; None while it runs, or when nobody saw its end."""
    roles = job.spec.roles if job.spec else ()
    container = next((role.container for role in roles if role.name == pod.role), "")
    return next((end for end in pod.exits if end.container == container), None)


def running_workers(job: Job) -> int:
    """How many workers run, Ready or not, and were not asked to go."""
    pods = job.by_slot()
    return sum(1 for slot in job.attempt.workers if (pod := pods.get(slot)) and alive(pod) and pod.phase == "Running")


def needed_workers(job: Job) -> int:
    """How many workers have to run: minReplicas, or the present size while an edit beyond it waits to be carried out.

    An absent minReplicas is replicas, so an edit of replicas raises both at once.
    """
    minimum = job.spec.worker.min_replicas if job.spec is not None else 0
    return min(minimum, job.scaling.size or minimum)


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
