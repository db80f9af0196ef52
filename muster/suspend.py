"""`muster suspend` and `muster resume`: give the pods of a job back, and begin again with the size it had."""

from typing import Any

import typer

from muster.following import LASTING_SECONDS, Answer, follow, label, older, phase_of, status_of
from muster.jobs import OVER, must_not_be_over, patched, suspend_field, the_job, wants_pause
from muster.targets import Target
from shared.cluster import Cluster
from shared.cluster.objects import Custom
from shared.job.naming import SUSPENDED


async def suspend(cluster: Cluster, target: Target, namespace: str, *, wait: bool, timeout: int) -> None:
    """Ask for a pause and wait until the job is Suspended."""
    job = await the_job(cluster, target, namespace, "suspended")
    must_not_be_over(job, target, "suspended")
    if wants_pause(job):
        if phase_of(status_of(job)) == "Suspended" and not older(status_of(job), job):
            typer.echo(f"{label(target)} is suspended already")
            return
        typer.echo(f"{label(target)} is asked to suspend already")
    else:
        job = await patched(cluster, job, {"spec": {"suspend": True}})
        if not wants_pause(job):
            # Definitions of et-operator do not know the field and drop it; its annotation says the same.
            job = await patched(cluster, job, {"metadata": {"annotations": {SUSPENDED: "true"}}})
        typer.echo(f"{label(target)} asked to suspend")
    if wait:
        await _follow(cluster, target, job, _suspended, timeout)


async def resume(cluster: Cluster, target: Target, namespace: str, *, wait: bool, timeout: int) -> None:
    """Take the wish for a pause back and wait until the job runs."""
    job = await the_job(cluster, target, namespace, "resumed")
    must_not_be_over(job, target, "resumed")
    phase = phase_of(status_of(job))
    if wants_pause(job):
        patch: dict[str, Any] = {}
        if suspend_field(job) is True:
            patch["spec"] = {"suspend": False}
        if SUSPENDED in (job.metadata.annotations or {}):
            patch["metadata"] = {"annotations": {SUSPENDED: None}}
        job = await patched(cluster, job, patch)
        typer.echo(f"{label(target)} asked to resume")
    elif phase == "Suspended" or older(status_of(job), job):
        typer.echo(f"{label(target)} is asked to run already")
    else:
        typer.echo(f"{label(target)} is not suspended; it is {phase or 'not taken up yet'}")
        return
    if wait:
        await _follow(cluster, target, job, _resumed, timeout)


async def _follow(cluster: Cluster, target: Target, job: Custom, answer: Answer, timeout: int) -> None:
    # Another generation, which the status will name, tells what is of before we asked; an annotation makes none.
    lasting = 0.0 if older(status_of(job), job) else LASTING_SECONDS
    await follow(cluster, target, job, answer, timeout=timeout, lasting=lasting)


def _suspended(status: dict[str, Any]) -> bool | None:
    phase = phase_of(status)
    # It ended before anybody could pause it.
    return False if phase in OVER else True if phase == "Suspended" else None


def _resumed(status: dict[str, Any]) -> bool | None:
    return {"Running": True, "Scaling": True, "Succeeded": True, "Failed": False}.get(phase_of(status))
