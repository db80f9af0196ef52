"""Finds, lists and patches jobs in the cluster, for the commands that change one: also joined with their runtimes.

The label `kueue.x-k8s.io/queue-name` of a job names its queue of Kueue, whose Workload decides when the job runs.
Kueue suspends and resumes such a job, so a person's pause goes to the Workload.  All is read and written with the
rights of the person who asks; no service does.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from muster.following import condition_of, status_of
from shared.cluster import Alive, Blind, Cluster, Resource, Snapshot
from shared.cluster.objects import Custom, Object
from shared.errors import Conflict, Refused, Transient
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import Kinds
from shared.frameworks.queueing import JOB_UID, QUEUE, WORKLOADS
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


def queue_of(job: Custom) -> str:
    """The name of the job's queue; empty if it is in none."""
    return (job.metadata.labels or {}).get(QUEUE, "")


async def workload_of(cluster: Cluster, job: Custom) -> Custom | None:
    """The job's Workload that is not over: the newest with quota, before a larger one that waits; None without one.

    Raises `Refused` without the right to list Workloads.
    """
    return _going(await _workloads(cluster, job) or ())


async def _workloads(cluster: Cluster, job: Custom) -> tuple[Custom, ...] | None:
    """The job's Workloads; None if the cluster has no definition of them."""
    return await objects(cluster, WORKLOADS, job.metadata.namespace, f"{JOB_UID}={job.metadata.uid}")


def _going(workloads: Iterable[Custom]) -> Custom | None:
    going = [known for known in workloads if not _condition(known, "Finished")]
    return max(
        going,
        key=lambda known: (bool(_condition(known, "QuotaReserved")), known.metadata.creation_timestamp or ""),
        default=None,
    )


async def switch(cluster: Cluster, workload: Custom, *, active: bool) -> None:
    """Have Kueue take the job's quota back, or queue it again."""
    meta = workload.metadata
    patch = {"spec": {"active": active}, "metadata": {"uid": meta.uid}}
    await cluster.patch(WORKLOADS, meta.namespace, meta.name, patch)


def is_switched_off(workload: Custom) -> bool:
    return value_at(workload, ".spec.active") is False


def _condition(workload: Custom, kind: str, status: str = "True") -> dict[str, Any]:
    """The Workload's condition of that type, if it has this status; empty otherwise."""
    found = condition_of(status_of(workload), kind)
    return found if found.get("status") == status else {}


async def waits(cluster: Cluster, target: Target, job: Custom) -> str:
    """What a suspended job in a queue waits for, in one line; empty for any other job."""
    queue, asked = queue_of(job), wants_pause(job, target)
    if not queue or not (asked or target.phase(status_of(job)) in PAUSED):
        return ""
    try:
        workloads = await _workloads(cluster, job)
    except (Refused, Transient) as trouble:
        return f"it is in queue {queue}, and what it waits for there is in its Workload: {trouble}"
    if (workload := _going(workloads or ())) is not None:
        return of_workload(queue, workload)
    return without_workload(queue, target, asked=asked, defined=workloads is not None)


def without_workload(queue: str, target: Target, *, asked: bool, defined: bool) -> str:
    """What a suspended job without a Workload waits for; `asked` if its own spec asks for the pause.

    `defined` is False where Kueue's definitions are not installed.
    """
    ours = target.framework is not None and target.framework.is_queued
    if not defined and not (ours and asked):
        again = "" if ours else " and resume it"
        return (
            f"it is in queue {queue}, and Kueue's definitions are not there: install Kueue, "
            f"or take the label {QUEUE} off{again}"
        )
    if not ours:
        kind = f"{target.resource.kind}.{target.resource.version}.{target.resource.group}"
        return f"it is in queue {queue} and has no Workload: see that Kueue runs, and that it knows {kind}"
    if asked:
        # Kueue does not write into such a job.
        return f"a person suspended it, which gave its place in queue {queue} up"
    return f"it is in queue {queue} and has no Workload: see that Kueue runs and MUSTER_KUEUE is true"


def of_workload(queue: str, workload: Custom) -> str:
    """What a Workload in this queue waits for."""
    if is_switched_off(workload):
        return f"a person suspended it in queue {queue} (spec.active of Workload {workload.metadata.name} is false)"
    if _condition(workload, "Admitted"):
        return f"queue {queue} has admitted it, and Kueue is about to resume it"
    if reserved := _condition(workload, "QuotaReserved"):
        return f"it has quota in queue {queue} and waits for its admission checks{_told(reserved)}"
    waiting, evicted = _condition(workload, "QuotaReserved", "False"), _condition(workload, "Evicted")
    before = f"; evicted{_told(evicted)}" if evicted else ""
    since = waiting.get("lastTransitionTime") or workload.metadata.creation_timestamp or ""
    return f"waits for quota in queue {queue} since {since}{_words(waiting)}{before}"


def _told(condition: dict[str, Any]) -> str:
    return f" since {condition.get('lastTransitionTime', '')}{_words(condition)}"


def _words(condition: dict[str, Any]) -> str:
    """Kueue's own message, in one line."""
    words = " ".join(str(condition.get("message") or "").split())
    return f": {words}" if words else ""
