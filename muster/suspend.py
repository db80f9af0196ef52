"""`muster suspend` and `muster resume`: delete a job's pods, and begin again with the same size."""

from typing import Any

import typer

from muster import jobs, queues
from muster.following import LASTING_SECONDS, Answer, follow, older, status_of
from muster.targets import Asked, Target, fail
from shared.cluster import Cluster
from shared.cluster.objects import Custom


async def suspend(cluster: Cluster, asked: Asked, namespace: str, *, wait: bool, timeout: int) -> None:
    """Ask for a pause and wait until the job is Suspended."""
    target, job = await jobs.the_job(cluster, asked, namespace, "suspended")
    path = _path(target, "suspended")
    jobs.must_not_be_over(job, target, "suspended")
    workload = await _workload(cluster, job)
    if workload is not None and not queues.is_switched_off(workload):
        # Kueue would resume the job at once, and keep its quota.
        await queues.switch(cluster, workload, active=False)
        typer.echo(f"{target.label} asked to suspend, in queue {queues.queue_of(job)}")
    elif jobs.wants_pause(job, target):
        if target.phase(status_of(job)) == "Suspended" and not older(status_of(job), job):
            typer.echo(f"{target.label} is suspended already")
            return
        typer.echo(f"{target.label} is asked to suspend already")
    else:
        job = await jobs.patched(cluster, target, job, jobs.patch_at(path, True))
        if jobs.value_at(job, path) is not True:
            # Older definitions do not declare the field, and drop it.
            job = await _annotated(cluster, target, job)
        typer.echo(f"{target.label} asked to suspend")
    if wait:
        await _follow(cluster, target, job, _suspended(target), timeout)


async def resume(cluster: Cluster, asked: Asked, namespace: str, *, wait: bool, timeout: int) -> None:
    """Ask for the end of the pause and wait until the job runs."""
    target, job = await jobs.the_job(cluster, asked, namespace, "resumed")
    path = _path(target, "resumed")
    jobs.must_not_be_over(job, target, "resumed")
    phase = target.phase(status_of(job))
    workload = await _workload(cluster, job) if jobs.wants_pause(job, target) else None
    if workload is not None:
        # Kueue alone resumes a job that is in a queue.
        if queues.is_switched_off(workload):
            await queues.switch(cluster, workload, active=True)
            typer.echo(f"{target.label} asked to resume, in queue {queues.queue_of(job)}")
        else:
            typer.echo(f"{target.label} {queues.of_workload(queues.queue_of(job), workload)}")
    elif jobs.wants_pause(job, target):
        patch: dict[str, Any] = {}
        if jobs.suspend_field(job, target) is True:
            patch |= jobs.patch_at(path, False)
        if (annotation := jobs.suspend_annotation(target)) in (job.metadata.annotations or {}):
            patch["metadata"] = {"annotations": {annotation: None}}
        job = await jobs.patched(cluster, target, job, patch)
        typer.echo(f"{target.label} asked to resume")
    elif phase in jobs.PAUSED or older(status_of(job), job):
        typer.echo(f"{target.label} is asked to run already")
    else:
        typer.echo(f"{target.label} is not suspended; it is {phase or 'not admitted yet'}")
        return
    if wait:
        await _follow(cluster, target, job, _resumed(target), timeout)


async def _workload(cluster: Cluster, job: Custom) -> Custom | None:
    """The Workload of a job that is in a queue of Kueue; None for any other job."""
    return await queues.workload_of(cluster, job) if queues.queue_of(job) else None


def _path(target: Target, done: str) -> str:
    """The path of the field that asks for a pause.  Exits with one line if the kind has none."""
    path = target.framework.definition.suspend if target.framework is not None else ""
    if not path:
        raise fail(f"{target.label} cannot be {done}: a {target.resource.kind} has no field that asks for a pause")
    return path


async def _annotated(cluster: Cluster, target: Target, job: Custom) -> Custom:
    """The job after the wish was written as an annotation."""
    if not (annotation := jobs.suspend_annotation(target)):
        raise fail(
            f"{target.label} cannot be suspended: the definition of {target.resource.kind} here drops the field for "
            "it; `muster crds | kubectl apply -f -` installs one that has it"
        )
    return await jobs.patched(cluster, target, job, {"metadata": {"annotations": {annotation: "true"}}})


async def _follow(cluster: Cluster, target: Target, job: Custom, answer: Answer, timeout: int) -> None:
    # A change of the spec has a new generation, which the status names later; a change of an annotation has none.
    lasting = 0.0 if older(status_of(job), job) else LASTING_SECONDS
    await follow(cluster, target, job, answer, timeout=timeout, lasting=lasting)


def _suspended(target: Target) -> Answer:
    def answer(status: dict[str, Any]) -> bool | None:
        phase = target.phase(status)
        # A job may end before the pause begins.
        return False if phase in jobs.OVER else True if phase == "Suspended" else None

    return answer


def _resumed(target: Target) -> Answer:
    def answer(status: dict[str, Any]) -> bool | None:
        return {"Running": True, "Scaling": True, "Succeeded": True, "Failed": False}.get(target.phase(status))

    return answer
