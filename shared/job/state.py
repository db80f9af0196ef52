"""What is true of a job now, as one frozen value; `evolve` in `evolve.py` is the only one who makes the next.

Mappings and sets are never changed in place.
"""

from collections.abc import Mapping
from typing import Literal, TypeVar

import msgspec

from shared.job.naming import JobKey, Slot, Uid, WorkerName, config_name, pod_name
from shared.job.spec import LAUNCHER, WORKER, JobSpec, Problem, ScaleKind, ScaleSpec
from shared.job.views import ChildView, Member, PodView

K = TypeVar("K")
V = TypeVar("V")

Phase = Literal["", "Created", "Running", "Scaling", "Restarting", "Suspended", "Succeeded", "Failed"]
RequestPhase = Literal["Pending", "Scaling", "Succeeded", "Failed"]


class At(msgspec.Struct, frozen=True, gc=False):
    """Where and when an event stands: what `evolve` needs of the envelope."""

    sequence: int
    time: str


class Condition(msgspec.Struct, frozen=True, gc=False):
    """One Kubernetes condition, with the event that caused it."""

    type: str
    status: bool
    reason: str
    message: str
    since: At
    """When `status` became what it is."""
    updated: At
    """When anything of it changed last."""


class Failure(msgspec.Struct, frozen=True, gc=False):
    """A worker that ended or vanished although nobody released it."""

    pod: str
    reason: str
    code: int | None
    at: At


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


class Request(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A ScaleIn or ScaleOut.  Kept after its object is gone: its outcome is history."""

    uid: Uid
    name: str
    kind: ScaleKind
    order: int
    """The sequence at which this history first heard of it."""
    version: int = 0
    """Of the view that was recorded last."""
    owner: Uid = Uid("")
    spec: ScaleSpec | None = None
    problems: tuple[Problem, ...] = ()
    phase: RequestPhase = "Pending"
    reason: str = ""
    accepted: int = 0
    """The sequence of its acceptance; 0 before."""
    added: frozenset[Slot] = frozenset()
    leaving: tuple[Member, ...] = ()
    deadline: int = 0
    drain: int = 0
    published: int = 0
    """The version of the hosts files that carries its change; 0 before the point of no return."""
    seen: int = 0
    """The sequence at which that version was seen in the cluster; 0 before."""
    released: bool = False
    gone: bool = False
    conditions: tuple[Condition, ...] = ()

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


class Tally(msgspec.Struct, frozen=True, gc=False):
    """How many pods of a role ended by themselves in this attempt; their pods may be long gone."""

    succeeded: int = 0
    failed: int = 0


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
    broken: str = ""
    """`<log>/<sequence>:<hash>` of a head that this log does not lead to; nobody acts until it is accepted."""
    accepted_heads: frozenset[str] = frozenset()
    forged: int = 0
    """The sequence at which a head was noticed, or accepted, that has to leave the resource before ours can come."""

    phase: Phase = ""
    attempt: int = 0
    restarts: int = 0
    conditions: tuple[Condition, ...] = ()
    start_time: str = ""
    completion_time: str = ""

    slots: frozenset[Slot] = frozenset()
    """Where a pod shall be: assigned or accepted, and neither released nor spent."""
    spent: frozenset[Slot] = frozenset()
    """Where the pod ended or vanished by itself: it is not made again, and its remains may stay."""
    next_index: int = 0
    """The highest worker index ever used in this attempt, plus one."""
    pods: Mapping[Uid, PodView] = {}
    launcher_lost: bool = False
    launcher_gone: PodView | None = None
    """The launcher of this attempt as last seen, once its pod is no more: an end that was seen outlives it."""
    tallies: Mapping[str, Tally] = {}
    failures: tuple[Failure, ...] = ()
    """The newest ones, at most `KEPT_FAILURES`."""
    below_minimum: int = 0
    """The sequence at which a running job fell below its minimum; 0 while it has enough workers."""

    children: Mapping[tuple[str, str], ChildView] = {}
    """By (kind, name)."""
    members: frozenset[int] = frozenset()
    """Worker indices in the newest hosts files."""
    hosts_version: int = 0
    leaving: frozenset[int] = frozenset()
    """No longer members, not yet released."""

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
    def halted(self) -> bool:
        """Nothing may be decided or done: the history cannot be trusted."""
        return bool(self.broken)

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
        return self.launcher or self.launcher_gone

    @property
    def launched(self) -> bool:
        """A launcher's place was assigned in this attempt."""
        return any(slot.role == LAUNCHER for slot in self.slots | self.spent)

    @property
    def workers(self) -> frozenset[Slot]:
        """Worker slots where a pod shall be."""
        return frozenset(slot for slot in self.slots if slot.role == WORKER)

    @property
    def hosts(self) -> ChildView | None:
        """The hosts ConfigMap as last seen."""
        return self.children.get(("ConfigMap", config_name(self.key.name)))

    @property
    def open_request(self) -> Request | None:
        return self.requests.get(self.scaling)

    def by_slot(self) -> dict[Slot, PodView]:
        """The pod in each slot; where two carry the same labels, one that is not going wins."""
        found: dict[Slot, PodView] = {}
        for pod in self.pods.values():
            known = found.get(pod.slot)
            if known is None or known.deleting:
                found[pod.slot] = pod
        return found

    def worker_name(self, index: int) -> WorkerName:
        return pod_name(self.key.name, Slot(self.attempt, WORKER, index))


KEPT_FAILURES = 16
"""Enough for the Kubernetes Events of a bad minute; the log has them all."""


def ended(pod: PodView) -> bool:
    """The pod reached a terminal phase."""
    return pod.phase in ("Succeeded", "Failed")


def alive(pod: PodView | None) -> bool:
    """The pod runs or will, and nobody asked it to go."""
    return pod is not None and not ended(pod) and not pod.deleting


def hosts_seen(job: Job, version: int) -> bool:
    """The cluster holds hosts files of at least this version, and the launcher was nudged to load them."""
    hosts, launcher = job.hosts, job.launcher
    if hosts is None or not hosts.ours or hosts.hosts < version:
        return False
    return not alive(launcher) or (launcher is not None and launcher.hosts >= version)


def without(mapping: Mapping[K, V], key: K) -> dict[K, V]:
    """A mapping less one key."""
    return {kept: value for kept, value in mapping.items() if kept != key}
