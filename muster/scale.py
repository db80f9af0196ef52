"""`muster scale`: ask for a size, by a ScaleOut or ScaleIn if the kind has them, and print the outcome."""

from typing import Any

import typer

from muster.following import Answer, follow, status_of
from muster.jobs import OVER, PAUSED, must_not_be_over, must_not_pause, patch_at, patched, the_job, value_at
from muster.targets import Asked, Target, fail
from shared.cluster import Cluster
from shared.cluster.objects import Custom
from shared.frameworks.definition import Scale
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.job.spec import JobSpec


async def to(cluster: Cluster, asked: Asked, namespace: str, size: int, *, wait: bool, timeout: int) -> None:
    """Scale a job to `size` workers."""
    target, job = await the_job(cluster, asked, namespace, "scaled")
    scale, spec = _elastic(job, target)
    must_not_be_over(job, target, "scaled")
    must_not_pause(job, target)
    if spec is not None:
        _must_be_within_bounds(target, spec, size)
    if target.has_requests:
        await _by_request(cluster, target, job, size, wait=wait, timeout=timeout)
    elif scale is not None:
        if spec is None:
            raise fail(f"{target.label} is not carried out as it is written now; `muster why {target.label}` says why")
        await _by_field(cluster, target, job, scale, spec.worker.replicas, size, wait=wait, timeout=timeout)


def _elastic(job: Custom, target: Target) -> tuple[Scale | None, JobSpec | None]:
    """The path of the job's size, which a kind with requests does not need; and its spec, unless that has problems.

    Exits with one line if its size is fixed.
    """
    assert target.framework is not None, target
    described, parsed = target.framework.definition, target.framework.parse(job)
    spec = parsed if isinstance(parsed, JobSpec) else None
    if spec is not None and not spec.handling.elastic:
        raise fail(f"{target.label} cannot be scaled: it is not elastic, its size is fixed")
    scale = described.scale if described is not None else None
    if scale is None and not target.has_requests:
        raise fail(f"{target.label} cannot be scaled: a {target.resource.kind} has a fixed size")
    return scale, spec


def _must_be_within_bounds(target: Target, spec: JobSpec, size: int) -> None:
    """Exits with one line for a size out of the job's bounds, because the request would fail."""
    worker = spec.worker
    if size < worker.min_replicas or (worker.max_replicas is not None and size > worker.max_replicas):
        most = f" to {worker.max_replicas}" if worker.max_replicas is not None else " or more"
        raise fail(f"{target.label} has {worker.min_replicas}{most} workers, and not {size}: change its bounds first")


async def _by_request(cluster: Cluster, target: Target, job: Custom, size: int, *, wait: bool, timeout: int) -> None:
    namespace = job.metadata.namespace
    now = len(status_of(job).get("targetWorkers") or ())
    if not now:
        raise fail(f"{target.resource.kind} {namespace}/{target.name} has no workers yet; scale it once it runs")
    if size == now:
        typer.echo(f"{target.label} has {now} workers already")
        return
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
    typer.echo(f"{request.label} created: {now} -> {size} workers")
    if wait:
        await follow(cluster, request, made, _scaled(request), timeout=timeout)


def _scaled(request: Target) -> Answer:
    def answer(status: dict[str, Any]) -> bool | None:
        return {"ScaleSucceeded": True, "ScaleFailed": False}.get(request.phase(status))

    return answer


async def _by_field(
    cluster: Cluster, target: Target, job: Custom, scale: Scale, now: int, size: int, *, wait: bool, timeout: int
) -> None:
    if now == size and value_at(job, scale.status) == size:
        typer.echo(f"{target.label} has {size} workers already")
        return
    job = await patched(cluster, target, job, patch_at(scale.spec, size))
    typer.echo(f"{target.label} asked for {size} workers instead of {now}")
    if wait:
        await follow(cluster, target, job, _has_size(target, scale, size), timeout=timeout)


def _has_size(target: Target, scale: Scale, size: int) -> Answer:
    def answer(status: dict[str, Any]) -> bool | None:
        phase = target.phase(status)
        if phase in (*OVER, *PAUSED):
            return False
        there = value_at(Custom(status=status), scale.status) == size
        return True if there and phase == "Running" else None

    return answer
