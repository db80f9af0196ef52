"""What happens in one run, as data: what users do, what breaks, and how the network is.  Made from a seed."""

from itertools import product
from random import Random
from typing import Any, Literal, get_args

import msgspec

from shared.frameworks.queueing import QUEUE
from shared.job.events.event import Author
from shared.job.naming import MIN_WORKERS, ON_STALL, RESTART_IN_PLACE, STALL_TIMEOUT
from tests.kit.services import AUTHORS
from tests.kit.world import NAMESPACE
from tests.simulation.network import Rates
from tests.simulation.platform import NODE_NAMES, REFUSED, Workload

REPLICAS = tuple(f"{author}-{number}" for author in AUTHORS for number in range(2))

Server = Literal["cluster", "log"]
InTheWay = Literal["Pod", "Service", "ConfigMap"]
Turn = Literal["lost", "silent", "drained", "announced", "deleted", "opened"]
"""What becomes of a node."""
Shape = Literal["", "beside", "before", "again"]
"""One container; another that runs on beside it; an init container, which may fail; one that the kubelet restarts."""
Garbling = Literal["unknown", "optional", "malformed", "foreign"]
"""Why an event cannot be read."""


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Something that happens `at` so many seconds."""

    at: float
    namespace: str = NAMESPACE


class Apply(Step, frozen=True):
    """A user applies a job."""

    job: str
    kind: str
    workers: int
    more: dict[str, Any] = {}
    """Further fields of the spec."""
    policy: str = ""
    """The restartPolicy of every role; the kind's default without one."""
    queue: str = ""
    """The queue of Kueue that it waits in."""
    image: str = "training"
    """`REFUSED` is one that the API server takes in no pod; without an image the job is invalid."""
    shape: Shape = ""
    """What its pods have besides one container."""
    annotations: dict[str, str] = {}
    least: int = 0
    """The minReplicas of a TrainingJob; 0 for 1."""


class Inherit(Step, frozen=True):
    """There is a job of another operator with its pods, as recorded in `tests/takeover/recordings`."""

    job: str
    recording: str


class Scale(Step, frozen=True):
    """A user creates a scale request; `more` has further fields of its spec, or others instead."""

    name: str
    job: str
    by: int
    """Workers more, or fewer."""
    more: dict[str, Any] = {}


class Edit(Step, frozen=True):
    """A user patches the job, or its status (`subresource`)."""

    job: str
    patch: dict[str, Any]
    subresource: Literal["", "status"] = ""


class EditRuntime(Step, frozen=True):
    """An administrator gives the runtime of a TrainJob another `revision`, or deletes it (None)."""

    job: str
    revision: int | None


class Delete(Step, frozen=True):
    """A user deletes a job, a request (`request`), or one of the pods of a job (`pod`)."""

    job: str
    request: str = ""
    pod: str = ""
    orphan: bool = False


class Strip(Step, frozen=True):
    """A person takes the labels of a pod away, and with `owner` its owner too."""

    pod: str
    owner: bool


class Foreign(Step, frozen=True):
    """A user creates a pod, a Service or a ConfigMap under a name that a job needs."""

    kind: InTheWay
    name: str


class Terminate(Step, frozen=True):
    """The namespace is deleted, with all that it has; it may be used again once the weather clears."""


class End(Step, frozen=True):
    """The container of a pod ends, or the kubelet evicts the pod and no container tells its end (no `code`)."""

    pod: str
    code: int | None


class Node(Step, frozen=True):
    """A node dies, falls silent, is drained, is announced to go, is deleted, or takes pods again."""

    node: str
    how: Turn


class Preempt(Step, frozen=True):
    """The kube-scheduler gives the places of so many workers of a job to pods of higher priority."""

    job: str
    count: int = 1


class Hang(Step, frozen=True):
    """The programs of a job that run now make no more steps."""

    job: str


class Lie(Step, frozen=True):
    """The first worker of a job reports a step that it did not make, or of `another` job."""

    job: str
    step: int = 0
    """By how many steps it is wrong."""
    another: str = ""


class Kill(Step, frozen=True):
    """A replica is killed `after` so many of its callbacks, and started again."""

    replica: str
    after: int
    down: float


class Pause(Step, frozen=True):
    """A replica stands still."""

    replica: str
    seconds: float


class Cut(Step, frozen=True):
    """The link from a replica to a server is cut."""

    replica: str
    server: Server
    seconds: float


class Outage(Step, frozen=True):
    """The API server or the log answers no replica."""

    server: Server
    seconds: float


class Watches(Step, frozen=True):
    """Every watch breaks; after a compaction it has to list again."""

    compacted: bool
    behind: int = 0
    """So many changes ago the cluster was as the next lists show it, two of each kind at most."""


class Ungroup(Step, frozen=True):
    """A person deletes the PodGroups of a job."""

    job: str


class Requeue(Step, frozen=True):
    """Kueue takes the quota of a job for another one, or a person deletes its Workloads."""

    job: str
    deleted: bool = False


class Quota(Step, frozen=True):
    """The namespace may have no more pods than `most` for some time."""

    most: int
    seconds: float


class Skew(Step, frozen=True):
    """The wall clock of a replica jumps by so many seconds."""

    replica: str
    by: float


class Restore(Step, frozen=True):
    """The services are stopped, the log is restored from a backup without its `lost` newest events, they go on."""

    lost: int


class Return(Step, frozen=True):
    """A job that went is there again, with its uid, as from a backup of the cluster; only one that is sealed."""

    job: str


class Archive(Step, frozen=True):
    """The archive stores other bytes than it is given, once; or it comes back from a backup without its newest."""

    lost: int = 0
    """Messages; 0 for other bytes."""


class Nonsense(Step, frozen=True):
    """The log gets an event about a job that this release cannot read; one that is optional may be passed over."""

    job: str
    how: Garbling


AnyStep = (
    Apply
    | Inherit
    | Scale
    | Edit
    | EditRuntime
    | Delete
    | Strip
    | Foreign
    | Terminate
    | End
    | Node
    | Kill
    | Pause
    | Cut
    | Outage
    | Watches
    | Requeue
    | Ungroup
    | Preempt
    | Hang
    | Lie
    | Quota
    | Skew
    | Restore
    | Nonsense
    | Return
    | Archive
)


class Strike(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What breaks at the moment when the log stores its `event`-th event."""

    event: int
    how: Literal["crash", "lose", "delete", "pause"]
    """Crash the acting replica of `author`, lose the next answers to it, pause it for its standby; or delete `job`."""
    author: Author = "watcher"
    job: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run."""

    seed: int
    """Of what the plan leaves open: latencies, ends of containers, nodes of pods."""
    steps: tuple[AnyStep, ...]
    strikes: tuple[Strike, ...] = ()
    to_cluster: Rates = Rates()
    to_log: Rates = Rates()
    workload: Workload = Workload()
    room: int = 0
    """The number of pods that Kueue's queue has room for; 0 without Kueue."""
    places: int = 0
    """The number of pods that find a node until the weather clears; 0 for any number."""
    reports: float = 0.0
    """Seconds between two steps of a training, which reports them; 0 without reports."""
    gangs: bool = False
    """True if pods find places together, and a person deletes some PodGroups."""
    seal_after: int | None = None
    """Seconds after which the history of a job that is gone is sealed; None for never."""
    archive: float | None = None
    """Seconds for which the log keeps a seal whose history was archived; None without an archive."""

    @property
    def seconds(self) -> float:
        """When the weather clears."""
        return max((step.at + getattr(step, "seconds", getattr(step, "down", 0.0)) for step in self.steps), default=0.0)


KINDS = ("TrainingJob", "TrainingJob", "TrainingJob", "TrainingJob", "TFJob", "PyTorchJob", "MPIJob", "MXJob")
SMALL_KINDS = ("MXJob", "JAXJob", "PaddleJob", "XGBoostJob", "TrainJob")
"""Each seed has one of them wherever MXJob is drawn: a draw of its own would change every other plan."""
WORKERS = {
    "TrainingJob": ("etReplicaSpecs", "worker"),
    "TFJob": ("tfReplicaSpecs", "Worker"),
    "PyTorchJob": ("pytorchReplicaSpecs", "Worker"),
    "MPIJob": ("mpiReplicaSpecs", "Worker"),
    "MXJob": ("mxReplicaSpecs", "Worker"),
    "JAXJob": ("jaxReplicaSpecs", "Worker"),
    "PaddleJob": ("paddleReplicaSpecs", "Worker"),
    "XGBoostJob": ("xgbReplicaSpecs", "Worker"),
}
"""By kind, the field of the replica specs, and the name of the role of the workers in it."""

PODS = ("worker-0", "worker-1", "launcher", "master-0", "chief-0")
FOREIGN: tuple[tuple[InTheWay, str], ...] = (
    ("Pod", "-worker-0"),
    ("Pod", "-worker-1"),
    ("Pod", "-launcher"),
    ("Service", ""),
    ("Service", "-worker-0"),
    ("ConfigMap", "-config"),
)
"""What may be in the way: the kind, and what follows the job's name."""
FORGED: tuple[dict[str, Any], ...] = (
    {"completionTime": "2029-01-01T00:00:00Z"},
    {"history": None},
    {"history": {"log": "log", "sequence": 2, "hash": "0" * 64}},
    {"history": {"log": "log", "sequence": 1_000_000, "hash": "0" * 64}},
    {"history": {"log": "another", "sequence": 3, "hash": "0" * 64}},
    {"phase": "Succeeded", "history": {"log": "another", "sequence": 3, "hash": "0" * 64}},
)
"""What a user writes into a status."""
OLD = "old"
"""The name of a job of another operator."""
POLICIES = ("", "", "Never", "OnFailure", "Always", "ExitCode")
RECORDINGS = {
    "et-operator-running": "TrainingJob",
    "tfjob-running": "TFJob",
    "pytorchjob-elastic": "PyTorchJob",
    "mpijob-running": "MPIJob",
}
"""By recording of another operator's job, its kind."""
BUSY_SECONDS = 12.0
"""How long users and faults go on."""


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    chance = Random(seed)
    steps: list[AnyStep] = []
    jobs = [f"job-{number}" for number in range(chance.randint(2, 5))]
    # In every third run two tenants have jobs of the same names.
    tenants = (NAMESPACE, "team-b") if chance.random() < 0.3 else (NAMESPACE,)
    for job, tenant in product(jobs, tenants):
        begin = chance.uniform(0.1, BUSY_SECONDS / 2)
        kind = chance.choice(KINDS)
        kind = SMALL_KINDS[seed % len(SMALL_KINDS)] if kind in SMALL_KINDS else kind
        steps += [msgspec.structs.replace(step, namespace=tenant) for step in _life(chance, job, kind, begin)]
    if len(tenants) > 1 and chance.random() < 0.2:
        steps.append(Terminate(at=chance.uniform(1, BUSY_SECONDS), namespace=tenants[1]))
    if chance.random() < 0.15:
        recording = chance.choice([*RECORDINGS])
        begin = chance.uniform(0, BUSY_SECONDS / 2)
        steps.append(Inherit(at=begin, job=OLD, recording=recording))
        for number in range(chance.randint(0, 4)):
            at = begin + chance.uniform(0, BUSY_SECONDS / 2)
            steps.append(_operation(chance, OLD, RECORDINGS[recording], f"{OLD}-{number}", at))
    if chance.random() < 0.08:
        steps.append(Restore(at=chance.uniform(1, BUSY_SECONDS), lost=chance.choice((1, 3, 10, 40))))
    if chance.random() < 0.1:
        steps.append(
            Nonsense(at=chance.uniform(1, BUSY_SECONDS), job=chance.choice(jobs), how=chance.choice(get_args(Garbling)))
        )
    for _ in range(chance.randint(2, 10)):
        steps.append(_fault(chance, chance.uniform(0.3, BUSY_SECONDS)))
    # Every second run has a network without faults: what fails there is easier to understand.
    stormy = chance.random() < 0.5
    plan = Plan(
        seed=seed,
        steps=tuple(sorted(steps, key=lambda step: step.at)),
        to_cluster=_rates(chance) if stormy else Rates(),
        to_log=_rates(chance) if stormy else Rates(),
        workload=Workload(longest_seconds=chance.uniform(1, 12), hang=chance.choice((0, 20, 50))),
    )
    if seed % 5 == 4:
        plan = _shaped(plan)
    if seed % 7 in (1, 5):
        plan = _reporting(plan)
    if seed % 4 == 1:
        plan = _together(plan)
    if seed % 4 == 2:
        plan = _crowded(plan)
    plan = _queued(plan) if seed % 4 == 3 else plan
    return _sealed(plan) if seed % 3 else plan


def _sealed(plan: Plan) -> Plan:
    """The plan with seals; some jobs come back after theirs; drawn apart."""
    chance = Random(f"{plan.seed} seals")
    seal_after, steps = chance.choice((0, 1, 5, 20)), [*plan.steps]
    if not any(isinstance(step, Restore) for step in plan.steps):
        for step in plan.steps:
            if isinstance(step, Delete) and not (step.pod or step.request or step.orphan) and chance.random() < 0.3:
                at = step.at + seal_after + chance.uniform(0, BUSY_SECONDS)
                steps.append(Return(at=at, namespace=step.namespace, job=step.job))
    sealed = msgspec.structs.replace(plan, steps=tuple(sorted(steps, key=lambda step: step.at)), seal_after=seal_after)
    return _archived(sealed) if plan.seed % 3 == 1 else sealed


def _archived(plan: Plan) -> Plan:
    """The plan with an archive; its archivers have troubles of their own, and it may lose what it has; drawn apart."""
    chance = Random(f"{plan.seed} archive")
    steps: list[AnyStep] = [*plan.steps]
    for _ in range(chance.randint(0, 4)):
        at, replica = chance.uniform(1, BUSY_SECONDS), f"archiver-{chance.randint(0, 1)}"
        trouble: tuple[AnyStep, ...] = (
            Kill(at=at, replica=replica, after=chance.randint(0, 200), down=chance.uniform(0, 3)),
            Pause(at=at, replica=replica, seconds=chance.uniform(1, 8)),
            Cut(at=at, replica=replica, server="log", seconds=chance.uniform(1, 8)),
            Archive(at=at),
            Archive(at=at, lost=chance.choice((1, 3, 100))),
        )
        steps.append(chance.choices(trouble, (5, 5, 3, 3, 1))[0])
    steps.sort(key=lambda step: step.at)
    return msgspec.structs.replace(plan, steps=tuple(steps), archive=chance.choice((20.0, 40.0)))


def _reporting(plan: Plan) -> Plan:
    """The plan with trainings that report, some of which hang or lie; drawn apart."""
    chance = Random(f"{plan.seed} reports")
    jobs, steps = [step for step in plan.steps if isinstance(step, Apply)], list[AnyStep]()
    for step in plan.steps:
        if not isinstance(step, Apply):
            # What a restored log has lost, programs said all the same.
            steps += [] if isinstance(step, Restore) else [step]
            continue
        limit = {STALL_TIMEOUT: str(chance.randint(5, 12)), ON_STALL: chance.choice(("tell", "restart"))}
        steps.append(msgspec.structs.replace(step, annotations=step.annotations | limit))
        at, of = step.at + chance.uniform(1, BUSY_SECONDS), {"namespace": step.namespace, "job": step.job}
        if chance.random() < 0.4:
            steps.append(Hang(at=at, **of))
        for _ in range(chance.choice((0, 0, 1, 3))):
            other = chance.choice(jobs).job if chance.random() < 0.3 else ""
            wrong = chance.choice((-100, -3, -1, 0, 10**15))
            steps.append(Lie(at=at + chance.uniform(0, 3), step=wrong, another=other, **of))
    steps.sort(key=lambda step: step.at)
    return msgspec.structs.replace(plan, steps=tuple(steps), reports=chance.choice((0.3, 1.0, 2.0)))


def _together(plan: Plan) -> Plan:
    """The plan with gangs and restarts in place, in which a person deletes PodGroups; drawn apart."""
    chance = Random(f"{plan.seed} gangs")
    whole = [step for step in plan.steps if isinstance(step, Apply)]
    lost = [
        Ungroup(at=step.at + chance.uniform(0, BUSY_SECONDS / 2), namespace=step.namespace, job=step.job)
        for step in whole
        if chance.random() < 0.5
    ]
    again = {RESTART_IN_PLACE: "true"}
    steps = [
        msgspec.structs.replace(step, annotations={**step.annotations, **again}) if isinstance(step, Apply) else step
        for step in plan.steps
    ]
    return msgspec.structs.replace(plan, steps=tuple(sorted((*steps, *lost), key=lambda step: step.at)), gangs=True)


def _crowded(plan: Plan) -> Plan:
    """The plan on few nodes, with TrainingJobs that go by capacity and lose places to others; drawn apart."""
    chance, other = Random(f"{plan.seed} places"), Random(f"{plan.seed} gangs for places")
    steps: list[AnyStep] = []
    for step in plan.steps:
        if isinstance(step, Scale) and step.by > 0 and "toAdd" not in step.more and other.random() < 0.5:
            partial = {"count": step.by, "partial": True}
            step = msgspec.structs.replace(step, more={**step.more, "toAdd": partial})  # noqa: PLW2901
        if isinstance(step, Apply) and step.kind == "MPIJob" and other.random() < 0.5:
            by_capacity = {**step.annotations, MIN_WORKERS: "1"}
            step = msgspec.structs.replace(step, annotations=by_capacity)  # noqa: PLW2901
            steps.append(Preempt(at=step.at + 4.0, namespace=step.namespace, job=step.job, count=1))
        if not isinstance(step, Apply) or step.kind != "TrainingJob" or chance.random() < 0.2:
            steps.append(step)
            continue
        least = chance.randint(1, 2)
        elasticity = {
            "size": "Capacity",
            "settleSeconds": chance.randint(0, 3),
            "growSeconds": chance.randint(0, 4),
            "maxPending": chance.choice((None, None, 1, 2)),
        }
        more, workers = {**step.more, "elasticity": elasticity}, least + chance.randint(0, 3)
        steps.append(msgspec.structs.replace(step, more=more, workers=workers, least=least))
        for _ in range(chance.randint(0, 2)):
            at = step.at + chance.uniform(1, BUSY_SECONDS)
            steps.append(Preempt(at=at, namespace=step.namespace, job=step.job, count=chance.randint(1, 2)))
    crowded = msgspec.structs.replace(plan, steps=tuple(sorted(steps, key=lambda step: step.at)))
    places = chance.choice((3, 5, 8))
    crowded = msgspec.structs.replace(crowded, places=places)
    return _together(crowded) if other.random() < 0.5 else crowded


def _shaped(plan: Plan) -> Plan:
    """The plan with pods of several containers, some of which are rejected by their kubelet; drawn apart."""
    chance = Random(f"{plan.seed} shapes")
    shapes = {step.job: chance.choice(get_args(Shape)) for step in plan.steps if isinstance(step, Apply)}
    steps = tuple(
        msgspec.structs.replace(step, shape=shapes[step.job])
        if isinstance(step, Apply) and step.kind != "TrainJob"
        else step
        for step in plan.steps
    )
    return msgspec.structs.replace(plan, steps=steps, workload=msgspec.structs.replace(plan.workload, rejected=5))


def _queued(plan: Plan) -> Plan:
    """The plan with its TrainingJobs in a queue; drawn apart, as a draw more would change every other plan."""
    chance, capacity = Random(f"{plan.seed} queue"), Random(f"{plan.seed} quota for the minimum")
    steps: list[AnyStep] = []
    for step in plan.steps:
        if not isinstance(step, Apply) or step.kind != "TrainingJob":
            steps.append(step)
            continue
        queued = msgspec.structs.replace(step, queue="team-a")
        if capacity.random() < 0.4:
            elasticity = {"size": "Capacity", "settleSeconds": 1, "growSeconds": 1}
            queued = msgspec.structs.replace(queued, more={**step.more, "elasticity": elasticity}, least=1)
        steps.append(queued)
        for _ in range(chance.choice((0, 1, 1, 2))):
            at = step.at + chance.uniform(0.1, BUSY_SECONDS / 2)
            deleted = chance.random() < 0.3
            steps.append(Requeue(at=at, namespace=step.namespace, job=step.job, deleted=deleted))
        if chance.random() < 0.1:
            patch = {"metadata": {"labels": {QUEUE: chance.choice((None, "team-b"))}}}
            at = step.at + chance.uniform(0.1, BUSY_SECONDS / 2)
            steps.append(Edit(at=at, namespace=step.namespace, job=step.job, patch=patch))
    return msgspec.structs.replace(
        plan, steps=tuple(sorted(steps, key=lambda step: step.at)), room=chance.choice((4, 8, 16))
    )


def _life(chance: Random, job: str, kind: str, begin: float) -> list[AnyStep]:
    workers = chance.randint(1, 3)
    more: dict[str, Any] = {}
    if chance.random() < 0.3:
        more["backoffLimit"] = chance.randint(0, 3)
    if kind == "TrainingJob" and chance.random() < 0.5:
        more["restartPolicy"] = chance.choice(("Never", "OnFailure", "Sometimes"))
    if kind == "TrainingJob" and chance.random() < 0.2:
        more["schedulingTimeoutSeconds"] = chance.randint(1, 15)
    if kind == "TrainingJob" and chance.random() < 0.3:
        more["cleanPodPolicy"] = chance.choice(("None", "Running", "All"))
    if chance.random() < 0.1:
        more["activeDeadlineSeconds"] = chance.randint(2, 20)
    if chance.random() < 0.15:
        more["ttlSecondsAfterFinished"] = chance.randint(1, 5)
    image = chance.choices(("training", REFUSED, ""), (96, 2, 2))[0]
    first = Apply(at=begin, job=job, kind=kind, workers=workers, more=more, policy=chance.choice(POLICIES), image=image)
    steps: list[AnyStep] = [first]
    for number in range(chance.randint(0, 8)):
        at = begin + chance.uniform(0.05, BUSY_SECONDS / 2)
        steps.append(_operation(chance, job, kind, f"{job}-{number}", at))
    if chance.random() < 0.35:
        # The same name again, after a deletion.
        at = begin + chance.uniform(1, BUSY_SECONDS / 2)
        steps += [Delete(at=at, job=job), msgspec.structs.replace(first, at=at + chance.choice((0.001, 0.3, 2.0)))]
    return steps


def _operation(chance: Random, job: str, kind: str, name: str, at: float) -> AnyStep:
    pick = chance.random()
    if kind == "TrainJob" and pick < 0.25:
        return EditRuntime(at=at, job=job, revision=chance.choice((1, 2, 3, None)))
    if kind == "TrainingJob" and pick < 0.06:
        return Delete(at=at, job=job, request=f"{job}-{chance.randint(0, 2)}")
    if kind == "TrainingJob" and pick < 0.5:
        more: dict[str, Any] = {}
        if chance.random() < 0.5:
            more = {"script": name, "timeout": chance.randint(2, 10)}
        by = chance.choice((-2, -1, 1, 1, 2, 3, 40))
        if by == -1 and chance.random() < 0.6:
            more["toDelete"] = {"podNames": [f"{job}-worker-{chance.choice((0, 0, 1, 1, 2, 77))}"]}
        elif chance.random() < 0.1:
            more["toAdd" if by > 0 else "toDelete"] = {"count": 0}
        if "timeout" not in more and chance.random() < 0.2:
            more["timeout"] = chance.randint(1, 4)
        return Scale(at=at, name=name, job=job, by=by, more=more)
    if pick < 0.56:
        return Delete(at=at, job=job, pod=_named(kind, chance.choice(PODS)))
    if pick < 0.58:
        return Strip(at=at, pod=f"{job}-{_named(kind, chance.choice(PODS))}", owner=chance.random() < 0.5)
    if pick < 0.61:
        what, name = chance.choice(FOREIGN)
        return Foreign(at=at, kind=what, name=job + _named(kind, name))
    if pick < 0.66:
        return Edit(at=at, job=job, patch={"spec": _edited(chance, kind)})
    if pick < 0.67:
        return Edit(at=at, job=job, patch={"metadata": {"finalizers": ["example.com/wait"]}})
    if pick < 0.68:
        return Edit(at=at, job=job, patch={"status": chance.choice(FORGED)}, subresource="status")
    if pick < 0.77:
        return Edit(at=at, job=job, patch={"spec": suspended(kind, suspend=chance.random() < 0.6)})
    if pick < 0.82:
        return Edit(at=at, job=job, patch={"metadata": {"annotations": {"muster.dev/restart": name}}})
    if pick < 0.95:
        return End(
            at=at,
            pod=f"{job}-{_named(kind, chance.choice(('worker-0', 'worker-1', 'launcher')))}",
            code=chance.choice((1, 1, 137, 137, None)),
        )
    return Delete(at=at, job=job, orphan=chance.random() < 0.2)


def _named(kind: str, name: str) -> str:
    """What follows a job's name in that of a pod; a TrainJob calls its workers nodes."""
    return name.replace("worker-", "node-0-") if kind == "TrainJob" else name


def _edited(chance: Random, kind: str) -> dict[str, Any]:
    """Another number of workers, or other bounds, or none at all."""
    pick = chance.random()
    if kind == "TrainJob":
        return {"trainer": {"numNodes": chance.randint(0, 5)} if pick >= 0.1 else None}
    field, worker = WORKERS[kind]
    if pick < 0.1:
        return {field: {worker: None}}
    bounds = {"minReplicas": chance.randint(0, 3), "maxReplicas": chance.randint(2, 7)}
    sized = {"replicas": chance.randint(0, 5)}
    return {field: {worker: sized if pick < 0.7 or kind != "TrainingJob" else bounds}}


def suspended(kind: str, *, suspend: bool) -> dict[str, Any]:
    """The part of a kind's spec that suspends a job or lets it go on."""
    return {"suspend": suspend} if kind in ("TrainingJob", "TrainJob") else {"runPolicy": {"suspend": suspend}}


def _fault(chance: Random, at: float) -> AnyStep:
    replica, seconds = chance.choice(REPLICAS), chance.choice((0.05, 0.5, 2.5, 6.0))
    server: Server = chance.choice(("cluster", "log"))
    match chance.randrange(12):
        case 0 | 1 | 2 | 3:
            return Kill(at=at, replica=replica, after=chance.randint(0, 300), down=chance.choice((0.01, 0.5, 3.0)))
        case 4 | 5:
            return Pause(at=at, replica=replica, seconds=seconds)
        case 6:
            return Cut(at=at, replica=replica, server=server, seconds=seconds)
        case 7:
            return Outage(at=at, server=server, seconds=min(seconds, 2.5))
        case 8:
            return Watches(at=at, compacted=chance.random() < 0.7, behind=chance.choice((0, 1, 5, 30)))
        case 9:
            return Quota(at=at, most=chance.randint(0, 5), seconds=seconds)
        case 10:
            return Node(at=at, node=chance.choice(NODE_NAMES), how=chance.choice(get_args(Turn)))
        case _:
            return Skew(at=at, replica=replica, by=chance.choice((-600.0, 600.0, 1.0)))


def _rates(chance: Random) -> Rates:
    most = chance.choice((5, 20, 60))
    return Rates(
        busy=chance.randint(0, most),
        lost=chance.randint(0, most),
        unanswered=chance.randint(0, most),
        late=chance.randint(0, most),
        slow=chance.randint(0, 10 * most),
        behind=chance.randint(0, 10 * most),
    )
