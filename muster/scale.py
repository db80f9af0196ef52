"""`muster scale`: ask for a size; it creates the ScaleOut or ScaleIn and says how it went."""

import asyncio
import time
from typing import Any

import typer

from muster.reading import open_cluster
from muster.targets import Target, fail
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import Custom
from shared.errors import Transient
from shared.frameworks.training import SCALEINS, SCALEOUTS, TRAININGJOBS
from shared.service.settings import Settings

LOOK_SECONDS = 0.5

PATIENCE_SECONDS = 10.0
"""How long a request may have no phase before we say that nobody seems to work here."""


async def to(target: Target, namespace: str, size: int, settings: Settings, *, wait: bool) -> None:
    """Bring a job to `size` workers."""
    if target.resource is not TRAININGJOBS:
        raise fail("only a TrainingJob can be scaled")
    async with open_cluster(settings) as cluster:
        job = await cluster.get(TRAININGJOBS, namespace, target.name)
        if job is None:
            raise fail(f"no TrainingJob {namespace}/{target.name}")
        now = len(_status(job).get("targetWorkers") or ())
        if not now:
            raise fail(f"TrainingJob {namespace}/{target.name} has no workers yet; scale it once it runs")
        if size == now:
            typer.echo(f"trainingjob/{target.name} has {now} workers already")
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
        name = made.metadata.name
        typer.echo(f"{resource.kind.lower()}/{name} created: {now} -> {size} workers")
        if wait:
            await _follow(cluster, made, Target(resource, name))


async def _follow(cluster: KubeCluster, made: Custom, target: Target) -> None:
    """Print each phase until the request is done; exit code 1 when it failed."""
    shown, began, warned = "", time.monotonic(), False
    while True:
        try:
            request = await cluster.get(target.resource, made.metadata.namespace, target.name)
        except Transient:
            await asyncio.sleep(LOOK_SECONDS)
            continue
        if request is None:
            raise fail(f"{target.resource.kind} {target.name} was deleted")
        status = _status(request)
        phase, conditions = status.get("phase") or "", status.get("conditions") or [{}]
        line = _line(phase, conditions[-1])
        if line != shown:
            typer.echo(f"{target.resource.kind.lower()}/{target.name} {line}")
            shown = line
        if not shown and not warned and time.monotonic() - began > PATIENCE_SECONDS:
            warned = True
            typer.echo(
                f"nobody has taken it up for {PATIENCE_SECONDS:.0f} s: is Muster running? "
                "It is still waited for; Ctrl-C ends only the waiting",
                err=True,
            )
        if phase == "ScaleSucceeded":
            return
        if phase == "ScaleFailed":
            raise typer.Exit(1)
        await asyncio.sleep(LOOK_SECONDS)


def _line(phase: str, condition: dict[str, Any]) -> str:
    reason, message = condition.get("reason", ""), condition.get("message", "")
    why = f"{reason}: {message}" if reason and message else reason
    return f"{phase} ({why})" if why and why != phase else phase


def _status(resource: Custom) -> dict[str, Any]:
    return resource.status if isinstance(resource.status, dict) else {}
