"""PyTorchJob (`kubeflow.org/v1`): processes of torch.distributed, which find each other by their environment, and
elastic groups of torchrun's agents.  Pure.
"""

import re
from collections.abc import Mapping

import msgspec

from shared.cluster.objects import Custom
from shared.frameworks.framework import PodContext
from shared.frameworks.kubeflow import KubeflowJob, OfTrainingOperator, is_type, scale_of_workers
from shared.frameworks.model import Field, Written, choice, flag, items, number, text
from shared.frameworks.reading import MOST_PORT, MOST_WORKERS, Fields
from shared.frameworks.rendezvous import (
    C10D,
    UNSHARED,
    brings_its_own,
    names_group,
    rendezvous_name,
    rendezvous_pod,
    rendezvous_role,
)
from shared.frameworks.replicated import ContainerProperties, Replica, ReplicaType
from shared.frameworks.schemas import ANYTHING, Document, rule
from shared.job.spec import RENDEZVOUS, WORKER, Elasticity, Handling, JobSpec, RoleSpec
from shared.untrusted import at, objects

FIELD = "elasticPolicy"
BACKENDS = ("", C10D, "etcd", "etcd-v2")
"""The rendezvous backends of upstream; empty means absent."""

_HOST = re.compile(r"[^\s/:\[\]]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
"""A host name, an address, an IPv6 address in brackets, or a variable; the port has a field of its own."""

_KEY = re.compile(r"[^\s=,]+")


class _Pair(Written):
    """One key of torchrun's configuration."""

    key = text()
    value = text()


class Elastic(Written):
    """Lets workers come and go between two numbers, under torchrun."""

    rules = (
        rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "set minReplicas to at most maxReplicas",
            field=".minReplicas",
        ),
    )
    min_replicas = number("The fewest workers; maxReplicas when absent.", 1, MOST_WORKERS)
    max_replicas = number("The most workers; minReplicas when absent.", 1, MOST_WORKERS)
    rdzv_backend = choice(BACKENDS, "", "UnknownRendezvousBackend", "c10d when absent.")
    rdzv_host = text("A small pod of the job's own when absent.")
    rdzv_port = number("The workers' pytorchjob-port when absent.", 1, MOST_PORT)
    rdzv_id = text()
    rdzv_conf = items(_Pair)
    standalone = flag()
    n_proc_per_node = number("Processes per pod; nprocPerNode is its newer name.", 1)
    max_restarts = number("How often torchrun begins again within a pod.")
    metrics = Field(
        {
            "type": "array",
            "description": "By these a HorizontalPodAutoscaler of the job's own changes the number of workers.",
            "items": ANYTHING,
        },
        Fields.parts,
    )

    def __init__(self, policy: Fields, replicas: int) -> None:
        """The policy of a job with this number of workers; problems are noted in it."""
        super().__init__(policy)
        least, most = self.min_replicas, self.max_replicas
        if least is not None and most is not None and least > most:
            policy.refuse("MinimumAboveMaximum", "set at most maxReplicas, or raise maxReplicas", "minReplicas")
        if self.rdzv_host and not _HOST.fullmatch(self.rdzv_host):
            message = "write a host name or an address alone; the port stands in rdzvPort"
            policy.refuse("InvalidRendezvous", message, "rdzvHost")
        for pair in self.rdzv_conf:
            if not _KEY.fullmatch(pair.key) or "," in pair.value:
                message = "write a key without blanks, commas and equals signs, and a value without commas"
                pair.fields.refuse("InvalidRendezvous", message)
        self.least, self.most = least or most or replicas, most or least or replicas
        self.backend = self.rdzv_backend or C10D

    @property
    def stretches(self) -> bool:
        """True if the job may have another size than its first."""
        return self.least < self.most

    @property
    def needs_store(self) -> bool:
        """True if torchrun serves the store itself, and the user names no place for it."""
        return self.backend == C10D and not self.rdzv_host and not self.standalone

    def environment(self, host: str, port: int, masters: int) -> dict[str, str]:
        """The variables that torchrun reads; the store is at `host` and `port` unless the policy says otherwise."""
        # Numbers of the user's are those of all agents; without any the group is of all pods.
        more = masters if self.min_replicas is None and self.max_replicas is None else 0
        found = {
            "PET_RDZV_ENDPOINT": f"{self.rdzv_host or host}:{self.rdzv_port or port}",
            "PET_RDZV_BACKEND": self.backend,
            "PET_NNODES": f"{self.least + more}:{self.most + more}",
        } | UNSHARED
        if self.max_restarts is not None:
            found["PET_MAX_RESTARTS"] = str(self.max_restarts)
        if self.n_proc_per_node:
            found["PET_NPROC_PER_NODE"] = str(self.n_proc_per_node)
        if self.rdzv_id:
            found["PET_RDZV_ID"] = self.rdzv_id
        if self.rdzv_conf:
            found["PET_RDZV_CONF"] = ",".join(f"{pair.key}={pair.value}" for pair in self.rdzv_conf)
        if self.standalone:
            # Upstream leaves it empty, and torchrun, which reads a number, fails at once.
            found["PET_STANDALONE"] = "1"
        return found


def elastic_policy(spec: Fields, replicas: int) -> Elastic | None:
    """The policy of a job with this number of workers, or None without one."""
    return Elastic(spec.part(FIELD), replicas) if spec.has(FIELD) else None


MASTER = "master"

PROCESSES = "nprocPerNode"
AUTOMATIC = "auto"
_OF_TORCHRUN = "auto|cpu|gpu|xpu|0*[1-9][0-9]{0,5}"
_PROCESSES = re.compile(_OF_TORCHRUN)
_UNSAID = (None, "")
"""Values of an absent field: Go programs write an empty string."""

_OF_A_MASTER = frozenset({"MASTER_ADDR", "WORLD_SIZE", "RANK", "PET_NODE_RANK"})
"""Variables that every pod gets if the job has a master."""

_WHEN = "before the job begins, or while it is suspended"
"""When the bounds of an `elasticPolicy` may be changed: the pods of a job that runs were told of them."""

NO_WORKER = "add a Worker: it is the workers that an elasticPolicy is about"


class _OfPyTorch(Written):
    elastic_policy = Field(Elastic.schema(), Fields.part)
    nproc_per_node = text(
        "Processes per pod: auto, cpu, gpu, xpu or a number; auto when absent.", pattern=f"^({_OF_TORCHRUN})?$"
    )


class PyTorchJob(KubeflowJob):
    """A master, if there is one, and workers; with an `elasticPolicy` the job is elastic."""

    job_type = "PyTorchJob"
    description = "A PyTorch job: a master and workers, or a group of workers that grows and shrinks under torchrun."
    replica_specs = "pytorchReplicaSpecs"
    replica_types = (
        ReplicaType("Master", most=1, restart_policy="OnFailure"),
        ReplicaType("Worker", restart_policy="OnFailure"),
    )
    take_over = OfTrainingOperator(replica_types)
    container_properties = ContainerProperties(name="pytorch", port_name="pytorchjob-port", port=23456)
    in_every_container = True
    model = _OfPyTorch
    told = (FIELD, PROCESSES)
    scale = scale_of_workers(replica_specs)

    def rules_of_spec(self) -> tuple[Document, ...]:
        workers = f"self.{self.replica_specs}.exists(name, {is_type(WORKER)})"
        said = f"has(self.{PROCESSES}) && self.{PROCESSES} != ''"
        both = f"{said} && has(self.{FIELD}) && has(self.{FIELD}.nProcPerNode)"
        return (
            rule(f"!has(self.{FIELD}) || {workers}", NO_WORKER, field=f".{self.replica_specs}"),
            _bound("maxReplicas", "<=", f"set replicas to at most maxReplicas; raise that {_WHEN}"),
            _bound("minReplicas", ">=", f"set replicas to at least minReplicas; lower that {_WHEN}"),
            rule(f"!({both})", f"write {PROCESSES} alone", field=f".{FIELD}"),
        )

    def reserved_for(self, spec: Fields) -> frozenset[str]:
        specs = spec.part(self.replica_specs)
        led = any(name.lower() == MASTER for name in specs.names())
        return frozenset({"PET_NNODES"}) | (_OF_A_MASTER if led else frozenset())

    def spec_of(self, manifest: Custom, spec: Fields, roles: tuple[RoleSpec, ...]) -> JobSpec:
        worker = next((role for role in roles if role.name == WORKER), None)
        elastic = elastic_policy(spec, worker.replicas if worker is not None else 1)
        self._check_processes(spec, elastic)
        if elastic is not None:
            self._check_size(spec, elastic, worker)
            if elastic.stretches:
                bounds = {"min_replicas": elastic.least, "max_replicas": elastic.most}
                roles = tuple(
                    msgspec.structs.replace(role, **bounds) if role.name == WORKER else role for role in roles
                )
            own = elastic.needs_store or elastic.rdzv_host.startswith(f"{manifest.metadata.name}-")
            if (
                not (own or elastic.standalone or elastic.rdzv_id)
                and worker is not None
                and not names_group(self._of_workers(spec), worker.container)
            ):
                effect = "is absent, so that torchrun calls the group none"
                spec.part(FIELD).ignore(
                    "rdzvId", "write one: all jobs without one meet in the same group there", effect
                )
            if elastic.needs_store and worker is not None and not self._tells_of_another(spec, worker.container):
                roles = (*roles, rendezvous_role(manifest.metadata.name, worker.container))
        parsed = super().spec_of(manifest, spec, roles)
        # Its agents train with those that are there.
        if elastic is None or not parsed.handling.elastic:
            return parsed
        return msgspec.structs.replace(parsed, elasticity=Elasticity(), autoscaled=bool(elastic.metrics))

    def metrics(self, manifest: Custom) -> list[Document]:
        return objects(at(manifest.spec, FIELD, "metrics"))

    def handle(self, spec: Fields, roles: tuple[RoleSpec, ...]) -> Handling:
        names = [role.name for role in roles]
        leader = MASTER if MASTER in names else WORKER
        if any(role.name == leader and not role.replicas for role in roles):
            spec.refuse("NoReplicas", f"ask for at least one {leader}: the job ends with it", self.replica_specs)
        # All agents of an elastic group end with the training, however many there are then.
        succeeds = "Any" if leader == WORKER and spec.has(FIELD) else "All"
        stretches = any(role.max_replicas is not None for role in roles)
        return msgspec.structs.replace(self.handling, leader=leader, succeeds=succeeds, elastic=stretches)

    def environment(self, replica: Replica) -> Mapping[str, str]:
        spec = Fields(replica.job.spec, "spec", [])
        elastic = elastic_policy(spec, replica.spec.worker.replicas)
        processes = _processes(spec, elastic)
        size = replica.size(MASTER) + replica.size(WORKER)
        found = {"PYTHONUNBUFFERED": "1"}
        if any(role.name == MASTER for role in replica.spec.roles):
            rank = str(replica.index + (replica.role == WORKER))
            master = {"MASTER_PORT": str(replica.ports[MASTER]), "MASTER_ADDR": replica.host(MASTER)}
            # torchrun reads the second ones alone; without them every agent would look for the master beside itself.
            found |= master | {f"PET_{name}": value for name, value in master.items()}
            found |= {
                "WORLD_SIZE": str(size * (int(processes) if processes.isdigit() else 1)),
                "RANK": rank,
                "PET_NODE_RANK": rank,
            }
        if processes:
            found["PET_NPROC_PER_NODE"] = processes
        if elastic is None:
            return found | {"PET_NNODES": str(size)}
        # The pods of an attempt that began without a rendezvous pod have theirs at the first worker.
        served = replica.context.sizes.get(RENDEZVOUS)
        host = rendezvous_name(replica.context.key) if served else replica.host(WORKER)
        return found | elastic.environment(host, replica.ports[WORKER], masters=replica.size(MASTER))

    def entry(self, manifest: Custom, role: str) -> tuple[str, Document]:
        """The rendezvous has the workers' template."""
        return super().entry(manifest, WORKER if role == RENDEZVOUS else role)

    def pod(self, manifest: Custom, spec: JobSpec, context: PodContext) -> Document:
        if context.slot.role != RENDEZVOUS:
            return super().pod(manifest, spec, context)
        elastic = elastic_policy(Fields(manifest.spec, "spec", []), spec.worker.replicas)
        return rendezvous_pod(
            self,
            self.template(manifest, WORKER),
            context,
            container=spec.worker.container,
            port=(elastic.rdzv_port if elastic is not None else 0) or self.port(manifest, WORKER),
            search=False,
            group=elastic.rdzv_id if elastic is not None else "",
        )

    def _tells_of_another(self, spec: Fields, container: str) -> bool:
        """True if the workers' template itself tells torchrun of a rendezvous."""
        return brings_its_own(self._of_workers(spec), container)

    def _of_workers(self, spec: Fields) -> object:
        """Their template."""
        specs = spec.part(self.replica_specs)
        return next((specs.part(name).raw("template") for name in specs.names() if name.lower() == WORKER), None)

    def _check_size(self, spec: Fields, elastic: Elastic, worker: RoleSpec | None) -> None:
        specs = spec.part(self.replica_specs)
        if worker is None:
            specs.refuse("NoWorker", NO_WORKER, "Worker")
        elif worker.replicas > elastic.most:
            message = f"set at most maxReplicas, without it minReplicas; raise that {_WHEN}"
            specs.refuse("AboveMaximum", message, "Worker.replicas")
        elif worker.replicas < elastic.least:
            message = f"set at least minReplicas, without it maxReplicas; lower that {_WHEN}"
            specs.refuse("BelowMinimum", message, "Worker.replicas")

    def _check_processes(self, spec: Fields, elastic: Elastic | None) -> None:
        if spec.raw(PROCESSES) in _UNSAID:
            return
        if elastic is not None and elastic.n_proc_per_node:
            spec.refuse("ContradictoryProcesses", f"write {PROCESSES} alone", f"{FIELD}.nProcPerNode")
        elif not _PROCESSES.fullmatch(_processes(spec, elastic)):
            spec.refuse("InvalidValue", "write auto, cpu, gpu, xpu or a number of processes", PROCESSES)


def _processes(spec: Fields, elastic: Elastic | None) -> str:
    """The number of processes of a pod, in torchrun's format; empty if the `elasticPolicy` has it."""
    value = spec.raw(PROCESSES)
    if value in _UNSAID:
        return "" if elastic is not None and elastic.n_proc_per_node else AUTOMATIC
    if isinstance(value, bool) or not isinstance(value, int | str):
        return "?"
    return str(value)


def _bound(field: str, comparison: str, message: str) -> dict[str, str]:
    """A rule of the spec; a single bound counts as both."""
    worker, bound = "self.pytorchReplicaSpecs['Worker']", f"self.{FIELD}.{field}"
    size = f"(has({worker}.replicas) ? {worker}.replicas : 1)"
    unasked = f"!has(self.{FIELD}) || !has({bound}) || !('Worker' in self.pytorchReplicaSpecs)"
    return rule(f"{unasked} || {size} {comparison} {bound}", message, field=".pytorchReplicaSpecs")


PYTORCHJOB = PyTorchJob()
