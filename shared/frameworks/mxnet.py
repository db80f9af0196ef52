"""The common base of the MXNet kinds: the environment of ps-lite, and jobs whose replicas are a list.  Pure.

The scheduler introduces servers and workers to each other; it is the leader role.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import ClassVar

import msgspec

from shared.cluster.objects import Custom
from shared.frameworks import schemas
from shared.frameworks.framework import PodContext, key_of
from shared.frameworks.mxnet_status import NOT_BEGUN, job_status, phase_of, schema
from shared.frameworks.reading import DEFAULT_BACKOFF_LIMIT, MOST_PORT, Fields
from shared.frameworks.replicated import Replica, Replicated, ReplicaType
from shared.frameworks.schemas import Definition, Document
from shared.frameworks.templates import Promises
from shared.job.naming import JobKey, Slot
from shared.job.spec import REPLICATED, WORKER, CleanPodPolicy, JobSpec, RestartPolicy, RoleSpec
from shared.job.state import Job
from shared.untrusted import at

SCHEDULER = "scheduler"
SERVER = "server"

RESERVED = frozenset({"DMLC_ROLE", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_SERVER", "DMLC_NUM_WORKER"})
"""Variables that a user must not set: with another value in one pod the processes wait for ever."""

_OF_PODS: tuple[RestartPolicy, ...] = ("Never", "OnFailure", "Always")

LONGEST_RUNTIME_ID = 16
"""Characters of a RuntimeId: the name of a pod has it and the job's name."""

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_RUNTIME_ID_LENGTH = 4


def dmlc_environment(replica: Replica) -> dict[str, str]:
    """The variables by which ps-lite's processes find their scheduler.

    The scheduler binds to DMLC_PS_ROOT_URI itself, which ZeroMQ cannot do with a host name; with DMLC_USE_KUBERNETES
    it binds to all addresses instead.  Without a scheduler URI and port are empty and 0, as upstream's are.
    """
    scheduled = any(role.name == SCHEDULER and role.replicas for role in replica.spec.roles)
    return {
        "DMLC_ROLE": replica.role,
        "DMLC_PS_ROOT_URI": replica.host(SCHEDULER) if scheduled else "",
        "DMLC_PS_ROOT_PORT": str(replica.ports[SCHEDULER] if scheduled else 0),
        "DMLC_NUM_SERVER": str(replica.size(SERVER)),
        "DMLC_NUM_WORKER": str(replica.size(WORKER)),
        "DMLC_USE_KUBERNETES": "1",
    }


def runtime_id(manifest: Custom) -> str:
    """The RuntimeId, which is part of the pods' names: the user's, or one made from the uid.

    The replaced operators draw it at random and write it into the resource; here it follows from the uid.
    """
    theirs = manifest.spec.get("RuntimeId") if isinstance(manifest.spec, dict) else None
    if theirs and isinstance(theirs, str):
        # A longer one gets its own problem, not one about the names that it would give.
        return theirs[:LONGEST_RUNTIME_ID]
    digest = sha256(manifest.metadata.uid.encode()).digest()
    return "".join(_DIGITS[byte % len(_DIGITS)] for byte in digest[:_RUNTIME_ID_LENGTH])


class ParameterServer(Replicated):
    """A kind whose `replica_specs` is a list of scheduler, servers and workers."""

    replica_types = (
        ReplicaType("SCHEDULER", least=1, most=1, restart_policy="ExitCode"),
        ReplicaType("SERVER", restart_policy="OnFailure"),
        ReplicaType("WORKER", restart_policy="OnFailure"),
    )
    """A server or worker that succeeded is not replaced; one that failed is, for any reason."""
    handling = msgspec.structs.replace(
        REPLICATED, leader=SCHEDULER, restarts="Job", winds_down=True, out_of_memory_is_final=True
    )
    reserved = RESERVED
    type_field: ClassVar[str] = "mxReplicaType"
    """The field with the type of an entry."""
    default_type: ClassVar[str] = ""
    """The default type of an entry; empty if the type is required."""
    port_field: ClassVar[str] = ""
    """The field with the port of an entry; empty without one."""
    clean_pod_policy: ClassVar[CleanPodPolicy] = "Running"
    description: ClassVar[str]
    longest_name: ClassVar[int]
    """The most characters of a job's name that its definition takes; they may be too many for its types."""
    selected: ClassVar[str]
    """The field of the status with the type of a replica."""
    waiting: ClassVar[str] = "Starting"
    """The word for a pending pod in the status."""
    status_fields: ClassVar[Document] = {}
    """The schemas of further fields of the status."""
    reports_result = True

    @property
    def definition(self) -> Definition:
        return Definition(
            description=self.description,
            spec=self.spec_schema(),
            columns=self.columns(),
            rules=(schemas.job_name_rule(self.longest_name, digit=self.leading_digit), *self.rules_of_job()),
            expires=False,
            status=schema(self.selected, **self.status_fields),
        )

    @abstractmethod
    def spec_schema(self) -> Document:
        """The OpenAPI schema of the spec."""

    def rules_of_job(self) -> tuple[Document, ...]:
        """The rules of the whole resource beside that of its name."""
        return ()

    def columns(self, *more: Document) -> tuple[Document, ...]:
        """`more` are columns that the replaced operator had at this place."""
        workers = f'.status.replicaStatuses[?(@.{self.selected}=="WORKER")].ReplicasStates'
        return (
            schemas.PHASE,
            schemas.column("State", ".status.state"),
            schemas.AGE,
            *more,
            schemas.column("Workers", f"{workers}.Running", kind="integer"),
            schemas.column("Failed", f"{workers}.Failed", kind="integer", wide=True),
            schemas.column("Reason", ".status.reason", wide=True),
        )

    @abstractmethod
    def task_labels(self, manifest: Custom, key: JobKey, slot: Slot) -> Mapping[str, str]:
        """The labels of a slot's pod and its Service by which users select them."""

    def promises(self, manifest: Custom, kind: ReplicaType, fields: Fields) -> Promises:
        known = super().promises(manifest, kind, fields)
        labels = self.task_labels(manifest, key_of(manifest), Slot(0, kind.role, 0))
        return known._replace(labels={**known.labels, **labels})

    def environment(self, replica: Replica) -> Mapping[str, str]:
        return dmlc_environment(replica) | {"PS_VERBOSE": "2"}

    def replicas(self, spec: Fields) -> Iterator[tuple[ReplicaType, Fields]]:
        entries = spec.parts(self.replica_specs)
        if not entries:
            spec.refuse("NoReplicas", f"list which replicas the job has: {self._choices()}", self.replica_specs)
        found: set[str] = set()
        for entry in entries:
            kind = self._type(entry.text(self.type_field))
            if kind is None:
                entry.refuse("UnknownReplicaType", f"write one of {self._choices()}", self.type_field)
            elif kind.name in found:
                message = "write one entry for each type; replicas says how many there are of it"
                entry.refuse("DuplicateReplicaType", message, self.type_field)
            else:
                found.add(kind.name)
                if self.port_field:
                    entry.integer(self.port_field, least=1, most=MOST_PORT)
                yield kind, entry

    def restart_policy(self, kind: ReplicaType, fields: Fields) -> RestartPolicy:
        return kind.restart_policy

    def spec_of(self, manifest: Custom, spec: Fields, roles: tuple[RoleSpec, ...]) -> JobSpec:
        return msgspec.structs.replace(
            super().spec_of(manifest, spec, roles),
            clean_pod_policy=self.clean_pod_policy,
            backoff_limit=DEFAULT_BACKOFF_LIMIT,
        )

    def entry(self, manifest: Custom, role: str) -> tuple[str, Document]:
        path, known = self.root(manifest, []).path(self.replica_specs), enumerate(self.entries(manifest))
        kinds = ((place, each, self._type(each.get(self.type_field))) for place, each in known)
        return next((f"{path}[{place}]", each) for place, each, kind in kinds if kind and kind.role == role)

    def entries(self, manifest: Custom) -> list[Document]:
        known: list[Document] = manifest.spec[self.replica_specs]
        return known

    def port(self, manifest: Custom, role: str) -> int:
        theirs = self.entry(manifest, role)[1].get(self.port_field) if self.port_field else None
        return super().port(manifest, role) if theirs is None else int(theirs)

    def pod(self, manifest: Custom, spec: JobSpec, context: PodContext) -> Document:
        pod = super().pod(manifest, spec, context)
        pod["metadata"]["labels"] |= self.task_labels(manifest, context.key, context.slot)
        return pod

    def service(self, manifest: Custom, spec: JobSpec, key: JobKey, context: PodContext | None) -> Document:
        service = super().service(manifest, spec, key, context)
        if context is not None:
            service["metadata"]["labels"] |= self.task_labels(manifest, context.key, context.slot)
        return service

    def status(self, job: Job) -> Document:
        return job_status(job, type_field=self.selected, waiting=self.waiting)

    def phase(self, status: Document) -> str:
        return phase_of(status)

    def _type(self, name: str | None) -> ReplicaType | None:
        return next((kind for kind in self.replica_types if kind.name == (name or self.default_type)), None)


def template_policy(fields: Fields) -> RestartPolicy | None:
    """The restartPolicy of an entry's pod template; None if it has none that Kubernetes knows."""
    theirs = at(fields.raw("template"), "spec", "restartPolicy")
    return next((policy for policy in _OF_PODS if policy == theirs), None)


class WithRuntimeId(ParameterServer):
    """A kind whose pods are named after a RuntimeId, too."""

    def rules_of_job(self) -> tuple[Document, ...]:
        message = "RuntimeId cannot be changed: the pods are named after it; create the job again"
        return (schemas.fixed("spec.RuntimeId", message, within="spec", free=schemas.by_phase(*NOT_BEGUN)),)

    def stem(self, manifest: Custom, kind: ReplicaType) -> str:
        return f"{manifest.metadata.name[: self.counted]}-{kind.role}-{runtime_id(manifest)}-"

    def spec_of(self, manifest: Custom, spec: Fields, roles: tuple[RoleSpec, ...]) -> JobSpec:
        given = spec.text("RuntimeId")
        fits = len(given) <= LONGEST_RUNTIME_ID
        if given and not (fits and given.isascii() and given.isalnum() and given == given.lower()):
            message = (
                f"use at most {LONGEST_RUNTIME_ID} characters, lower-case letters and digits only, or leave it out: "
                "pods are named after it"
            )
            spec.refuse("InvalidRuntimeId", message, "RuntimeId")
        return super().spec_of(manifest, spec, roles)

    def task_labels(self, manifest: Custom, key: JobKey, slot: Slot) -> Mapping[str, str]:
        return {
            self.group: "",
            "job_type": slot.role.upper(),
            "runtime_id": runtime_id(manifest),
            "task_index": str(slot.index),
        }


RUNTIME_ID: Document = {"type": "string", "maxLength": LONGEST_RUNTIME_ID, "pattern": "^[0-9a-z]*$"}


def entries_schema(framework: ParameterServer, *, any_case: bool = False) -> Document:
    """The list of replicas: an entry for each type, in any case (`any_case`) or as the kind writes it."""
    types = schemas.TEXT if any_case else schemas.choice("", *(kind.name for kind in framework.replica_types))
    properties: Document = {"replicas": schemas.REPLICAS, "template": schemas.TEMPLATE, framework.type_field: types}
    if framework.port_field:
        properties[framework.port_field] = schemas.number(1, MOST_PORT)
    training = schemas.training_rule(framework.container_properties.name)
    return {
        "type": "array",
        "items": schemas.members(properties, required=("template",), rules=training),
        "minItems": 1,
        "maxItems": len(framework.replica_types),
        "x-kubernetes-validations": [*_rules_of_entries(framework)],
    }


def type_of(framework: ParameterServer, entry: str) -> str:
    """A CEL expression: the type of an entry, as the kind writes it, or in any case if it accepts that."""
    field = f"{entry}.{framework.type_field}"
    return f"(has({field}) && {field} != '' ? {field} : '{framework.default_type}')"


def _rules_of_entries(framework: ParameterServer) -> Iterator[Document]:
    yield schemas.rule(
        f"self.all(e, self.exists_one(o, {type_of(framework, 'o')} == {type_of(framework, 'e')}))",
        "write one entry for each type; replicas says how many there are of it",
    )
    for kind in framework.replica_types:
        of_kind = f"{type_of(framework, 'e')}.matches('(?i)^{kind.name}$')"
        if kind.least:
            yield schemas.rule(f"self.exists(e, {of_kind})", f"add {kind.least} {kind.name}")
        if kind.least or kind.most == 1:
            within = f"{kind.least} <= e.replicas && e.replicas <= {kind.most}"
            yield schemas.rule(
                f"self.all(e, !{of_kind} || !has(e.replicas) || ({within}))",
                f"ask for {'' if kind.least else 'at most '}{kind.most} {kind.name}",
            )
