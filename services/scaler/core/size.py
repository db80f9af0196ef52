"""Writes the size of a job into its resource, where `kubectl scale` and autoscalers read it.  Pure.

A ScaleOut or a ScaleIn changes the size, and the resource's own number would say another one: the next wish for that
number would be no change of the resource, and be lost.  An edit of a person that was not carried out yet stays.
"""

from services.scaler.core.effects import WriteSize
from shared.job.state import Job
from shared.job.steps import Step


def next_steps(job: Job) -> list[Step]:
    """Write the size, unless the resource has it."""
    return [WriteSize(job.scaling.size, job.generation)] if is_awaited(job) else []


def is_awaited(job: Job) -> bool:
    """True until the resource was seen with the size; False while the write is refused, and for kinds without one.

    A request ends, and the next one begins, after that: a client that saw it succeed finds its size in the resource.
    """
    scaling, request = job.scaling, job.scaling.open_request
    if job.spec is None or job.problems or not (job.spec.handling.elastic and job.spec.worker.written):
        return False
    worker = job.spec.worker
    if scaling.size in (0, worker.replicas) or (request is not None and not request.published):
        return False
    if any(known.resize is not None and not known.over for known in scaling.requests.values()):
        # The resource has the size that the newest edit asks for.
        return False
    most = worker.max_replicas
    fits = scaling.size >= worker.least and (most is None or scaling.size <= most)
    return fits and job.may_try("WriteSize")
