"""What the commands that act on a job have in common: finding it, patching it, what is said of one that is over."""

from typing import Any

from muster.following import label, phase_of, status_of
from muster.targets import Target, fail
from shared.cluster import Cluster
from shared.cluster.objects import Custom
from shared.errors import Conflict
from shared.frameworks.training import TRAININGJOBS
from shared.job.naming import SUSPENDED

OVER = ("Succeeded", "Failed")


async def the_job(cluster: Cluster, target: Target, namespace: str, done: str) -> Custom:
    """The TrainingJob that is to be `done` (scaled, suspended).  Exits with one line when there is none."""
    if target.resource is not TRAININGJOBS:
        raise fail(f"only a TrainingJob can be {done}")
    job = await cluster.get(TRAININGJOBS, namespace, target.name)
    if job is None:
        raise fail(f"no TrainingJob {namespace}/{target.name}; -n names another namespace")
    return job


def must_not_be_over(job: Custom, target: Target, done: str) -> None:
    """Exits with one line when nothing is left of the job that could be `done`."""
    phase = phase_of(status_of(job))
    if phase in OVER:
        raise fail(
            f"{label(target)} is over ({phase}) and cannot be {done}; delete it and apply it again to run it anew"
        )


def wants_pause(job: Custom) -> bool:
    """Somebody asks for a pause, whether it has begun or not."""
    return suspend_field(job) is True or (job.metadata.annotations or {}).get(SUSPENDED) == "true"


def suspend_field(job: Custom) -> object:
    """`spec.suspend`; None where it is not set, or where definitions of et-operator dropped it."""
    return job.spec.get("suspend") if isinstance(job.spec, dict) else None


def must_not_pause(job: Custom, target: Target) -> None:
    """Exits with one line when the job is Suspended, or asked to be."""
    if wants_pause(job) or phase_of(status_of(job)) == "Suspended":
        raise fail(f"{label(target)} is suspended, or about to be; `muster resume {label(target)}` first")


async def patched(cluster: Cluster, job: Custom, patch: dict[str, Any]) -> Custom:
    """The job after a merge patch, if it is still the same one.  Exits with one line when it is not."""
    meta = job.metadata
    guarded = {**patch, "metadata": {**patch.get("metadata", {}), "uid": meta.uid}}
    try:
        return await cluster.patch(TRAININGJOBS, meta.namespace, meta.name, guarded)
    except Conflict as conflict:
        raise fail(f"TrainingJob {meta.namespace}/{meta.name} was replaced by another one meanwhile") from conflict
