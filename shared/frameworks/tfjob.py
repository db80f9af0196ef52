"""TFJob (`kubeflow.org/v1`): TensorFlow tasks, which find each other by `TF_CONFIG`.  Pure."""

import json
from collections.abc import Iterator, Mapping

import msgspec

from shared.cluster.objects import Custom
from shared.frameworks.kubeflow import KubeflowJob, OfTrainingOperator, is_type, scale_of_workers
from shared.frameworks.model import Written, choice, flag
from shared.frameworks.reading import Fields
from shared.frameworks.replicated import ContainerProperties, Replica, ReplicaType
from shared.frameworks.schemas import Document, rule
from shared.job.naming import Slot
from shared.job.spec import WORKER, Handling, JobSpec, RoleSpec

PS = "ps"
EVALUATOR = "evaluator"
CHIEFS = ("chief", "master")
TWO_CHIEFS = "write one of Chief and Master: they are two names for the task that leads"

CONFIG = "TF_CONFIG"


class _OfTensorFlow(Written):
    success_policy = choice(("", "AllWorkers"), "", "UnknownSuccessPolicy")
    enable_dynamic_worker = flag()


class TFJob(KubeflowJob):
    """A chief, if there is one, parameter servers, workers, and an evaluator beside them."""

    job_type = "TFJob"
    short_names = ("tfj",)
    description = "A TensorFlow job: chief, parameter servers, workers and evaluator find each other by TF_CONFIG."
    replica_specs = "tfReplicaSpecs"
    replica_types = (
        ReplicaType("Chief"),
        ReplicaType("Master"),
        ReplicaType("PS"),
        ReplicaType("Worker"),
        ReplicaType("Evaluator"),
    )
    take_over = OfTrainingOperator(replica_types)
    container_properties = ContainerProperties(name="tensorflow", port_name="tfjob-port", port=2222)
    model = _OfTensorFlow
    told = ("enableDynamicWorker",)
    scale = scale_of_workers(replica_specs)

    def rules_of_replicas(self) -> Iterator[Document]:
        yield from super().rules_of_replicas()
        chief, master = (f"self.exists(name, {is_type(name)})" for name in CHIEFS)
        yield rule(f"!({chief} && {master})", TWO_CHIEFS)

    def handle(self, spec: Fields, roles: tuple[RoleSpec, ...]) -> Handling:
        own = _OfTensorFlow(spec)
        names = [role.name for role in roles]
        if all(chief in names for chief in CHIEFS):
            spec.refuse("TwoChiefs", TWO_CHIEFS, self.replica_specs)
        leader = next((name for name in (*CHIEFS, WORKER, *names) if name in names), WORKER)
        if any(role.name == leader and not role.replicas for role in roles):
            spec.refuse("NoReplicas", f"ask for at least one {leader}: the job ends with it", self.replica_specs)
        first = leader == WORKER and not own.success_policy
        return msgspec.structs.replace(
            self.handling,
            leader=leader,
            succeeds="First" if first else "All",
            elastic=own.enable_dynamic_worker,
            # Upstream goes on without workers that are lost for good.
            spares=(WORKER,) if own.enable_dynamic_worker else (),
        )

    def spec_of(self, manifest: Custom, spec: Fields, roles: tuple[RoleSpec, ...]) -> JobSpec:
        parsed = super().spec_of(manifest, spec, roles)
        if not parsed.handling.elastic or parsed.handling.leader != WORKER:
            return parsed
        # Without a leader only a worker can end the job.
        least = tuple(msgspec.structs.replace(role, min_replicas=int(role.name == WORKER)) for role in parsed.roles)
        return msgspec.structs.replace(parsed, roles=least)

    def reserved_for(self, spec: Fields) -> frozenset[str]:
        """A job of one task gets no cluster, so its user may set the variable."""
        specs = spec.part(self.replica_specs)
        known = {kind.role for kind in self.replica_types}
        sizes = [specs.part(name).raw("replicas") for name in specs.names() if name.lower() in known]
        return frozenset() if sizes in ([1], [None]) else frozenset({CONFIG})

    def leads(self, spec: JobSpec, slot: Slot) -> bool:
        return slot.role in CHIEFS or (super().leads(spec, slot) and slot.role == WORKER)

    def environment(self, replica: Replica) -> Mapping[str, str]:
        if sum(replica.context.sizes.values()) == 1:
            # A single task trains without a cluster.
            return {}
        task = {"type": replica.role, "index": replica.index}
        if replica.spec.handling.elastic:
            return _config({"cluster": _sparse(replica), "task": task})
        # The evaluator gets the cluster in its variable and is not part of it.
        cluster = {role.name: _tasks(replica, role.name) for role in replica.spec.roles if role.name != EVALUATOR}
        return _config({"cluster": cluster, "task": task, "environment": "cloud"})


def _config(config: Document) -> dict[str, str]:
    # Without blanks, as in Go: with thousands of tasks they count against the kernel's 128 KiB for a variable.
    return {CONFIG: json.dumps(config, separators=(",", ":"))}


def _tasks(replica: Replica, role: str) -> list[str]:
    return [_at(replica, role, index) for index in range(replica.size(role))]


def _at(replica: Replica, role: str, index: int) -> str:
    return f"{replica.host(role, index)}.{replica.context.key.namespace}.svc:{replica.ports[role]}"


def _sparse(replica: Replica) -> dict[str, object]:
    """The cluster for a task of an elastic job: a worker gets itself and the servers, a server itself."""
    servers = any(role.name == PS for role in replica.spec.roles)
    match replica.role:
        case "ps":
            return {"worker": {}, "ps": [_at(replica, PS, replica.index)]}
        case "worker":
            own = {str(replica.index): _at(replica, WORKER, replica.index)}
            return {"worker": own, "ps": _tasks(replica, PS) if servers else []}
        case _:
            return {"worker": {}, "ps": []}


TFJOB = TFJob()
