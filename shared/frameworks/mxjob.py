"""MXJob (`kubeflow.org/v1`): MXNet jobs of the training operator until 1.8, for training and for tuning."""

import json
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from shared.cluster.objects import Custom
from shared.frameworks.kubeflow import KubeflowJob, OfTrainingOperator, is_type
from shared.frameworks.model import Written, choice
from shared.frameworks.mxnet import RESERVED, SCHEDULER, SERVER, dmlc_environment
from shared.frameworks.reading import Fields
from shared.frameworks.replicated import ContainerProperties, Replica, ReplicaType
from shared.frameworks.schemas import TEXT, Document, rule
from shared.job.naming import Slot
from shared.job.spec import WORKER, Handling, JobSpec, RoleSpec
from shared.untrusted import at

TRAIN = "MXTrain"
TUNE = "MXTune"
TUNER = "tuner"

NO_TUNER = "a job of mode MXTune ends with its Tuner: add one"
NO_SCHEDULER = "add a Scheduler with one replica: the job ends with it"

CONFIG = "MX_CONFIG"
WORKER_ID = "DMLC_WORKER_ID"
"""The variable that distinguishes the workers of BytePS."""

TUNER_SERVER_KEY = "tuner-server-key"
"""An annotation of a template: TVM's tuner finds the servers with its device by this value."""


class _OfMXNet(Written):
    job_mode = choice((TRAIN, TUNE), TRAIN, "UnknownJobMode", empty=True)


class MXJob(KubeflowJob):
    """A scheduler with servers and workers, or a tracker and servers for a tuner."""

    job_type = "MXJob"
    description = "An MXNet job: scheduler, servers and workers train; a tuner tunes with its tracker and servers."
    replica_specs = "mxReplicaSpecs"
    replica_types = (
        ReplicaType("Scheduler", most=1),
        ReplicaType("Server"),
        ReplicaType("Worker"),
        ReplicaType("TunerTracker"),
        ReplicaType("TunerServer"),
        ReplicaType("Tuner"),
    )
    take_over = OfTrainingOperator(replica_types)
    container_properties = ContainerProperties(name="mxnet", port_name="mxjob-port", port=9091)
    reserved = RESERVED | {CONFIG, WORKER_ID}
    model = _OfMXNet
    told = ("jobMode",)
    replica_fields: ClassVar[Document] = {"label": TEXT}

    def rules_of_spec(self) -> tuple[Document, ...]:
        specs = f"self.{self.replica_specs}"
        tunes = f"(has(self.jobMode) && self.jobMode == '{TUNE}')"
        unused = f"(has({specs}[name].replicas) && {specs}[name].replicas == 0)"
        workers = f"{specs}.all(name, {is_type(WORKER)} || {unused})"
        return (
            rule(f"!{tunes} || {specs}.exists(name, {is_type(TUNER)})", NO_TUNER, field=f".{self.replica_specs}"),
            rule(
                f"{tunes} || {workers} || {specs}.exists(name, {is_type(SCHEDULER)})",
                NO_SCHEDULER,
                field=f".{self.replica_specs}",
            ),
        )

    def handle(self, spec: Fields, roles: tuple[RoleSpec, ...]) -> Handling:
        present = {role.name for role in roles if role.replicas}
        if _OfMXNet(spec).job_mode == TUNE:
            leader = TUNER
            if TUNER not in present:
                spec.refuse("NoReplicas", NO_TUNER, self.replica_specs)
        else:
            # Workers can train without servers, and then need no scheduler.
            leader = WORKER if present == {WORKER} else SCHEDULER
            if leader == SCHEDULER and SCHEDULER not in present:
                spec.refuse("NoScheduler", NO_SCHEDULER, self.replica_specs)
        specs = spec.part(self.replica_specs)
        for entry in specs.names():
            if entry.lower() in {role.name for role in roles}:
                specs.part(entry).text("label")
        return msgspec.structs.replace(self.handling, leader=leader, succeeds="All", winds_down=leader == SCHEDULER)

    def leads(self, spec: JobSpec, slot: Slot) -> bool:
        # Upstream labels every server as a master.
        return slot.role == SERVER

    def environment(self, replica: Replica) -> Mapping[str, str]:
        cluster = {
            role.name: [
                {"url": replica.host(role.name, index), "port": replica.ports[role.name]}
                for index in range(replica.size(role.name))
            ]
            for role in replica.spec.roles
        }
        config = {
            "cluster": cluster,
            "labels": {role.name: self._label(replica.job, role.name) for role in replica.spec.roles},
            "task": {"type": replica.role, "index": replica.index},
        }
        own = {WORKER_ID: str(replica.index)} if replica.role == WORKER else {}
        return {CONFIG: json.dumps(config), **dmlc_environment(replica), **own}

    def _label(self, manifest: Custom, role: str) -> str:
        """The type's annotation; before mxnet-operator joined the training operator it was the field `label`."""
        _, fields = self.entry(manifest, role)
        annotation = at(fields, "template", "metadata", "annotations", TUNER_SERVER_KEY)
        return str(annotation or fields.get("label") or "")


MXJOB = MXJob()
