"""MxJob (`mxnet.mlkube.io/v1beta1`): MXNet jobs of deepinsight's mxnet-operator, local or distributed."""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from shared.cluster.objects import Custom
from shared.frameworks.mxnet import RUNTIME_ID, SCHEDULER, WithRuntimeId, entries_schema, type_of
from shared.frameworks.mxnet_status import successes
from shared.frameworks.reading import LONGEST_POD_NAME, Fields
from shared.frameworks.replicated import ContainerProperties, Replica, ReplicaType
from shared.frameworks.schemas import BOOLEAN, OPEN, Document, choice, column, members, number, rule
from shared.frameworks.statuses import condition
from shared.job import waiting
from shared.job.spec import WORKER, JobSpec, RoleSpec
from shared.job.state import Job

LOCAL = "local"
DISTRIBUTED = "dist"

NOT_LOCAL = "a local job has one WORKER and nothing else"

KEPT_CONDITIONS = 10
"""As many as the replaced operator kept."""


class MxJob(WithRuntimeId):
    """One worker, or a scheduler, servers and workers; pods that still run after the end are deleted."""

    job_type = "MxJob"
    group = "mxnet.mlkube.io"
    version = "v1beta1"
    replica_types = (
        ReplicaType("SCHEDULER", most=1, restart_policy="ExitCode"),
        ReplicaType("SERVER", restart_policy="OnFailure"),
        ReplicaType("WORKER", restart_policy="OnFailure"),
    )
    default_type = "WORKER"
    port_field = "PsRootPort"
    container_properties = ContainerProperties(name="mxnet", port_name="ps-root-port", port=9091)

    description = "An MXNet job: one worker, or a scheduler with servers and workers."
    longest_name = LONGEST_POD_NAME - len("-worker-x-0")
    selected = "Mx_replica_type"
    status_fields: ClassVar[Document] = {
        "controlPaused": BOOLEAN,
        "conditions": {"type": "array", "items": {"type": "object", **OPEN}},
        "desired": number(),
        "successful": number(),
    }

    def spec_schema(self) -> Document:
        modes = choice(LOCAL, DISTRIBUTED)
        properties = {"RuntimeId": RUNTIME_ID, "jobMode": modes, self.replica_specs: entries_schema(self)}
        # A type without replicas is left out.
        entries, field = f"self.{self.replica_specs}", f".{self.replica_specs}"
        there = "(!has(e.replicas) || e.replicas > 0)"
        worker = f"{type_of(self, 'e')} == '{WORKER.upper()}'"
        alone = f"size({entries}) == 1 && {entries}.all(e, {worker} && (!has(e.replicas) || e.replicas == 1))"
        all_types = f"size({entries}) == {len(self.replica_types)} && {entries}.all(e, {there})"
        needed = f"a job of mode dist needs {', '.join(kind.name for kind in self.replica_types)}"
        rules = (
            rule(f"!has(self.jobMode) || self.jobMode != '{LOCAL}' || ({alone})", NOT_LOCAL, field=field),
            rule(f"!has(self.jobMode) || self.jobMode != '{DISTRIBUTED}' || ({all_types})", needed, field=field),
        )
        return members(properties, required=("jobMode", self.replica_specs), rules=rules)

    def columns(self, *more: Document) -> tuple[Document, ...]:
        desired = column("Desired", ".status.desired", kind="integer", wide=True)
        successful = column("Successful", ".status.successful", kind="integer", wide=True)
        return column("Kind", ".kind"), *super().columns(desired, successful, *more)

    def reserved_for(self, spec: Fields) -> frozenset[str]:
        return frozenset() if spec.raw("jobMode") == LOCAL else self.reserved

    def spec_of(self, manifest: Custom, spec: Fields, roles: tuple[RoleSpec, ...]) -> JobSpec:
        parsed = super().spec_of(manifest, spec, roles)
        if not spec.has("jobMode"):
            spec.refuse("NoJobMode", f"write {LOCAL} or {DISTRIBUTED}", "jobMode")
            return parsed
        if spec.choice("jobMode", (LOCAL, DISTRIBUTED), DISTRIBUTED, reason="UnknownJobMode") == LOCAL:
            return self._local(spec, parsed)
        names = {role.name for role in parsed.roles if role.replicas}
        if missing := [kind.name for kind in self.replica_types if kind.role not in names]:
            spec.refuse("NoReplicas", f"a job of mode dist needs {', '.join(missing)} too", self.replica_specs)
        return parsed

    def environment(self, replica: Replica) -> Mapping[str, str]:
        # A single worker has no scheduler, for which MXNet would wait.
        return super().environment(replica) if replica.spec.handling.leader == SCHEDULER else {}

    def status(self, job: Job) -> Document:
        conditions = [condition(known) for known in waiting.conditions(job, milestones=True)[-KEPT_CONDITIONS:]]
        return super().status(job) | {
            "controlPaused": False,
            "conditions": [known | {"transitionTime": known["lastTransitionTime"]} for known in conditions],
            "desired": sum(role.replicas for role in job.spec.roles) if job.spec is not None else 0,
            "successful": successes(job),
        }

    def _local(self, spec: Fields, parsed: JobSpec) -> JobSpec:
        """The worker leads, by the rules of a scheduler."""
        if {role.name: role.replicas for role in parsed.roles} != {WORKER: 1}:
            spec.refuse("NotLocal", NOT_LOCAL, self.replica_specs)
        return msgspec.structs.replace(
            parsed,
            handling=msgspec.structs.replace(self.handling, leader=WORKER),
            roles=tuple(msgspec.structs.replace(role, restart_policy="ExitCode") for role in parsed.roles),
        )


MLKUBE_MXJOB = MxJob()
