"""`muster scale`: ask for a size; it creates the ScaleOut or ScaleIn and says how it went."""

from typing import Any

import typer

from muster.following import follow, label, phase_of, status_of
from muster.jobs import must_not_be_over, must_not_pause, the_job
from muster.targets import Target, fail
from shared.cluster import Cluster
from shared.frameworks.training import SCALEINS, SCALEOUTS


async def to(cluster: Cluster, target: Target, namespace: str, size: int, *, wait: bool, timeout: int) -> None:
    """Bring a job to `size` workers."""
    job = await the_job(cluster, target, namespace, "scaled")
    must_not_be_over(job, target, "scaled")
    must_not_pause(job, target)
    now = len(status_of(job).get("targetWorkers") or ())
    if not now:
        raise fail(f"TrainingJob {namespace}/{target.name} has no workers yet; scale it once it runs")
    if size == now:
        typer.echo(f"{label(target)} has {now} workers already")
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
    typer.echo(f"{label(request)} created: {now} -> {size} workers")
    if wait:
        await follow(cluster, request, made, _scaled, timeout=timeout)


def _scaled(status: dict[str, Any]) -> bool | None:
    return {"ScaleSucceeded": True, "ScaleFailed": False}.get(phase_of(status))
