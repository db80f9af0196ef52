"""The common base of the kinds of `kubeflow.org/v1`: TFJob, PyTorchJob, MXJob, MPIJob, JAXJob and so on.  Pure.

They share `runPolicy`, labels, names and Services; `statuses.py` renders their status.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar

import msgspec

from shared.cluster.objects import Custom
from shared.frameworks import reading, schemas
from shared.frameworks.framework import PodContext
from shared.frameworks.model import Written, anything, choice, flag, number, text
from shared.frameworks.replicated import Replicated, ReplicaType
from shared.frameworks.schemas import Definition, Document, Scale
from shared.frameworks.statuses import JOB_NAME, OPERATOR_NAME, REPLICA_TYPE, job_status
from shared.frameworks.takeover import DIGITS, TakeOver
from shared.frameworks.templates import Promises, note_labels
from shared.job.naming import JobKey, Slot
from shared.job.spec import UNLIMITED, WORKER, Handling, JobSpec, RoleSpec
from shared.job.state import Job
from shared.untrusted import at, whole_number

GROUP = "kubeflow.org"

REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"
LEADING: Mapping[str, str] = MappingProxyType({JOB_ROLE: "master"})

SCHEDULING = schemas.ANYTHING | {
    "description": "minAvailable: so many pods find places together, where gangs are on (MUSTER_GANGS). priorityClass: "
    "that of pods whose template names none. The rest is kept and not acted upon."
}


class Limits(Written):
    """The fields of `runPolicy` that were fields of `spec` before training-operator 1.3."""

    clean_pod_policy = choice(
        reading.CLEAN_POD_POLICIES,
        "None",
        "UnknownCleanPodPolicy",
        "Which pods go at the end; None when absent.",
        empty=True,
    )
    ttl_seconds_after_finished = number("The job is deleted so long after its end.")
    active_deadline_seconds = number("The job fails when it takes longer; a pause does not count.", 1)
    backoff_limit = number("The job fails when so many pods were replaced; no limit when absent.")


class RunPolicy(Written):
    """The others."""

    suspend = flag()
    scheduling_policy = anything(SCHEDULING)
    managed_by = text()


SUSPEND = ".spec.runPolicy.suspend"

FREE = f"{schemas.BY_CONDITIONS} || {schemas.pausing(SUSPEND)}"
"""True if no pod depends on the spec, or none will."""

_FIXED = (
    "cannot be changed unless the job is suspended: its pods would differ; set spec.runPolicy.suspend to true first, "
    "or create the job again"
)

STATE = schemas.column("State", ".status.conditions[-1:].type")
"""The newest true condition is the last one."""


def scale_of_workers(specs: str) -> Scale:
    """The scale of a kind whose number of workers may change; `specs` is its field with the replicas by type."""
    workers = ".status.replicaStatuses.Worker"
    return Scale(f".spec.{specs}.Worker.replicas", f"{workers}.active", f"{workers}.selector")


def is_type(roles: str) -> str:
    """A CEL expression: true if `name` is one of these roles, separated by `|`, in upper or lower case."""
    return f"name.matches('(?i)^({roles})$')"


class OfTrainingOperator(TakeOver):
    """The traces of the training operator since 1.3."""

    selector = OPERATOR_NAME

    def __init__(self, kinds: tuple[ReplicaType, ...]) -> None:
        self._roles = [kind.role for kind in kinds]

    def role_and_index(self, labels: Mapping[str, str]) -> tuple[str, int] | None:
        role, index = labels.get(REPLICA_TYPE, "").lower(), whole_number(labels.get(REPLICA_INDEX, ""), DIGITS)
        return (role, index) if role in self._roles and index is not None else None


class KubeflowJob(Replicated):
    """A kind of the training operator."""

    group = GROUP
    version = "v1"
    controllers: ClassVar[tuple[str, ...]] = ("", "kubeflow.org/training-operator")
    """The values of `managedBy` that name the operator itself."""
    model: ClassVar[type[Written]] = Written
    """The fields of `spec` that only this kind has."""
    told: ClassVar[tuple[str, ...]] = ()
    """Those of which every pod is told: a new pod would differ from the running ones after a change."""
    replica_fields: ClassVar[Document] = {}
    """The OpenAPI properties of a replica type that only this kind has."""
    ignored_fields: ClassVar[Mapping[str, str]] = {
        "runPolicy.schedulingPolicy.minResources": "pods find places by what their templates request",
        "runPolicy.schedulingPolicy.queue": "name a queue of Kueue in the label kueue.x-k8s.io/queue-name",
        "runPolicy.schedulingPolicy.scheduleTimeoutSeconds": "a gang waits without a limit, and activeDeadlineSeconds "
        "ends the job",
    }
    """Paths in `spec` that have no effect, each with what to do instead."""
    scale: ClassVar[Scale | None] = None
    short_names: ClassVar[tuple[str, ...]] = ()
    description: ClassVar[str] = ""

    @property
    def definition(self) -> Definition:
        properties = {
            "replicas": schemas.REPLICAS,
            "restartPolicy": schemas.choice("", *reading.RESTART_POLICIES),
            "template": schemas.TEMPLATE,
        }
        replica = schemas.members(
            properties | self.replica_fields,
            required=("template",),
            rules=schemas.training_rule(self.container_properties.name),
        )
        limits = Limits.properties()
        fields, message = [f"spec.{name}" for name in self.told], f"{' and '.join(self.told)} {_FIXED}"
        told = [schemas.all_fixed(fields, message, within="spec", free=FREE)] if fields else []
        # The pods' names are longer by the job's own types, which `parse` checks.
        longest = reading.LONGEST_POD_NAME - min(len(f"-{kind.role}-0") for kind in self.replica_types)
        return Definition(
            description=self.description,
            spec=schemas.members(
                {
                    "runPolicy": {"type": "object", "properties": limits | RunPolicy.properties()},
                    # Upstream accepts the types in upper and lower case.
                    self.replica_specs: {
                        "type": "object",
                        "minProperties": 1,
                        "maxProperties": schemas.MOST_MEMBERS,
                        "additionalProperties": replica,
                        "x-kubernetes-validations": [*self.rules_of_replicas()],
                    },
                }
                | limits
                | self.model.properties(),
                required=(self.replica_specs,),
                rules=self.rules_of_spec(),
            ),
            short_names=self.short_names,
            columns=(
                STATE,
                schemas.AGE,
                schemas.column("Workers", ".status.replicaStatuses.Worker.active", kind="integer"),
                schemas.column("Failed", ".status.replicaStatuses.Worker.failed", kind="integer"),
                *(
                    schemas.column(kind.name, f".status.replicaStatuses.{kind.name}.active", kind="integer", wide=True)
                    for kind in self.replica_types
                    if kind.role != WORKER
                ),
                *schemas.WHY,
            ),
            rules=(
                schemas.job_name_rule(longest),
                schemas.each_fixed(
                    f"spec.{self.replica_specs}",
                    {"template": "", "replicas": is_type(WORKER) if self.scale else ""},
                    f"pod templates and replicas{' of all but Worker' if self.scale else ''} {_FIXED}",
                    free=FREE,
                ),
                *told,
            ),
            status=schemas.STATUS_WITH_CONDITIONS,
            scale=self.scale,
            suspend=SUSPEND,
        )

    def rules_of_replicas(self) -> Iterator[Document]:
        """The rules of the map of replicas by type: the types, and the number of pods of each."""
        known = "|".join(kind.role for kind in self.replica_types)
        yield schemas.rule(f"self.all(name, {is_type(known)})", f"the types of this kind are {self._choices()}")
        yield schemas.rule(
            "self.exists(name, !has(self[name].replicas) || self[name].replicas > 0)", "ask for at least one pod"
        )
        for kind in self.replica_types:
            least, most = kind.least, kind.most
            if least:
                yield schemas.rule(f"self.exists(name, {is_type(kind.role)})", f"add {least} {kind.name}")
            if least or most < reading.MOST_WORKERS:
                size = "self[name].replicas"
                within = f"{least} <= {size} && {size} <= {most}" if least else f"{size} <= {most}"
                yield schemas.rule(
                    f"self.all(name, !{is_type(kind.role)} || !has({size}) || ({within}))",
                    f"ask for {least} to {most} of {kind.name}" if least < most else f"ask for {most} {kind.name}",
                )

    def rules_of_spec(self) -> tuple[Document, ...]:
        """The rules of the spec about several of its fields."""
        return ()

    def handle(self, spec: reading.Fields, roles: tuple[RoleSpec, ...]) -> Handling:
        """The handling of this job, with its leader role; problems are noted in `spec`."""
        return self.handling

    def leads(self, spec: JobSpec, slot: Slot) -> bool:
        """True if the pod in this slot gets the label of the leader."""
        return slot.role == spec.handling.leader and slot.index == 0

    def promises(self, manifest: Custom, kind: ReplicaType, fields: reading.Fields) -> Promises:
        policy = self.restart_policy(kind, fields)
        return super().promises(manifest, kind, fields)._replace(restarts=policy)

    def spec_of(self, manifest: Custom, spec: reading.Fields, roles: tuple[RoleSpec, ...]) -> JobSpec:
        policy = RunPolicy(spec.part("runPolicy"))
        limits = Limits(policy.fields, older=spec)
        if policy.managed_by not in self.controllers:
            message = "leave it out to have the job run here: it is said to be another controller's"
            policy.fields.refuse("ManagedByAnother", message, "managedBy")
        least = policy.scheduling_policy.integer("minAvailable", least=0, most=reading.MOST_WORKERS)
        policy.scheduling_policy.text("priorityClass")
        spec.ignore_all(self.ignored_fields)
        parsed = msgspec.structs.replace(
            super().spec_of(manifest, spec, roles),
            handling=self.handle(spec, roles),
            clean_pod_policy=limits.clean_pod_policy,
            backoff_limit=UNLIMITED if limits.backoff_limit is None else limits.backoff_limit,
            active_deadline_seconds=limits.active_deadline_seconds,
            ttl_seconds_after_finished=limits.ttl_seconds_after_finished,
            suspend=policy.suspend,
            gang=least or None,
        )
        for kind, fields in self.replicas(spec):
            if self.leads(parsed, Slot(0, kind.role, 0)):
                note_labels(fields.part("template"), LEADING)
        return parsed

    def ours(self, manifest: Custom) -> bool:
        """False if `managedBy` names another controller and the job was not begun here."""
        manager = at(manifest.spec, "runPolicy", "managedBy")
        another = isinstance(manager, str) and manager not in self.controllers
        return not another or at(manifest.status, "history") is not None

    def pod(self, manifest: Custom, spec: JobSpec, context: PodContext) -> Document:
        pod = super().pod(manifest, spec, context)
        priority = at(manifest.spec, "runPolicy", "schedulingPolicy", "priorityClass")
        if priority and not pod["spec"].get("priorityClassName"):
            pod["spec"]["priorityClassName"] = priority
        if self.leads(spec, context.slot):
            pod["metadata"]["labels"] |= LEADING
        return pod

    def ports(self, manifest: Custom, spec: JobSpec, context: PodContext | None) -> list[Document]:
        """The named ports of the training container, for the pod's own Service."""
        found = {port["name"]: (port["port"], "TCP") for port in super().ports(manifest, spec, context)}
        container = self.training_container(manifest, context.slot.role) if context is not None else {}
        for port in container.get("ports") or ():
            at = (port.get("containerPort"), port.get("protocol") or "TCP")
            # A Service may have each port of a protocol once.
            if isinstance(port.get("name"), str) and isinstance(at[0], int) and at not in found.values():
                found.setdefault(port["name"], at)
        return [
            {"name": name, "port": port} | ({} if protocol == "TCP" else {"protocol": protocol})
            for name, (port, protocol) in found.items()
        ]

    def labels(self, key: JobKey) -> dict[str, str]:
        operator = f"{self.job_type.lower()}-controller"
        return super().labels(key) | {OPERATOR_NAME: operator, JOB_NAME: key.name}

    def pod_labels(self, key: JobKey, slot: Slot) -> dict[str, str]:
        return super().pod_labels(key, slot) | {REPLICA_TYPE: slot.role, REPLICA_INDEX: str(slot.index)}

    def status(self, job: Job) -> Document:
        return job_status(self, job)
