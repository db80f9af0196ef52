"""PyTorchJob (`kubeflow.org/v1`): processes of torch.distributed, which find each other by their environment, and
elastic groups of torchrun's agents.  Pure.
"""

import re
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from shared.cluster.objects import Custom
from shared.frameworks.definition import Definition, Document, Scale
from shared.frameworks.framework import PodContext
from shared.frameworks.kubeflow import FREE, KubeflowJob, OfTrainingOperator, is_type
from shared.frameworks.pytorch_elastic import FIELD, SCHEMA, Elastic, elastic_policy
from shared.frameworks.reading import Fields
from shared.frameworks.rendezvous import brings_its_own, rendezvous_name, rendezvous_pod, rendezvous_role
from shared.frameworks.replicated import ContainerProperties, Replica, ReplicaType
from shared.frameworks.schemas import fixed, rule
from shared.job.spec import RENDEZVOUS, WORKER, Handling, JobSpec, RoleSpec

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
    ignored_fields: ClassVar[Mapping[str, str]] = {
        **KubeflowJob.ignored_fields,
        f"{FIELD}.metrics": "no HorizontalPodAutoscaler is made; create one with these metrics",
    }
    fields: ClassVar[Document] = {
        FIELD: SCHEMA,
        PROCESSES: {
            "type": "string",
            "pattern": f"^({_OF_TORCHRUN})?$",
            "description": "Processes per pod: auto, cpu, gpu, xpu or a number; auto when absent.",
        },
    }
    scale = Scale(
        ".spec.pytorchReplicaSpecs.Worker.replicas",
        ".status.replicaStatuses.Worker.active",
        ".status.replicaStatuses.Worker.selector",
    )

    @property
    def definition(self) -> Definition:
        known = super().definition
        held = (
            "the elasticPolicy of a running job cannot be changed: its pods were told; suspend it first, or create the "
            "job again"
        )
        return known._replace(rules=(*known.rules, fixed(f"spec.{FIELD}", held, within="spec", free=FREE)))

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
                roles = tuple(_bounded(role, elastic) if role.name == WORKER else role for role in roles)
            if elastic.needs_store and worker is not None and not self._tells_of_another(spec, worker.container):
                roles = (*roles, rendezvous_role(manifest.metadata.name, worker.container))
        return super().spec_of(manifest, spec, roles)

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
            found |= {
                "MASTER_PORT": str(replica.ports[MASTER]),
                "MASTER_ADDR": replica.host(MASTER),
                "WORLD_SIZE": str(size * (int(processes) if processes.isdigit() else 1)),
                "RANK": rank,
                "PET_NODE_RANK": rank,
            }
        if processes:
            found["PET_NPROC_PER_NODE"] = processes
        if elastic is None:
            return found | {"PET_NNODES": str(size)}
        # The pods of an attempt that began without a rendezvous pod have theirs at the first worker.
        served = replica.size(RENDEZVOUS)
        host = rendezvous_name(replica.context.key) if served else replica.host(WORKER)
        return found | elastic.environment(host, replica.ports[WORKER])

    def template_path(self, manifest: Custom, role: str) -> str:
        return super().template_path(manifest, WORKER if role == RENDEZVOUS else role)

    def template(self, manifest: Custom, role: str) -> Document:
        """The rendezvous has the workers' template."""
        return super().template(manifest, WORKER if role == RENDEZVOUS else role)

    def pod(self, manifest: Custom, spec: JobSpec, context: PodContext) -> Document:
        if context.slot.role != RENDEZVOUS:
            return super().pod(manifest, spec, context)
        elastic = elastic_policy(Fields(manifest.spec, "spec", []), spec.worker.replicas)
        return rendezvous_pod(
            self,
            self.template(manifest, WORKER),
            context,
            container=spec.worker.container,
            port=(elastic.port if elastic is not None else 0) or self.port(manifest, WORKER),
            search=False,
        )

    def _tells_of_another(self, spec: Fields, container: str) -> bool:
        """True if the workers' template itself tells torchrun of a rendezvous."""
        specs = spec.part(self.replica_specs)
        worker = next((specs.part(name) for name in specs.names() if name.lower() == WORKER), None)
        return worker is not None and brings_its_own(worker.raw("template"), container)

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
        if elastic is not None and elastic.processes:
            spec.refuse("ContradictoryProcesses", f"write {PROCESSES} alone", f"{FIELD}.nProcPerNode")
        elif not _PROCESSES.fullmatch(_processes(spec, elastic)):
            spec.refuse("InvalidValue", "write auto, cpu, gpu, xpu or a number of processes", PROCESSES)


def _processes(spec: Fields, elastic: Elastic | None) -> str:
    """The number of processes of a pod, in torchrun's format; empty if the `elasticPolicy` has it."""
    value = spec.raw(PROCESSES)
    if value in _UNSAID:
        return "" if elastic is not None and elastic.processes else AUTOMATIC
    if isinstance(value, bool) or not isinstance(value, int | str):
        return "?"
    return str(value)


def _bounded(role: RoleSpec, elastic: Elastic) -> RoleSpec:
    return msgspec.structs.replace(role, min_replicas=elastic.least, max_replicas=elastic.most)


def _bound(field: str, comparison: str, message: str) -> dict[str, str]:
    """A rule of the spec; a single bound counts as both."""
    worker, bound = "self.pytorchReplicaSpecs['Worker']", f"self.{FIELD}.{field}"
    size = f"(has({worker}.replicas) ? {worker}.replicas : 1)"
    unasked = f"!has(self.{FIELD}) || !has({bound}) || !('Worker' in self.pytorchReplicaSpecs)"
    return rule(f"{unasked} || {size} {comparison} {bound}", message, field=".pytorchReplicaSpecs")


PYTORCHJOB = PyTorchJob()
