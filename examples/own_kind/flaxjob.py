"""A kind of your own, complete: FlaxJob."""

from muster.frameworks import ContainerProperties, KubeflowJob, Replica, ReplicaType


class FlaxJob(KubeflowJob):
    """Flax: processes of JAX that find each other through worker 0."""

    job_type = "FlaxJob"
    description = "A Flax job: some workers, of which the first one is the coordinator."
    replica_specs = "flaxReplicaSpecs"
    replica_types = (ReplicaType("Worker", least=1),)
    container_properties = ContainerProperties(name="flax", port_name="flaxjob-port", port=6666)
    reserved = frozenset({"COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID"})

    def environment(self, replica: Replica) -> dict[str, str]:
        return {
            "COORDINATOR_ADDRESS": replica.hosts("worker")[0],
            "NUM_PROCESSES": str(replica.size("worker")),
            "PROCESS_ID": str(replica.index),
        }
