"""MXJob (`fioravanzo.org/v1alpha1`): MXNet jobs of mx-operator."""

from collections.abc import Mapping
from types import MappingProxyType

from shared.cluster.objects import Custom
from shared.frameworks.framework import PodContext
from shared.frameworks.mxnet import RUNTIME_ID, SCHEDULER, WithRuntimeId, entries_schema, template_policy
from shared.frameworks.reading import Fields
from shared.frameworks.replicated import ContainerProperties, ReplicaType
from shared.frameworks.schemas import TEXT, Document, number
from shared.job.naming import JobKey, Slot
from shared.job.spec import JobSpec, Problem, RestartPolicy, RoleSpec


class FioravanzoMXJob(WithRuntimeId):
    """A scheduler, servers and workers; the pods stay after the end."""

    job_type = "MXJob"
    group = "fioravanzo.org"
    version = "v1alpha1"
    default_type = "SCHEDULER"
    port_field = "mxPort"
    container_properties = ContainerProperties(name="mxnet", port_name="mx-port", port=9000)
    clean_pod_policy = "None"
    replica_types = (
        ReplicaType("SCHEDULER", least=1, most=1, restart_policy="ExitCode"),
        ReplicaType("SERVER", restart_policy="Always"),
        ReplicaType("WORKER", restart_policy="Always"),
    )
    counted = 40
    description = "An MXNet job: a scheduler, and servers and workers that it brings together."
    longest_name = 63
    """Characters; the name is also the value of a label."""
    selected = "mx_replica_type"
    waiting = "Unknown"
    announcements = MappingProxyType({"WorkersCreated": "SuccessfulCreate", "Refused": "FailedCreate"})

    def spec_schema(self) -> Document:
        chief = {"type": "object", "properties": {"replicaName": TEXT, "replicaIndex": number()}}
        return {
            "type": "object",
            "required": [self.replica_specs],
            "properties": {
                "RuntimeId": RUNTIME_ID,
                self.replica_specs: entries_schema(self),
                "mxImage": TEXT,
                "schedulerName": TEXT,
                "terminationPolicy": {"type": "object", "properties": {"chief": chief}},
            },
        }

    def restart_policy(self, kind: ReplicaType, fields: Fields) -> RestartPolicy:
        """Servers and workers restart when they exit: with their template's OnFailure or Never not after 0.

        mx-operator left this to the kubelet, but for failed pods, which it replaced itself.
        """
        theirs = template_policy(fields)
        return "OnFailure" if kind.role != SCHEDULER and theirs in ("OnFailure", "Never") else kind.restart_policy

    def spec_of(self, manifest: Custom, spec: Fields, roles: tuple[RoleSpec, ...]) -> JobSpec:
        spec.text("mxImage")
        spec.text("schedulerName")
        chief = spec.part("terminationPolicy").part("chief")
        name, index = chief.text("replicaName"), chief.integer("replicaIndex", least=0)
        if name not in ("", SCHEDULER.upper()) or index:
            chief.refuse("UnsupportedChief", "leave it out: the end of the SCHEDULER, replica 0, is the job's")
        spec.ignore_all({"mxImage": "write the image into the pod templates"})
        return super().spec_of(manifest, spec, roles)

    def _check_names(self, manifest: Custom, roles: tuple[RoleSpec, ...], problems: list[Problem]) -> None:
        super()._check_names(manifest, roles, problems)
        if len(manifest.metadata.name) > self.longest_name:
            message = f"create the job again under a name of at most {self.longest_name} characters: a label holds it"
            problems.append(Problem(reason="InvalidName", field="metadata.name", message=message))

    def pod(self, manifest: Custom, spec: JobSpec, context: PodContext) -> Document:
        pod = super().pod(manifest, spec, context)
        wanted = manifest.spec.get("schedulerName")
        if wanted and not pod["spec"].get("schedulerName"):
            pod["spec"]["schedulerName"] = wanted
        return pod

    def task_labels(self, manifest: Custom, key: JobKey, slot: Slot) -> Mapping[str, str]:
        return {**super().task_labels(manifest, key, slot), "mx_job_name": key.name}


FIORAVANZO_MXJOB = FioravanzoMXJob()
