"""`muster scale`: ask for a size, by a ScaleOut or ScaleIn if the kind has them, and print the outcome."""

from typing import Any

from muster.following import Answer, Change, carried_out, status_of
from muster.jobs import OVER, PAUSED, must_not_be_over, must_not_pause, patch_at, patched, the_job, value_at
from muster.runtimes import with_runtime
from shared.cluster import Cluster
from shared.cluster.objects import Custom
from shared.errors import Refused
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.schemas import Scale
from shared.job.spec import JobSpec
from shared.job.text import counted
from shared.telling.targets import Asked, Target


async def to(cluster: Cluster, asked: Asked, namespace: str, size: int, *, wait: bool, timeout: int) -> None:
    """Scale a job to `size` workers, and print the outcome."""
    await carried_out(cluster, await ask_for(cluster, asked, namespace, size), wait=wait, timeout=timeout)


async def ask_for(cluster: Cluster, asked: Asked, namespace: str, size: int) -> Change:
    """Ask for `size` workers.  Raises `Refused` for a job that cannot have them."""
    target, job = await the_job(cluster, asked, namespace, "scaled")
    assert target.framework is not None, target
    scale, spec = _elastic(await with_runtime(cluster, target.framework, job), target)
    must_not_be_over(job, target, "scaled")
    must_not_pause(job, target)
    if spec is not None:
        _must_be_within_bounds(target, spec, size)
    if target.has_requests:
        return await _by_request(cluster, target, job, size)
    assert scale is not None, target
    if spec is None:
        words = f"{target.label} is not carried out as it is written now; `muster why {target.label}` says why"
        raise Refused(words, reason="Invalid")
    return await _by_field(cluster, target, job, scale, spec.worker.replicas, size)


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
    return Change(request, f"{request.label} created: {now} -> {counted(size, 'worker')}", made, _scaled(request))


def _scaled(request: Target) -> Answer:
    def answer(status: dict[str, Any]) -> bool | None:
        return {"ScaleSucceeded": True, "ScaleFailed": False}.get(request.phase(status))

    return answer


async def _by_field(cluster: Cluster, target: Target, job: Custom, scale: Scale, now: int, size: int) -> Change:
    if now == size and value_at(job, scale.status) == size:
        return Change(target, f"{target.label} has {counted(size, 'worker')} already")
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
