"""XGBoostJob (`kubeflow.org/v1`): XGBoost's tracker with its workers, or LightGBM's machines.  Pure."""

from collections.abc import Mapping

import msgspec

from shared.frameworks.kubeflow import KubeflowJob, OfTrainingOperator
from shared.frameworks.replicated import ContainerProperties, Replica, ReplicaType
from shared.job.spec import REPLICATED, WORKER

MASTER = "master"


class XGBoostJob(KubeflowJob):
    """A master, whose end is the job's, and workers."""

    job_type = "XGBoostJob"
    description = "An XGBoost or LightGBM job: a master with the tracker, and workers that it brings together."
    replica_specs = "xgbReplicaSpecs"
    replica_types = (ReplicaType("Master", least=1, most=1), ReplicaType("Worker"))
    take_over = OfTrainingOperator(replica_types)
    container_properties = ContainerProperties(name="xgboost", port_name="xgboostjob-port", port=9999)
    handling = msgspec.structs.replace(REPLICATED, leader=MASTER)
    in_every_container = True
    reserved = frozenset({"MASTER_ADDR", "RANK", "WORLD_SIZE", "WORKER_ADDRS"})

    def environment(self, replica: Replica) -> Mapping[str, str]:
        workers = replica.size(WORKER)
        found = {
            "MASTER_PORT": str(replica.ports[MASTER]),
            "MASTER_ADDR": replica.host(MASTER),
            "WORLD_SIZE": str(1 + workers),
            "RANK": str(replica.index + (replica.role == WORKER)),
            "PYTHONUNBUFFERED": "0",
        }
        if not workers:
            return found
        # LightGBM's machines.
        addresses = ",".join(replica.host(WORKER, index) for index in range(workers))
        return found | {"WORKER_PORT": str(replica.ports[WORKER]), "WORKER_ADDRS": addresses}


XGBOOSTJOB = XGBoostJob()
