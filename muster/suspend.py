"""`muster suspend` and `muster resume`: give the pods of a job back, and begin again with the size it had."""

from typing import Any

import typer

from muster.following import follow, label, phase_of, status_of
from muster.jobs import OVER, must_not_be_over, patched, the_job
from muster.targets import Target
from shared.cluster import Cluster
from shared.cluster.objects import Custom
from shared.job.naming import SUSPENDED


async def suspend(cluster: Cluster, target: Target, namespace: str, *, wait: bool, timeout: int) -> None:
    """Ask for a pause and wait until the job is Suspended."""
    job = await the_job(cluster, target, namespace, "suspended")
    must_not_be_over(job, target, "suspended")
    if _wants_pause(job):
        if phase_of(status_of(job)) == "Suspended":
            typer.echo(f"{label(target)} is suspended already")
            return
        typer.echo(f"{label(target)} was asked to suspend already")
    else:
        job = await patched(cluster, job, {"spec": {"suspend": True}})
        if not _wants_pause(job):
            # Definitions of et-operator do not know the field and drop it; its annotation says the same.
            job = await patched(cluster, job, {"metadata": {"annotations": {SUSPENDED: "true"}}})
        typer.echo(f"{label(target)} asked to suspend")
    if wait:
        await follow(cluster, target, job, _suspended, timeout=timeout)


async def resume(cluster: Cluster, target: Target, namespace: str, *, wait: bool, timeout: int) -> None:
    """Take the wish for a pause back and wait until the job runs."""
    job = await the_job(cluster, target, namespace, "resumed")
    must_not_be_over(job, target, "resumed")
    phase = phase_of(status_of(job))
    if _wants_pause(job):
        patch: dict[str, Any] = {}
        if _field(job):
            patch["spec"] = {"suspend": False}
        if SUSPENDED in (job.metadata.annotations or {}):
            patch["metadata"] = {"annotations": {SUSPENDED: None}}
        job = await patched(cluster, job, patch)
        typer.echo(f"{label(target)} asked to resume")
    elif phase == "Suspended":
        typer.echo(f"{label(target)} was asked to resume already")
    else:
        typer.echo(f"{label(target)} is not suspended; it is {phase or 'not taken up yet'}")
        return
    if wait:
        await follow(cluster, target, job, _resumed, timeout=timeout)


def _wants_pause(job: Custom) -> bool:
    return _field(job) or (job.metadata.annotations or {}).get(SUSPENDED) == "true"


def _field(job: Custom) -> bool:
    return isinstance(job.spec, dict) and job.spec.get("suspend") is True


def _suspended(status: dict[str, Any]) -> bool | None:
    phase = phase_of(status)
    # It ended before anybody could pause it.
    return False if phase in OVER else True if phase == "Suspended" else None


def _resumed(status: dict[str, Any]) -> bool | None:
    return {"Running": True, "Scaling": True, "Succeeded": True, "Failed": False}.get(phase_of(status))
