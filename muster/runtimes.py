"""Reads the runtime that a job names, for commands that need the job's spec."""

from shared.cluster import Cluster
from shared.cluster.objects import Custom
from shared.frameworks.framework import Framework
from shared.frameworks.runtimes import joined, read


async def with_runtime(cluster: Cluster, framework: Framework, job: Custom) -> Custom:
    """The job's resource joined with its runtime as it is now; unchanged for a kind without runtimes."""
    reference = framework.refers_to(job)
    if reference is None:
        return job
    found = await cluster.get(reference.resource, reference.namespace, reference.name)
    return joined(job, read(reference.resource, found) if found is not None else None)
