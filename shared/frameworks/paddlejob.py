"""PaddleJob (`kubeflow.org/v1`): pods of `paddle.distributed.launch`, with parameter servers or without.  Pure."""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from shared.cluster.objects import Custom
from shared.frameworks.framework import PodContext
from shared.frameworks.kubeflow import KubeflowJob, OfTrainingOperator
from shared.frameworks.model import Written, anything
from shared.frameworks.reading import Fields
from shared.frameworks.replicated import ContainerProperties, Replica, ReplicaType
from shared.frameworks.schemas import ANYTHING, Document
from shared.job.naming import Slot
from shared.job.spec import WORKER, Handling, JobSpec, RoleSpec

MASTER = "master"
"""The role of the parameter servers; a job without them trains collectively."""

POD_IP = "POD_IP_DUMMY"
"""Upstream's variable with the address of the pod that the others rendezvous at."""


class _OfPaddle(Written):
    elastic_policy = anything(ANYTHING | {"description": "Kept and not acted upon: the job keeps its first size."})


class PaddleJob(KubeflowJob):
    """Parameter servers and trainers, or trainers alone; the first pod of the leader role is the rendezvous."""

    job_type = "PaddleJob"
    description = "A PaddlePaddle job: parameter servers (Master) and trainers (Worker), or trainers alone."
    replica_specs = "paddleReplicaSpecs"
    replica_types = (
        ReplicaType("Master", restart_policy="OnFailure"),
        ReplicaType("Worker", restart_policy="OnFailure"),
    )
    take_over = OfTrainingOperator(replica_types)
    container_properties = ContainerProperties(name="paddle", port_name="master", port=36543)
    in_every_container = True
    reserved = frozenset({"PADDLE_MASTER", "PADDLE_NNODES"})
    model = _OfPaddle
    ignored_fields: ClassVar[Mapping[str, str]] = {
        **KubeflowJob.ignored_fields,
        "elasticPolicy": "the job keeps the size that it began with; suspend it to change its replicas",
    }

    def handle(self, spec: Fields, roles: tuple[RoleSpec, ...]) -> Handling:
        _OfPaddle(spec)
        names = [role.name for role in roles]
        leader = MASTER if MASTER in names else WORKER
        return msgspec.structs.replace(self.handling, leader=leader, succeeds="All")

    def leads(self, spec: JobSpec, slot: Slot) -> bool:
        # Upstream labels every parameter server as a master, and no trainer.
        return slot.role == MASTER

    def environment(self, replica: Replica) -> Mapping[str, str]:
        leader = replica.spec.handling.leader
        served = leader == MASTER
        # The launcher serves the rendezvous where this is its own address, which it compares with that of its pod.
        host = f"$({POD_IP})" if _meets_here(replica.spec, replica.context.slot) else replica.host(leader)
        count = {"PADDLE_SERVER_NUM" if replica.role == MASTER else "PADDLE_TRAINER_NUM": "1"} if served else {}
        return {
            "PYTHONUNBUFFERED": "0",
            "PADDLE_JOB_ID": replica.context.key.name,
            "PADDLE_NNODES": str(replica.size(MASTER) + replica.size(WORKER)),
            "PADDLE_MASTER": f"{host}:{replica.ports[leader]}",
            **count,
        }

    def pod(self, manifest: Custom, spec: JobSpec, context: PodContext) -> Document:
        pod = super().pod(manifest, spec, context)
        if _meets_here(spec, context.slot):
            # It stands first, because PADDLE_MASTER refers to it.
            address = {"name": POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
            pod["spec"]["containers"] = [
                known | {"env": [address, *known["env"]]} for known in pod["spec"]["containers"]
            ]
        return pod


def _meets_here(spec: JobSpec, slot: Slot) -> bool:
    """True for the pod at which all others rendezvous."""
    return (slot.role, slot.index) == (spec.handling.leader, 0)


PADDLEJOB = PaddleJob()
