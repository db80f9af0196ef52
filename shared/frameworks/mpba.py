"""MXJob (`mpba.fbk.eu/v1`): MXNet jobs of dl-operator; the spec is the list of replicas."""

from collections.abc import Mapping
from typing import ClassVar

from shared.cluster.objects import Custom
from shared.frameworks.mxnet import SCHEDULER, ParameterServer, entries_schema, template_policy
from shared.frameworks.reading import LONGEST_POD_NAME, Fields
from shared.frameworks.replicated import ContainerProperties, ReplicaType
from shared.frameworks.schemas import TIME, Document
from shared.frameworks.statuses import whole_seconds
from shared.job.naming import JobKey, Slot
from shared.job.spec import Problem, RestartPolicy
from shared.job.state import Job


class MpbaJob(ParameterServer):
    """The common base of the kinds of this group."""

    group = "mpba.fbk.eu"
    version = "v1"
    replica_specs = "spec"
    type_field = "replicaType"
    leading_digit = True

    description = "A training job; its spec is a list with an entry for each type of replicas."
    longest_name = LONGEST_POD_NAME - len("server--0")
    selected = type_field
    status_fields: ClassVar[Document] = {"startTime": TIME, "completionTime": TIME}

    def spec_schema(self) -> Document:
        return entries_schema(self, any_case=True)

    def root(self, manifest: Custom, problems: list[Problem]) -> Fields:
        return Fields({"spec": manifest.spec}, "", problems)

    def entries(self, manifest: Custom) -> list[Document]:
        known: list[Document] = manifest.spec
        return known

    def stem(self, manifest: Custom, kind: ReplicaType) -> str:
        return f"{kind.role}-{manifest.metadata.name}-"

    def restart_policy(self, kind: ReplicaType, fields: Fields) -> RestartPolicy:
        """The template's restartPolicy holds for the pod; a scheduler's is at least ExitCode."""
        known = template_policy(fields) or kind.restart_policy
        return known if known == "Never" or kind.role != SCHEDULER else kind.restart_policy

    def task_labels(self, manifest: Custom, key: JobKey, slot: Slot) -> Mapping[str, str]:
        name = f"{slot.role}-{key.name}-{slot.index}"
        return {"pod_name": name, "service_name": name, "job_name": key.name}

    def status(self, job: Job) -> Document:
        return super().status(job) | {
            "startTime": whole_seconds(job.status.start_time),
            "completionTime": whole_seconds(job.status.completion_time),
        }

    def _type(self, name: str | None) -> ReplicaType | None:
        return super()._type(name.upper() if name else name)


class MpbaMXJob(MpbaJob):
    """A scheduler, servers and workers; the first container of each trains."""

    job_type = "MXJob"
    container_properties = ContainerProperties(port_name="dlport0", port=9000)


MPBA_MXJOB = MpbaMXJob()
