"""Finds, lists and patches jobs in the cluster, for the commands that change one: also joined with their runtimes."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from muster.following import status_of
from shared.cluster import Alive, Blind, Cluster, Resource, Snapshot
from shared.cluster.objects import Custom, Object
from shared.errors import Conflict, Refused, Transient
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import Kinds
from shared.frameworks.runtimes import joined, read
from shared.telling.reading import PATIENCE_SECONDS
from shared.telling.targets import Asked, Target, chosen

OVER = ("Succeeded", "Failed")
PAUSED = ("Suspending", "Suspended")
T = TypeVar("T", bound=Object)


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


async def every(cluster: Cluster, kinds: Kinds, namespace: str, selector: str = "") -> list[tuple[Framework, Custom]]:
    """The jobs of all kinds that the cluster serves, each kind in its first served version."""
    found: list[tuple[Framework, Custom]] = []
    for kind in kinds:
        for version in (kind, *kind.others):
            listed = await objects(cluster, version.resource, namespace, selector)
            if listed is not None:
                found += [(version, each) for each in listed]
                break
    return found


async def objects(cluster: Cluster, resource: Resource[T], namespace: str, selector: str = "") -> tuple[T, ...] | None:
    """All objects of a kind in a namespace, or in the whole cluster without one; None if the kind is not served.

    Raises `Refused` without the right to list them, `Transient` if no list comes in time.
    """
    what = f"list {resource.plural} in {namespace or 'the whole cluster'}"
    trouble = "no answer"
    try:
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            aclosing(cluster.watch(resource, namespace=namespace, selector=selector)) as watch,
        ):
            async for seen in watch:
                match seen:
                    case Snapshot(found):
                        return found
                    case Blind("NotFound"):
                        return None
                    case Blind("Forbidden"):
                        raise Refused(f"{what}: forbidden; it needs the right to list them", reason="Forbidden")
                    case Blind(reason):
                        trouble = reason
                    case Alive() | _:
                        continue
    except TimeoutError as late:
        raise Transient(f"{what}: {trouble}") from late
    raise Transient(f"{what}: the client was closed")


async def with_runtime(cluster: Cluster, framework: Framework, job: Custom) -> Custom:
    """The job's resource joined with its runtime as it is now; unchanged for a kind without runtimes."""
    reference = framework.refers_to(job)
    if reference is None:
        return job
    found = await cluster.get(reference.resource, reference.namespace, reference.name)
    return joined(job, read(reference.resource, found) if found is not None else None)
