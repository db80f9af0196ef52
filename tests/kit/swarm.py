"""A small framework of the tests' own: some bees that start together, and are over when the queen, bee 0, is."""

from collections.abc import Mapping
from typing import Any

import msgspec

from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.replicated import ContainerProperties, Replica, Replicated, ReplicaType
from shared.frameworks.schemas import ANYTHING, Definition, Document
from shared.job.spec import REPLICATED
from shared.job.state import Job


class SwarmJob(Replicated):
    """Bees know the queen by one variable."""

    job_type = "SwarmJob"
    group = "test.muster.dev"
    version = "v1"
    replica_types = (ReplicaType("Bee", least=1),)
    container_properties = ContainerProperties("bee", "bee-port", 2222)
    handling = msgspec.structs.replace(REPLICATED, leader="bee")

    @property
    def definition(self) -> Definition:
        return Definition("A swarm of bees.", ANYTHING)

    def environment(self, replica: Replica) -> Mapping[str, str]:
        return {"QUEEN": replica.hosts("bee")[0]}

    def status(self, job: Job) -> Document:
        return {"state": job.status.phase, "bees": len(job.attempt.slots)}


SWARMJOB = SwarmJob()
SWARMJOBS = SWARMJOB.resource
WITH_SWARMS = Kinds((*BUILT_IN, SWARMJOB))


def a_swarm_job(name: str = "resnet", *, bees: int = 2) -> dict[str, Any]:
    bee = {"spec": {"containers": [{"name": "bee", "image": "bees:1"}]}}
    return {"metadata": {"name": name}, "spec": {"replicaSpecs": {"Bee": {"replicas": bees, "template": bee}}}}
