"""The state of a job as one immutable value; only `evolve`, in `evolve.py`, makes the next one.

Mappings and sets are never changed in place.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Generic, Literal, TypeVar

import msgspec

from shared.job.attempt import (
    Attempt,
    Departure,
    Failure,
    FailuresOn,
    LostNode,
    Members,
    Membership,
    Notice,
    Tally,
    Unknown,
    Unseen,
)
from shared.job.conditions import Condition
from shared.job.events.event import At
from shared.job.integrity import Integrity
from shared.job.naming import JobKey, Slot, Uid, WorkerName, config_name, pod_name, runtime_copy_name
from shared.job.reasons import NAME_HELD, RUNTIME_CHANGED, of_refusal
from shared.job.scaling import Scaling
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, WORKER, Elasticity, JobSpec, Problem, RuntimeUsed
from shared.job.training import Training
from shared.job.views import ChildView, Exit, PodView, alive

replace = msgspec.structs.replace

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

Phase = Literal["", "Created", "Running", "Scaling", "Restarting", "Suspending", "Suspended", "Succeeded", "Failed"]


class Refusal(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An effect that the API server refused, and its back-off."""

    effect: str

    reason: str
    field: str
    permanent: bool
    count: int
    """The number of consecutive refusals."""
    at: At
    """The start of the back-off."""
    due: bool = False
    """True once the back-off is over."""
    message: str = ""
    """The API server's own words."""
    since: At
    """The first of the refusals in a row for this reason."""
    slots: SortedSet[Slot] = SortedSet()
    """The slots whose objects were refused; names that are held for others are among them until they are free."""
    probe: int = 1
    """The number of pods that the next try may create: 1, then 2, 4, 8 while it succeeds."""

    @property
    def key(self) -> str:
        """Its key among the refusals of a job."""
        return refusal_key(self.effect, self.reason)

    @property
    def sentence(self) -> str:
        """What became of the effect and why, for people."""
        more = len(self.slots) - 1 if self.reason == NAME_HELD else 0
        told = of_refusal(self.effect, self.reason, self.field, self.message)
        return f"{told}; so {'does' if more == 1 else 'do'} {more} more" if more > 0 else told


def refusal_key(effect: str, reason: str) -> str:
    """The key of a refusal: of an effect; beside it, of the names that the effect finds held.

    A name that is held keeps only its own slot from being tried.
    """
    return f"{effect}/{reason}" if reason == NAME_HELD else effect


def no_longer_refused(refusals: Mapping[str, Refusal], effects: Container[str]) -> dict[str, Refusal]:
    """The refusals without those of these effects, which succeeded."""
    return {key: refusal for key, refusal in refusals.items() if refusal.effect not in effects}


def held_by_others(refusals: Mapping[str, Refusal], held: Refusal, free: Iterable[Slot]) -> dict[str, Refusal]:
    """The refusals in which these slots no longer wait for the name of their pod; without the refusal if none does."""
    waiting = replace(held, slots=held.slots - free)
    return {
        key: waiting if key == held.key else refusal
        for key, refusal in refusals.items()
        if key != held.key or waiting.slots
    }


class Restarting(msgspec.Struct, frozen=True, gc=False):
    """The last attempt is over, and the next one has not begun."""

    at: At
    reason: str
    counted: bool
    """True if the next attempt counts against backoffLimit."""


class JobResource(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the job's resource says, and whose it is."""

    kind: str = ""
    api_version: str = ""
    generation: int = 0
    templates: int = 0
    """The first generation with the pod templates of the newest one; a size that is written changes none."""
    version: int = 0
    epoch: int = 0
    blank: bool = False
    """True if the resource of this version has no status."""
    labels: tuple[tuple[str, str], ...] | None = None
    """None for a job of whose labels no event told yet."""
    edited: int = 0
    """The sequence at which the job's spec was first observed."""
    late_edit: At | None = None
    """The newest edit after the job's end; None if there was none, or if it may still have an effect."""
    problems: tuple[Problem, ...] = ()
    """The problems of the newest generation's spec."""
    deletion: At | None = None
    """When a deletionTimestamp was first seen; None before, and for a resource that came back."""
    finalizers: tuple[str, ...] = ()
    """The finalizers that a deleted resource waits for."""
    orphan: bool = False
    """True if the deletion leaves pods and children in the cluster (propagation policy Orphan)."""
    gone: int = 0
    """The sequence of the newest `JobGone`; 0 while the resource exists."""
    another: bool = False
    """True if another operator began the job and may still run: no service acts on it."""
    obstacle: str = ""
    """Why a job of another operator cannot be taken over as it is; empty if nothing hinders."""
    adopted: bool = False
    """True if the job was taken over from another operator."""


class Status(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How far the job is, as its status says it."""

    phase: Phase = ""
    conditions: tuple[Condition, ...] = ()
    failures: tuple[Failure, ...] = ()
    """The newest failures, at most `KEPT_FAILURES`."""
    start_time: str = ""
    completion_time: str = ""
    active: At | None = None
    """Since when the job is admitted and not suspended; None before its admission, and while it is suspended."""
    ended: At | None = None
    """When the job succeeded or failed for good."""
    final: Mapping[str, Tally] = {}
    """By role, its pods at the success of the job: those that had succeeded or still ran, and those that had failed."""
    expired: bool = False
    """True once the job's time to live is over."""


class Retries(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one attempt leaves to the next."""

    restarts: int = 0
    disruptions: int = 0
    """The number of consecutive attempts that a disruption ended before they were steady."""
    unplaced: int = 0
    """The number of attempts in a row that ended because their launcher found no node; 0 after a person's change."""
    restart_wanted: int = 0
    """The sequence at which a person asked for a restart that has not begun; 0 if none is awaited."""
    restarting: Restarting | None = None
    """Why the last attempt ended; None once the next one began."""
    paused: bool = False
    """True if the job was suspended with workers and its next attempt has not begun."""


class Pods(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The existing pods of the job, of any attempt, and what is known of them beside their views."""

    views: Mapping[Uid, PodView] = {}
    """In the order first seen."""
    troubles: Mapping[Uid, At] = {}
    """Since when pods are in trouble, or on their way again after it; none for those on their way as usual, or up."""
    disrupted: Mapping[Uid, str] = {}
    """Pods that will be evicted or lose their node, with the reason."""
    notices: Mapping[Uid, tuple[Notice, ...]] = {}
    """Those of them whose node announced its end, with each announcement that was shorter than the ones before."""
    lost: Mapping[Uid, LostNode] = {}
    """Pods whose node is not Ready or unreachable."""
    failures_on: Mapping[str, FailuresOn] = {}
    """By node, the training containers that failed there, of any attempt; of a node that was avoided those since."""
    drained: SortedSet[Uid] = SortedSet()
    """Pods of released workers that the launcher had stopped using: they end quickly."""
    unseen: Unseen = Unseen()
    """Slots of earlier attempts whose pods may still appear."""


class Objects(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The job's objects beside its pods."""

    children: Mapping[tuple[str, str], ChildView] = {}
    """By (kind, name)."""
    queued: int = 0
    """The sequence of the newest event about a Workload of the job; 0 for a job that was in no queue."""
    autoscaler: Uid = Uid("")
    """The uid of its HorizontalPodAutoscaler, which no watch shows; empty without one."""
    secrets: Mapping[int, Uid] = {}
    """By attempt, the uid of its Secret with ssh keys; empty if it is unknown."""


class Efforts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What became of what the services tried and waited for: effects that were refused, and timers that ran out."""

    refusals: Mapping[str, Refusal] = {}
    """By effect, and by effect and reason for names that are held (`refusal_key`)."""
    timers_passed: Mapping[tuple[int, str], int] = {}
    """Expired timers, (anchor, timer), each with the sequence of its `TimePassed`."""


class Job(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A folded job.  `Job(key=...)` is the state before the first event.

    It is put together from values that change for one reason each.
    """

    key: JobKey
    resource: JobResource = JobResource()
    spec: JobSpec | None = None
    """The last valid spec."""
    integrity: Integrity = Integrity()
    status: Status = Status()
    retries: Retries = Retries()
    attempt: Attempt = Attempt()
    """The newest attempt."""
    membership: Membership = Unknown()
    scaling: Scaling = Scaling()
    pods: Pods = Pods()
    objects: Objects = Objects()
    efforts: Efforts = Efforts()
    training: Training = Training()

    @property
    def deleting(self) -> bool:
        return self.resource.deletion is not None

    @property
    def over(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def suspended(self) -> bool:
        """True from the decision to suspend the job until it is resumed, whether or not its pods are gone."""
        return self.status.phase in ("Suspending", "Suspended")

    @property
    def elasticity(self) -> Elasticity | None:
        """How the job trains with the workers for which there is room; None for one that does not."""
        return self.spec.elasticity if self.spec is not None else None

    @property
    def starting(self) -> bool:
        """True while the attempt has begun and its launcher, or leader, has not run."""
        return self.status.phase in ("Created", "Restarting") and not self.between_attempts

    @property
    def under_way(self) -> bool:
        """True once the launcher was seen, or a job without one ran: a refused effect then no longer ends the job."""
        if self.spec is None or self.spec.has_launcher:
            return self.seen_launcher is not None
        return self.status.phase in ("Running", "Scaling")

    @property
    def between_attempts(self) -> bool:
        """True while the job has no attempt: the last one is over or suspended, and the next has not begun."""
        return self.retries.restarting is not None or self.retries.paused or self.suspended

    @property
    def kept_runtime(self) -> RuntimeUsed | None:
        """The runtime of a job that has slots, a pod or a copy of it: no later change of it changes the job.

        From the first slots on, the scheduler may make the copy and pods before the watcher shows them.  If it found
        neither the copy nor that runtime, nothing was made, and the job follows its runtime.
        """
        runtime = self.spec.runtime if self.spec is not None else None
        if runtime is None:
            return None
        copy = self.objects.children.get(("ConfigMap", runtime_copy_name(self.key.name, runtime.digest)))
        if self.pods.views or (copy is not None and copy.ours):
            return runtime
        missed = any(
            refusal.reason == RUNTIME_CHANGED and refusal.at.sequence > self.resource.edited
            for refusal in self.efforts.refusals.values()
        )
        return runtime if self.attempt.begun and not missed else None

    def follows(self, runtime: RuntimeUsed | None) -> bool:
        """False if the job keeps a runtime with another spec."""
        kept = self.kept_runtime
        return kept is None or (runtime is not None and runtime.digest == kept.digest)

    @property
    def halted(self) -> bool:
        """True if no service may act: the history is in doubt, or the job is another operator's."""
        return self.integrity.doubt is not None or self.resource.another

    @property
    def has_service_per_pod(self) -> bool:
        """True if every pod has a Service of its own: its kind says so, or adopted pods find each other by them."""
        apart = self.spec is not None and self.spec.handling.services == "Pods"
        return apart or not self.attempt.inherited.isdisjoint(self.pods.views)

    @property
    def launcher(self) -> PodView | None:
        """The launcher pod of this attempt."""
        for pod in self.pods.views.values():
            if pod.role == LAUNCHER and pod.attempt == self.attempt.number:
                return pod
        return None

    @property
    def seen_launcher(self) -> PodView | None:
        """The launcher pod of this attempt, or its last known state."""
        return self.attempt.launcher_gone or self.launcher

    @property
    def launcher_alone(self) -> bool:
        """True for a job with a launcher and without workers."""
        return self.spec is not None and self.spec.has_launcher and not (self.scaling.size or self.spec.worker.replicas)

    @property
    def hosts(self) -> ChildView | None:
        """The hosts ConfigMap as last seen."""
        return self.objects.children.get(("ConfigMap", config_name(self.key.name)))

    @property
    def listed_workers(self) -> SortedSet[int]:
        """Worker indices in the newest hosts files; none while the membership is unknown."""
        return self.membership.indices if isinstance(self.membership, Members) else SortedSet()

    @property
    def leaving(self) -> SortedSet[int]:
        """Workers that a scale-in took out of the hosts files and has not released yet."""
        return self.membership.leaving if isinstance(self.membership, Members) else SortedSet()

    @property
    def departures(self) -> Mapping[Slot, Departure]:
        """Workers that left the hosts files for any reason; may have entries of released slots."""
        return self.membership.departures if isinstance(self.membership, Members) else {}

    @property
    def hosts_edited(self) -> int:
        """The sequence at which another client was seen to have changed the newest hosts files; 0 if none did."""
        return self.membership.edited if isinstance(self.membership, Members) else 0

    @property
    def about_to_leave(self) -> SortedSet[Slot]:
        """The workers that the open request removes, while the hosts files still list them."""
        request = self.scaling.open_request
        if request is None or request.published:
            return SortedSet()
        return SortedSet(self.attempt.worker_slot(member.index) for member in request.leaving)

    @property
    def outgoing(self) -> SortedSet[Slot]:
        """The workers that the open request removes, and those that a scale-in has not released yet."""
        return self.about_to_leave | SortedSet(self.attempt.worker_slot(index) for index in self.leaving)

    def may_try(self, effect: str) -> bool:
        """True if the effect was not refused, or its back-off is over."""
        refusal = self.efforts.refusals.get(effect)
        return refusal is None or refusal.due

    @property
    def held_names(self) -> Refusal | None:
        """The refusal of pods whose names are held by others that are still being deleted."""
        return self.efforts.refusals.get(refusal_key("CreatePod", NAME_HELD))

    def by_slot(self) -> dict[Slot, PodView]:
        """The pod in each slot; of two pods in one slot the one that is not being deleted."""
        found: dict[Slot, PodView] = {}
        for pod in self.pods.views.values():
            slot = pod.slot
            if found.setdefault(slot, pod).deleting:
                found[slot] = pod
        return found

    def worker_pods(self) -> dict[int, PodView]:
        """The pods of this attempt's workers by index; of two with one index the one that is not being deleted."""
        found: dict[int, PodView] = {}
        number = self.attempt.number
        for pod in self.pods.views.values():
            if pod.role == WORKER and pod.attempt == number and found.setdefault(pod.index, pod).deleting:
                found[pod.index] = pod
        return found

    def pod_name(self, slot: Slot) -> WorkerName:
        stem = next((role.stem for role in self.spec.roles if role.name == slot.role), "") if self.spec else ""
        return WorkerName(f"{stem}{slot.index}") if stem else pod_name(self.key.name, slot)

    def worker_names(self, indices: Iterable[int]) -> list[WorkerName]:
        """The names of these workers' pods."""
        stem = self.pod_name(self.attempt.worker_slot(0)).removesuffix("0")
        return [WorkerName(f"{stem}{index}") for index in indices]


def _changing(part: str) -> Callable[..., Job]:
    """A function that gives the job with changed fields of this part of it, by their names."""

    def changed(job: Job, **changes: object) -> Job:
        return replace(job, **{part: replace(getattr(job, part), **changes)})

    return changed


with_resource, with_status, with_retries, with_attempt = map(_changing, ("resource", "status", "retries", "attempt"))
with_scaling, with_pods, with_objects, with_efforts = map(_changing, ("scaling", "pods", "objects", "efforts"))


def with_success(job: Job, *effects: str) -> Job:
    """The job once these effects have succeeded: none of them is refused any more."""
    return with_efforts(job, refusals=no_longer_refused(job.efforts.refusals, effects))


def exit_of(job: Job, pod: PodView) -> Exit | None:
    """The exit of a pod's training container; None while it runs, or if its end was not seen."""
    if not pod.exits:
        return None
    # Loops, as the fold asks of thousands of pods at a time.
    for role in job.spec.roles if job.spec is not None else ():
        if role.name == pod.role:
            for end in pod.exits:
                if end.container == role.container:
                    return end
    return None


def running_workers(job: Job) -> int:
    """The number of Running workers, Ready or not, that are not being deleted."""
    slots, pods = job.attempt.slots, job.worker_pods().values()
    return sum(pod.phase == "Running" and not pod.deleting and pod.slot in slots for pod in pods)


def running_pods(job: Job, role: str) -> int:
    """The number of Running pods of a role, Ready or not, that are not being deleted."""
    pods = (pod for pod in job.pods.views.values() if pod.role == role)
    return sum(pod.phase == "Running" and not pod.deleting and pod.slot in job.attempt.slots for pod in pods)


def least_workers(job: Job) -> int:
    """The number of workers that no scaling goes below.

    Where a job names none it is the number of its beginning or its newest edit; a size that Muster writes back after a
    request does not move it.
    """
    return job.scaling.least or (job.spec.worker.min_replicas if job.spec is not None else 0)


def needed_workers(job: Job) -> int:
    """The number of workers that have to run: minReplicas, or the present size if that is smaller.

    An absent minReplicas means replicas, so an edit of replicas raises it before the job has grown.
    """
    minimum = least_workers(job)
    return min(minimum, job.scaling.size or minimum)


def hosts_seen(job: Job, version: int) -> bool:
    """True if the cluster has hosts files of at least this version, and the launcher was nudged to load them.

    A job without hosts files needs neither.
    """
    if job.spec is not None and not job.spec.handling.hosts_files:
        return True
    hosts, launcher = job.hosts, job.launcher
    if hosts is None or not hosts.ours or hosts.hosts < version:
        return False
    return not alive(launcher) or (launcher is not None and launcher.hosts >= version)


def without(mapping: Mapping[K, V], key: K) -> dict[K, V]:
    return {kept: value for kept, value in mapping.items() if kept != key}


class Memo(Generic[T]):
    """A function of a job, with its answers about the states that were asked about last.

    Watches, timers and the ends of calls ask again about a state.  A job never changes: one that did is another.
    """

    def __init__(self, ask: Callable[[Job], T], most: int = 1_000) -> None:
        """Keep the answers about `most` jobs, one of each."""
        self._ask = ask
        self._most = most
        self._answers: dict[JobKey, tuple[Job, T]] = {}

    def __call__(self, job: Job) -> T:
        known = self._answers.pop(job.key, None)
        if known is None or known[0] is not job:
            known = job, self._ask(job)
        self._answers[job.key] = known
        if len(self._answers) > self._most:
            del self._answers[next(iter(self._answers))]
        return known[1]

    def forget(self, key: JobKey) -> None:
        self._answers.pop(key, None)


class LastAnswer(Generic[T]):
    """A function of a job, with its answer about the state that was asked about last.  Threads may share it."""

    def __init__(self, ask: Callable[[Job], T]) -> None:
        self._ask = ask
        self._known: tuple[Job, T] | None = None

    def __call__(self, job: Job) -> T:
        known = self._known
        if known is None or known[0] is not job:
            self._known = known = job, self._ask(job)
        return known[1]
