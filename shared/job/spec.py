"""The spec of a job in a canonical shape for all frameworks: the part of a resource that decisions need.

`shared/frameworks` parses resources into it.  Pod templates stay in the resource.
Events hold it: a new field has a default, and no field is renamed or removed.
"""

from collections.abc import Iterable
from typing import Annotated, Literal, Self

import msgspec

LAUNCHER = "launcher"
WORKER = "worker"
RENDEZVOUS = "rendezvous"
"""The role of a pod of Muster's own, by which the workers of an elastic group find each other; it is no worker."""

RestartPolicy = Literal["Never", "Always", "OnFailure", "ExitCode"]
CleanPodPolicy = Literal["None", "Running", "All"]
ScaleKind = Literal["ScaleIn", "ScaleOut"]
Succeeds = Literal["First", "Any", "All"]

MOST_REPLICAS = 100_000
"""The most pods of a role that a reader of the log believes; the definitions of the built-in kinds allow fewer."""

UNLIMITED = 2**31 - 1
"""A backoffLimit that is never reached."""

SCHEDULING_TIMEOUT_SECONDS = 600
"""The default of schedulingTimeoutSeconds for a running job below its minimum (docs: contract, TrainingJob.spec)."""

OWNED_BY_ANOTHER = "OwnedByAnother"
"""The problem of a request with another controller than a job, which the job cannot own."""

OVER_BUDGET = "OverBudget"
"""The problem of a new job or request beyond its namespace's budget; it goes once its turn comes."""

MANY_STARTING = "ManyStarting"
"""The problem of a new job while others of its namespace are being made; it goes once its turn comes."""

TURNS = frozenset({OVER_BUDGET, MANY_STARTING})
"""The problems of what only waits for its turn."""

RUNTIME_NOT_FOUND = "TrainingRuntimeNotFound"
"""The problem of a job whose runtime is not there; it goes once the runtime comes."""

RUNTIMES_NOT_LISTED = "TrainingRuntimesNotListed"
"""The problem of a job while the watcher cannot list the runtimes."""

PASSING = TURNS | {RUNTIME_NOT_FOUND, RUNTIMES_NOT_LISTED}
"""The problems of a job that begins by itself: at its turn, or when its runtime is there."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why a spec cannot be acted upon."""

    reason: str
    """One CamelCase word, such as `NoContainers`."""
    field: str = ""
    """Its path, such as `spec.etReplicaSpecs.worker.template.spec.containers`."""
    message: str = ""
    """A sentence for the user, without the user's values, because they may be secret."""


def waits_for_turn(problems: Iterable[Problem]) -> bool:
    """True if the job or the request waits for its turn."""
    return any(problem.reason in TURNS for problem in problems)


NO_EFFECT = "has no effect"


class Ignored(msgspec.Struct, frozen=True, kw_only=True):
    """A field that the kind has and Muster does not act upon."""

    field: str
    message: str
    """What to do instead, for the user."""
    effect: str = NO_EFFECT
    """What the field does, if it does something."""

    @classmethod
    def annotation(cls, name: str, message: str) -> Self:
        """An annotation of the job, with what its user may do."""
        return cls(field=f"metadata.annotations[{name}]", message=message)


class RoleSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A role of a job: the number of its pods and their restartPolicy."""

    name: str
    replicas: Annotated[int, msgspec.Meta(ge=0, le=MOST_REPLICAS)]
    min_replicas: int = 1
    max_replicas: int | None = None
    """None means no upper bound."""
    follows: bool = False
    """True if the resource names no minimum: `min_replicas` is then the number of an edit, or of the beginning."""
    written: bool = False
    """True if the resource has a number of workers, which is to be the size that scale requests lead to."""
    restart_policy: RestartPolicy = "Never"
    container: str = ""
    """The training container, whose exit is the pod's."""
    stem: str = ""
    """The names of its pods without the index; empty for et-operator's names."""
    requests: tuple[tuple[str, float], ...] = ()
    """What each of its pods requests, each resource with its amount: processors in cores, memory in bytes."""

    @property
    def least(self) -> int:
        """The smallest number that the resource may have: `min_replicas`, or 1 where that follows the number."""
        return 1 if self.follows else self.min_replicas


def is_device(resource: str) -> bool:
    """True for a resource that a vendor names, such as `nvidia.com/gpu`; processors and memory are no devices."""
    return "/" in resource


class Handling(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a framework that its users cannot change; the defaults are a TrainingJob's."""

    leader: str = msgspec.field(default=LAUNCHER, name="judge")
    """The leading role, `judge` in events: the job is Running when its pod runs, and ends when its pod ends."""
    succeeds: Succeeds = "First"
    """The pods of the leader role that have to succeed: that of index 0, any, or all."""
    restarts: Literal["Job", "Pod"] = "Job"
    """What restarts after a failure of the leader, if its policy allows it: the whole job, or only its pod."""
    strict: bool = False
    """True if every pod is needed: a failed one is replaced, or the job fails.

    Otherwise a job goes on without lost workers while it has minReplicas.
    """
    spares: tuple[str, ...] = ()
    """The roles whose pods are not needed although the job is `strict`."""
    in_place: bool = False
    """True if a replacement gets the index and the name of the lost pod; otherwise it gets a new index."""
    elastic: bool = True
    """True if the number of workers may change while the job runs."""
    hosts_files: bool = True
    """True if the launcher reads the workers from hosts files."""
    whole: bool = False
    """True if the launcher starts only with all workers, even if fewer are enough later."""
    services: Literal["Job", "Pods"] = "Job"
    """One headless Service for the job, or one for every pod under the pod's name."""
    winds_down: bool = False
    """True if the other pods end by themselves soon after the leader's success: the clean-up waits for them a while."""
    out_of_memory_is_final: bool = False
    """True if `restartPolicy: ExitCode` does not retry OOMKilled."""


LAUNCHED = Handling()
"""A launcher drives elastic workers, and the job ends with it."""
LAUNCHED_TOGETHER = Handling(in_place=True, whole=True)
"""The same for programs that know their workers by name: the launcher waits for all of them, and a replacement has the
name of the lost worker."""
REPLICATED = Handling(
    leader=WORKER, restarts="Pod", strict=True, in_place=True, elastic=False, hosts_files=False, services="Pods"
)
"""Pods that find each other by their names: every pod is needed, a lost one is replaced under its name, and the job
ends with worker 0."""


class RuntimeUsed(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime of a job: the resource that has its pod templates, as it was read."""

    kind: str
    name: str
    uid: str
    generation: int
    digest: str
    """The SHA-256 of its spec, by which the job's copy of it is checked."""


SETTLE_SECONDS, GROW_SECONDS = 10, 30


class Elasticity(msgspec.Struct, frozen=True, kw_only=True):
    """A job that trains with the workers for which there is room, from minReplicas to its whole size."""

    settle_seconds: int = SETTLE_SECONDS
    """How long the first minReplicas workers wait for more before the training starts."""
    grow_seconds: int = GROW_SECONDS
    """The shortest time from members that join until more join."""
    most_pending: int | None = None
    """The most pods that wait for a node beyond those that the minimum needs; None means no bound."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The spec of a job.  All times are whole seconds; None means no limit.

    The kind's `parse` fills a new field in, its definition declares it; as `JobObserved` has the spec,
    `tests/job/test_events.py` says how its new shape is kept.
    """

    framework: str
    """The name of the framework, for people."""
    roles: tuple[RoleSpec, ...]
    """The roles, the launcher first; without a launcher all of them start at the same time."""
    handling: Handling = LAUNCHED
    slots_per_worker: int = 1
    attach_mode: str = "ssh"
    """How the launcher reaches the workers; empty if it does not."""
    clean_pod_policy: CleanPodPolicy = "Running"
    restart_policy: RestartPolicy = "Never"
    """The restartPolicy of the whole job."""
    backoff_limit: int = 6
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    scheduling_timeout_seconds: int | None = None
    suspend: bool = False
    queue: str = ""
    """The queue of Kueue that the job waits in; empty for a job that needs no quota."""
    gang: int | None = None
    """How many of its pods have to find places together, 0 for as many as it needs to begin; None if each may alone."""
    restarts_in_place: bool = False
    """True if the kubelet begins failed training containers again in their pods; that counts against backoffLimit."""
    restart: str = ""
    """The value of the restart annotation: a change of it restarts a running job."""
    force_delete_after: int | None = None
    """Seconds after its grace period when a terminating pod of a lost node is deleted by force, by the job's
    annotation; -1 for never; None leaves it to the setting."""
    elasticity: Elasticity | None = None
    """None for a job that starts with all its workers, and grows by all that a request asks for or not at all."""
    stall_timeout_seconds: int | None = None
    """Seconds without a step after which it counts as stalled, by the job's annotation; None for never."""
    stall_restarts: bool = False
    """True if another attempt then begins, by the job's annotation."""
    autoscaled: bool = False
    """True if the resource says by which metrics an autoscaler changes the number of workers."""
    ssh_secret: str = ""
    """The user's own Secret with ssh keys; if empty, Muster makes one."""
    hosts_style: str = ""
    """The format of the hosts files, as a word of the framework."""
    launcher_works: bool = False
    """True if the launcher is one of the hosts, besides the workers."""
    ignored: tuple[Ignored, ...] = ()
    """The fields of this job that have no effect."""
    runtime: RuntimeUsed | None = None
    """The runtime that it was put together with; None for a kind whose resource has all of the job."""

    def role(self, name: str) -> RoleSpec:
        """The role of that name.  Raises `KeyError` if the job has none."""
        for role in self.roles:
            if role.name == name:
                return role
        raise KeyError(name)

    def has(self, name: str) -> bool:
        """True if the job has a role of that name; an edit may have removed it."""
        return any(role.name == name for role in self.roles)

    def policy(self, name: str) -> RestartPolicy:
        """The restartPolicy of a role; Never if an edit removed it."""
        return next((role.restart_policy for role in self.roles if role.name == name), "Never")

    @property
    def has_launcher(self) -> bool:
        """True if the job has a launcher, which starts when the workers are Ready and drives them."""
        return any(role.name == LAUNCHER for role in self.roles)

    @property
    def seconds_below_minimum(self) -> int:
        """How long fewer workers than minReplicas may run, and an edit's new workers may take to come."""
        return self.scheduling_timeout_seconds or SCHEDULING_TIMEOUT_SECONDS

    @property
    def worker(self) -> RoleSpec:
        """The workers' role, whose size may change; a role without pods if the job has no workers."""
        for role in self.roles:
            if role.name == WORKER:
                return role
        return _NO_WORKERS


_NO_WORKERS = RoleSpec(name=WORKER, replicas=0, min_replicas=0)


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a resource that may change while its job keeps the runtime that it began with."""

    suspend: bool = False
    restart: str = ""
    deadline: int | None = None
    """Its activeDeadlineSeconds."""
    workers: int | None = None
    """None if the resource names no number."""
    workers_field: str = ""
    """The path of that number."""


def going_on(spec: JobSpec, wishes: Wishes) -> JobSpec:
    """The spec of a job that goes on with its runtime; a number of workers beyond its bounds is among `ignored`."""
    count, worker = wishes.workers, spec.worker
    least, most = worker.min_replicas, worker.max_replicas
    ignored = tuple(known for known in spec.ignored if known.field != wishes.workers_field)
    if count is not None and most is not None and least <= count <= most:
        worker = msgspec.structs.replace(worker, replicas=count)
    elif count is not None and max(count - spec.launcher_works, 1) != worker.replicas:
        bounds = f"at least {least} and at most {most}" if most is not None else "the number that it began with"
        message = f"the job keeps the runtime that it began with: set {bounds}"
        ignored += (Ignored(field=wishes.workers_field, message=message),)
    return msgspec.structs.replace(
        spec,
        suspend=wishes.suspend,
        restart=wishes.restart,
        active_deadline_seconds=wishes.deadline,
        roles=tuple(worker if role.name == WORKER else role for role in spec.roles),
        ignored=ignored,
    )


class ScaleSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The spec of a scale request."""

    kind: ScaleKind
    job: str
    """The name of the job, in the request's namespace."""
    count: int | None = None
    """The number of workers to add or remove; None if the request names those to remove."""
    workers: str = ""
    """The indices of the workers that it names, as `0-3,5`."""
    stranger: str = ""
    """A name in it that no worker of the job has: the request is rejected for it, and its other names are not kept."""
    timeout_seconds: int = 60
    backoff_limit: int = 6
    partial: bool = False
    """True if a ScaleOut takes those workers for which there is room, and lets the others wait for it."""
    script: bool = False
    """True if the request has a script; its text stays in the resource."""
