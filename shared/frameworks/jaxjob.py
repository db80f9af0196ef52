"""JAXJob (`kubeflow.org/v1`): processes of `jax.distributed`, which find each other through worker 0.  Pure."""

from collections.abc import Mapping

import msgspec

from shared.frameworks.kubeflow import KubeflowJob, OfTrainingOperator
from shared.frameworks.replicated import ContainerProperties, Replica, ReplicaType
from shared.job.spec import REPLICATED, WORKER


class JAXJob(KubeflowJob):
    """Workers that begin and end together; the first one is the coordinator."""

    job_type = "JAXJob"
    description = "A JAX job: workers, of which the first one is the coordinator of jax.distributed."
    replica_specs = "jaxReplicaSpecs"
    replica_types = (ReplicaType("Worker", least=1),)
    take_over = OfTrainingOperator(replica_types)
    container_properties = ContainerProperties(name="jax", port_name="jaxjob-port", port=6666)
    handling = msgspec.structs.replace(REPLICATED, succeeds="All")
    in_every_container = True
    reserved = frozenset({"COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID"})

    def environment(self, replica: Replica) -> Mapping[str, str]:
        return {
            "PYTHONUNBUFFERED": "1",
            "COORDINATOR_PORT": str(replica.ports[WORKER]),
            "COORDINATOR_ADDRESS": replica.host(WORKER),
            "NUM_PROCESSES": str(replica.size(WORKER)),
            "PROCESS_ID": str(replica.index),
        }


JAXJOB = JAXJob()
