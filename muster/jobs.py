"""Functions of the commands that change a job: find it, patch it, refuse one that is over or suspended."""

from collections.abc import Mapping
from typing import Any

from muster.following import status_of
from shared.cluster import Cluster
from shared.cluster.objects import Custom
from shared.errors import Conflict, Refused
from shared.telling.targets import Asked, Target, chosen

OVER = ("Succeeded", "Failed")
PAUSED = ("Suspending", "Suspended")


async def the_job(cluster: Cluster, asked: Asked, namespace: str, done: str) -> tuple[Target, Custom]:
    """The job to be `done` (scaled, suspended).  Raises `Refused` if there is none, or several."""
    if asked.is_request:
        raise Refused(f"only a job can be {done}", reason="Invalid")
    there = await found(cluster, asked, namespace)
    if there is None:
        words = f"no {asked.kind} {namespace}/{asked.name}; -n names another namespace"
        raise Refused(words, reason="NotFound")
    return there


async def found(cluster: Cluster, asked: Asked, namespace: str) -> tuple[Target, Custom] | None:
    """The job of that name; None if there is none.  Raises `Refused` if there are several."""
    jobs: dict[Target, Custom] = {}
    for target in asked.targets:
        versions = target.versions()
        for version in versions:
            only = len(asked.targets) == 1 and version is versions[-1]
            job = await _got(cluster, version, namespace, only=only)
            if job is not None:
                jobs[version] = job
                break
        if target in jobs and target.has_requests:
            # `chosen` prefers this target, so the others need no call.
            break
    meant = chosen(asked, jobs, namespace)
    return (meant, jobs[meant]) if meant is not None else None


async def _got(cluster: Cluster, target: Target, namespace: str, *, only: bool) -> Custom | None:
    try:
        return await cluster.get(target.resource, namespace, target.name)
    except Refused:
        # A kind that is not served, or that this person may not get, has no job of the name.
        if only:
            raise
        return None


def must_not_be_over(job: Custom, target: Target, done: str) -> None:
    """Raise `Refused` if the job is over and cannot be `done`."""
    phase = target.phase(status_of(job))
    if phase in OVER:
        raise Refused(
            f"{target.label} is over ({phase}) and cannot be {done}; delete it and apply it again to run it anew",
            reason="Invalid",
        )


def wants_pause(job: Custom, target: Target) -> bool:
    """True if the resource asks for a pause, by its field or by its annotation."""
    annotated = (job.metadata.annotations or {}).get(suspend_annotation(target)) == "true"
    return suspend_field(job, target) is True or annotated


def suspend_annotation(target: Target) -> str:
    """The annotation that also asks for a pause; empty for a kind without one."""
    return target.framework.definition.suspend_annotation if target.framework is not None else ""


def suspend_field(job: Custom, target: Target) -> object:
    """The value of the field that asks for a pause; None if it is not set, or if the definition drops it."""
    path = target.framework.definition.suspend if target.framework is not None else ""
    return value_at(job, path) if path else None


def must_not_pause(job: Custom, target: Target) -> None:
    """Raise `Refused` if the job is Suspending or Suspended, or asked to be."""
    if wants_pause(job, target) or target.phase(status_of(job)) in PAUSED:
        words = f"{target.label} is suspended, or about to be; `muster resume {target.label}` first"
        raise Refused(words, reason="Invalid")


def value_at(job: Custom, path: str) -> object:
    """The value at a path such as `.spec.suspend`; None if there is none."""
    value: object = {"spec": job.spec, "status": job.status}
    for step in path.strip(".").split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def patch_at(path: str, value: object) -> dict[str, Any]:
    """The merge patch that writes one value at the path."""
    first, _, rest = path.strip(".").partition(".")
    return {first: patch_at(rest, value) if rest else value}


async def patched(cluster: Cluster, target: Target, job: Custom, patch: dict[str, Any]) -> Custom:
    """The job after a merge patch.  Raises `Refused` if another job has its name by now."""
    meta = job.metadata
    guarded = {**patch, "metadata": {**patch.get("metadata", {}), "uid": meta.uid}}
    try:
        return await cluster.patch(target.resource, meta.namespace, meta.name, guarded)
    except Conflict as conflict:
        kind = target.resource.kind
        words = f"{kind} {meta.namespace}/{meta.name} was replaced by another one meanwhile"
        raise Refused(words, reason="NotFound") from conflict
