"""The TensorFlow example of dl-operator, for the same manifests."""

import json

from muster.frameworks import REPLICATED, ContainerProperties, MpbaJob, Replica, ReplicaType


class TFJob(MpbaJob):
    """TensorFlow: parameter servers and workers, which know all of them."""

    job_type = "TFJob"
    replica_types = (ReplicaType("PS"), ReplicaType("WORKER", least=1))
    container_properties = ContainerProperties(port_name="dlport0", port=2222)
    handling = REPLICATED
    reserved = frozenset({"TF_CONFIG"})

    def environment(self, replica: Replica) -> dict[str, str]:
        cluster = {role.name: replica.hosts(role.name) for role in replica.spec.roles}
        task = {"type": replica.role, "index": replica.index}
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
