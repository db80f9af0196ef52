"""`muster scale`, `suspend`, `resume` and `restart`: ask for a change of a job.

A size is asked for by a ScaleOut or a ScaleIn if the kind has them.  A new attempt has the same size.
"""

import asyncio
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from muster.following import LASTING_SECONDS, Answer, Change, by_phase, condition_of, older, status_of
from muster.jobs import (
    OVER,
    PAUSED,
    is_switched_off,
    must_not_be_over,
    must_not_pause,
    objects,
    of_workload,
    patch_at,
    patched,
    queue_of,
    suspend_annotation,
    suspend_field,
    switch,
    the_job,
    value_at,
    wants_pause,
    with_runtime,
    workload_of,
)
from shared.cluster import Cluster
from shared.cluster.objects import Custom
from shared.errors import Refused
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS, selected
from shared.frameworks.schemas import Scale
from shared.job.naming import RESTART
from shared.job.spec import JobSpec, RoleSpec
from shared.job.text import counted
from shared.telling.targets import Asked, Target

RUNS = ("Running", "Scaling")
_SCALED = {"ScaleSucceeded": True, "ScaleFailed": False}
# A job may end before the pause begins.
_SUSPENDED = {"Suspended": True, "Succeeded": False, "Failed": False}
_RESUMED = {"Running": True, "Scaling": True, "Succeeded": True, "Failed": False}


async def ask_for(cluster: Cluster, asked: Asked, namespace: str, size: int) -> Change:
    """Ask for `size` workers.  Raises `Refused` for a job that cannot have them."""
    target, job = await the_job(cluster, asked, namespace, "scaled")
    assert target.framework is not None, target
    scale, spec = _elastic(await with_runtime(cluster, target.framework, job), target)
    must_not_be_over(job, target, "scaled")
    must_not_pause(job, target)
    if spec is not None:
        _must_be_within_bounds(target, spec, size)
    if target.has_requests and (earlier := await _unfinished(cluster, target, job)) is not None:
        # It may fail: the size from which another one would count is not known before its end.
        words = f"{target.label} has a request that is not over, {earlier.label}: wait for its end, or delete it first"
        raise Refused(words, reason="Invalid")
    if target.has_requests and (scale is None or spec is None or not _is_changing(target, job, scale, spec, size)):
        return await _by_request(cluster, target, job, size)
    assert scale is not None, target
    if spec is None:
        words = f"{target.label} is not carried out as it is written now; `muster why {target.label}` says why"
        raise Refused(words, reason="Invalid")
    return await _by_field(cluster, target, job, scale, spec.worker, size)


def _elastic(job: Custom, target: Target) -> tuple[Scale | None, JobSpec | None]:
    """The path of the job's size, which a kind with requests does not need; and its spec, unless that has problems.

    Raises `Refused` if its size is fixed.
    """
    assert target.framework is not None, target
    described, parsed = target.framework.definition, target.framework.parse(job)
    spec = parsed if isinstance(parsed, JobSpec) else None
    if spec is not None and not spec.handling.elastic:
        raise Refused(f"{target.label} cannot be scaled: it is not elastic, its size is fixed", reason="Invalid")
    scale = described.scale if described is not None else None
    if scale is None and not target.has_requests:
        raise Refused(f"{target.label} cannot be scaled: a {target.resource.kind} has a fixed size", reason="Invalid")
    return scale, spec


def _must_be_within_bounds(target: Target, spec: JobSpec, size: int) -> None:
    """Raise `Refused` for a size out of the job's bounds, because the request would fail."""
    worker = spec.worker
    if size < worker.least or (worker.max_replicas is not None and size > worker.max_replicas):
        most = f" to {worker.max_replicas}" if worker.max_replicas is not None else " or more"
        # The pods of every other kind were told of its bounds.
        when = "change its bounds first" if target.has_requests else "its bounds can be changed while it is suspended"
        words = f"{target.label} has {worker.least}{most} workers, and not {size}: {when}"
        raise Refused(words, reason="Invalid")


async def _by_request(cluster: Cluster, target: Target, job: Custom, size: int) -> Change:
    namespace = job.metadata.namespace
    now = len(status_of(job).get("targetWorkers") or ())
    if not now:
        words = f"{target.resource.kind} {namespace}/{target.name} has no workers yet; scale it once it runs"
        raise Refused(words, reason="Invalid")
    if size == now:
        return Change(target, f"{target.label} has {counted(now, 'worker')} already")
    resource = SCALEOUTS if size > now else SCALEINS
    count = {"count": abs(size - now)}
    manifest = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"generateName": f"{target.name}-", "namespace": namespace},
        "spec": {"selector": {"name": target.name}} | ({"toAdd": count} if size > now else {"toDelete": count}),
    }
    made = await cluster.create(resource, namespace, manifest)
    request = Target(resource, made.metadata.name)
    return Change(
        request, f"{request.label} created: {now} -> {counted(size, 'worker')}", made, by_phase(request, _SCALED)
    )


async def _unfinished(cluster: Cluster, target: Target, job: Custom) -> Target | None:
    """A request for the job that is not over; None without one, and without the right to list requests."""
    for resource in (SCALEOUTS, SCALEINS):
        try:
            requests = await objects(cluster, resource, job.metadata.namespace)
        except Refused as refusal:
            if refusal.reason != "Forbidden":
                raise
            continue
        for request in requests or ():
            known = Target(resource, request.metadata.name)
            if selected(request) == target.name and known.phase(status_of(request)) not in _SCALED:
                return known
    return None


def _is_changing(target: Target, job: Custom, scale: Scale, spec: JobSpec, size: int) -> bool:
    """True while an edit of the spec is on its way: a request would count from a size that the job may not keep."""
    status, asked = status_of(job), spec.worker.replicas
    # Into a spec without a size nothing writes the one that a request led to: the two differ for good.
    waits = spec.worker.written and asked != size and value_at(job, scale.status) not in (None, asked)
    return waits or target.phase(status) == "Scaling" or older(status, job)


async def _by_field(cluster: Cluster, target: Target, job: Custom, scale: Scale, worker: RoleSpec, size: int) -> Change:
    status, now = status_of(job), worker.replicas
    scales = target.phase(status) == "Scaling"
    if now == size and value_at(job, scale.status) == size and not scales:
        return Change(target, f"{target.label} has {counted(size, 'worker')} already")
    if scales and target.has_requests:
        # A request that this person may not list changes the job, and not its spec.
        by_request = now == size != len(status.get("targetWorkers") or ())
        if by_request or not worker.written:
            words = f"{target.label} is scaling: wait until it is Running, then ask for {counted(size, 'worker')}"
            raise Refused(words, reason="Invalid")
    job = await patched(cluster, target, job, patch_at(scale.spec, size))
    said = f"{target.label} asked for {counted(size, 'worker')} instead of {now}"
    return Change(target, said, job, _has_size(target, scale, size))


def _has_size(target: Target, scale: Scale, size: int) -> Answer:
    def answer(status: dict[str, Any]) -> bool | None:
        phase = target.phase(status)
        if phase in (*OVER, *PAUSED):
            return False
        there = value_at(Custom(status=status), scale.status) == size
        return True if there and phase == "Running" else None

    return answer


async def ask_to_suspend(cluster: Cluster, asked: Asked, namespace: str) -> Change:
    """Ask for a pause.  Raises `Refused` for a job that cannot pause."""
    target, job = await the_job(cluster, asked, namespace, "suspended")
    path = _path(target, "suspended")
    must_not_be_over(job, target, "suspended")
    workload = await _workload(cluster, job)
    if workload is not None and not is_switched_off(workload):
        # Kueue would resume the job at once, and keep its quota.
        await switch(cluster, workload, active=False)
        said = f"{target.label} asked to suspend, in queue {queue_of(job)}"
    elif wants_pause(job, target):
        if target.phase(status_of(job)) == "Suspended" and not older(status_of(job), job):
            return Change(target, f"{target.label} is suspended already")
        said = f"{target.label} is asked to suspend already"
    else:
        job = await patched(cluster, target, job, patch_at(path, True))
        if value_at(job, path) is not True:
            # Older definitions do not declare the field, and drop it.
            job = await _annotated(cluster, target, job)
        said = f"{target.label} asked to suspend"
    return Change(target, said, job, by_phase(target, _SUSPENDED), _lasting(job))


async def ask_to_resume(cluster: Cluster, asked: Asked, namespace: str) -> Change:
    """Ask for the end of the pause.  Raises `Refused` for a job that cannot pause."""
    target, job = await the_job(cluster, asked, namespace, "resumed")
    path = _path(target, "resumed")
    must_not_be_over(job, target, "resumed")
    phase = target.phase(status_of(job))
    workload = await _workload(cluster, job)
    paused = wants_pause(job, target) or phase in PAUSED
    if workload is not None and (paused or is_switched_off(workload)):
        # Kueue alone resumes a job that is in a queue.
        if is_switched_off(workload):
            await switch(cluster, workload, active=True)
            said = f"{target.label} asked to resume, in queue {queue_of(job)}"
        else:
            said = f"{target.label} {of_workload(queue_of(job), workload)}"
    elif wants_pause(job, target):
        patch: dict[str, Any] = {}
        if suspend_field(job, target) is True:
            patch |= patch_at(path, False)
        if (annotation := suspend_annotation(target)) in (job.metadata.annotations or {}):
            patch["metadata"] = {"annotations": {annotation: None}}
        job = await patched(cluster, target, job, patch)
        said = f"{target.label} asked to resume"
    elif phase in PAUSED or older(status_of(job), job):
        said = f"{target.label} is asked to run already"
    else:
        return Change(target, f"{target.label} is not suspended; it is {phase or 'not admitted yet'}")
    return Change(target, said, job, by_phase(target, _RESUMED), _lasting(job))


async def _workload(cluster: Cluster, job: Custom) -> Custom | None:
    """The Workload of a job that is in a queue of Kueue; None for any other job."""
    return await workload_of(cluster, job) if queue_of(job) else None


def _path(target: Target, done: str) -> str:
    """The path of the field that asks for a pause.  Raises `Refused` if the kind has none."""
    path = target.framework.definition.suspend if target.framework is not None else ""
    if not path:
        words = f"{target.label} cannot be {done}: a {target.resource.kind} has no field that asks for a pause"
        raise Refused(words, reason="Invalid")
    return path


async def _annotated(cluster: Cluster, target: Target, job: Custom) -> Custom:
    """The job after the wish was written as an annotation."""
    if not (annotation := suspend_annotation(target)):
        raise Refused(
            f"{target.label} cannot be suspended: the definition of {target.resource.kind} here drops the field for "
            "it; `muster crds | kubectl apply -f -` installs one that has it",
            reason="Invalid",
        )
    return await patched(cluster, target, job, {"metadata": {"annotations": {annotation: "true"}}})


def _lasting(job: Custom) -> float:
    # A change of the spec has a new generation, which the status names later; a change of an annotation has none.
    return 0.0 if older(status_of(job), job) else LASTING_SECONDS


def new_value() -> str:
    """A value that the restart annotation never had: the time, and random letters for two requests in one second."""
    return f"{this_second()}-{secrets.token_hex(4)}"


def this_second() -> str:
    """The present time in whole seconds, as a status writes it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


async def ask_to_restart(
    cluster: Cluster, asked: Asked, namespace: str, *, wait: bool, value: Callable[[], str] = new_value
) -> Change:
    """Ask for a new attempt, and with `wait` so that it can be told from the one before.

    Raises `Refused` for a job that does not run.
    """
    target, job = await the_job(cluster, asked, namespace, "restarted")
    must_not_be_over(job, target, "restarted")
    must_not_pause(job, target)
    if not target.phase(status_of(job)):
        words = f"{target.label} has not been admitted yet, there is nothing to restart; `muster why` says why"
        raise Refused(words, reason="Invalid")
    if wait and _since(status_of(job), "Running") == this_second():
        # Times are whole seconds: two attempts that begin within one second look the same.
        await asyncio.sleep(1)
    job = await patched(cluster, target, job, {"metadata": {"annotations": {RESTART: value()}}})
    said, before = f"{target.label} asked to restart", status_of(job)
    if wait and "conditions" not in before:
        hint = f"its status does not say when an attempt began; `muster history {target.label} --follow` does"
        return Change(target, f"{said}\n{hint}")
    # The status shows the restart of a running attempt.  For a job that never ran it shows none, so an attempt that
    # stays Running for `LASTING_SECONDS` counts as the new one.
    ran = target.phase(before) in RUNS
    answer = _begun_again(target, before if ran else {})
    return Change(target, said, job, answer, 0.0 if ran else LASTING_SECONDS)


def _begun_again(target: Target, before: dict[str, Any]) -> Answer:
    """The answer: done once the status shows another attempt than the one `before`."""

    def answer(status: dict[str, Any]) -> bool | None:
        phase = target.phase(status)
        if phase in RUNS:
            # The phase Restarting may begin and end between two reads.
            return _since(status, "Running") != _since(before, "Running") or None
        if phase == "Succeeded":
            return not before or _since(status, "Restarting") != _since(before, "Restarting")
        # Suspending cancels the restart.
        return False if phase in ("Failed", *PAUSED) else None

    return answer


def _since(status: dict[str, Any], kind: str) -> object:
    """The last transition of a condition; None without such a condition."""
    return condition_of(status, kind).get("lastTransitionTime")
