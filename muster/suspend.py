"""`muster suspend` and `muster resume`: delete a job's pods, and begin again with the same size."""

from typing import Any

from muster import jobs, queues
from muster.following import LASTING_SECONDS, Answer, Change, carried_out, older, status_of
from shared.cluster import Cluster
from shared.cluster.objects import Custom
from shared.errors import Refused
from shared.telling.targets import Asked, Target


async def suspend(cluster: Cluster, asked: Asked, namespace: str, *, wait: bool, timeout: int) -> None:
    """Ask for a pause, and print until the job is Suspended."""
    await carried_out(cluster, await ask_to_suspend(cluster, asked, namespace), wait=wait, timeout=timeout)


async def resume(cluster: Cluster, asked: Asked, namespace: str, *, wait: bool, timeout: int) -> None:
    """Ask for the end of the pause, and print until the job runs."""
    await carried_out(cluster, await ask_to_resume(cluster, asked, namespace), wait=wait, timeout=timeout)


async def ask_to_suspend(cluster: Cluster, asked: Asked, namespace: str) -> Change:
    """Ask for a pause.  Raises `Refused` for a job that cannot pause."""
    target, job = await jobs.the_job(cluster, asked, namespace, "suspended")
    path = _path(target, "suspended")
    jobs.must_not_be_over(job, target, "suspended")
    workload = await _workload(cluster, job)
    if workload is not None and not queues.is_switched_off(workload):
        # Kueue would resume the job at once, and keep its quota.
        await queues.switch(cluster, workload, active=False)
        said = f"{target.label} asked to suspend, in queue {queues.queue_of(job)}"
    elif jobs.wants_pause(job, target):
        if target.phase(status_of(job)) == "Suspended" and not older(status_of(job), job):
            return Change(target, f"{target.label} is suspended already")
        said = f"{target.label} is asked to suspend already"
    else:
        job = await jobs.patched(cluster, target, job, jobs.patch_at(path, True))
        if jobs.value_at(job, path) is not True:
            # Older definitions do not declare the field, and drop it.
            job = await _annotated(cluster, target, job)
        said = f"{target.label} asked to suspend"
    return Change(target, said, job, _suspended(target), _lasting(job))


async def ask_to_resume(cluster: Cluster, asked: Asked, namespace: str) -> Change:
    """Ask for the end of the pause.  Raises `Refused` for a job that cannot pause."""
    target, job = await jobs.the_job(cluster, asked, namespace, "resumed")
    path = _path(target, "resumed")
    jobs.must_not_be_over(job, target, "resumed")
    phase = target.phase(status_of(job))
    workload = await _workload(cluster, job)
    paused = jobs.wants_pause(job, target) or phase in jobs.PAUSED
    if workload is not None and (paused or queues.is_switched_off(workload)):
        # Kueue alone resumes a job that is in a queue.
        if queues.is_switched_off(workload):
            await queues.switch(cluster, workload, active=True)
            said = f"{target.label} asked to resume, in queue {queues.queue_of(job)}"
        else:
            said = f"{target.label} {queues.of_workload(queues.queue_of(job), workload)}"
    elif jobs.wants_pause(job, target):
        patch: dict[str, Any] = {}
        if jobs.suspend_field(job, target) is True:
            patch |= jobs.patch_at(path, False)
        if (annotation := jobs.suspend_annotation(target)) in (job.metadata.annotations or {}):
            patch["metadata"] = {"annotations": {annotation: None}}
        job = await jobs.patched(cluster, target, job, patch)
        said = f"{target.label} asked to resume"
    elif phase in jobs.PAUSED or older(status_of(job), job):
        said = f"{target.label} is asked to run already"
    else:
        return Change(target, f"{target.label} is not suspended; it is {phase or 'not admitted yet'}")
    return Change(target, said, job, _resumed(target), _lasting(job))


async def _workload(cluster: Cluster, job: Custom) -> Custom | None:
    """The Workload of a job that is in a queue of Kueue; None for any other job."""
    return await queues.workload_of(cluster, job) if queues.queue_of(job) else None


def _path(target: Target, done: str) -> str:
    """The path of the field that asks for a pause.  Raises `Refused` if the kind has none."""
    path = target.framework.definition.suspend if target.framework is not None else ""
    if not path:
        words = f"{target.label} cannot be {done}: a {target.resource.kind} has no field that asks for a pause"
        raise Refused(words, reason="Invalid")
    return path


async def _annotated(cluster: Cluster, target: Target, job: Custom) -> Custom:
    """The job after the wish was written as an annotation."""
    if not (annotation := jobs.suspend_annotation(target)):
        raise Refused(
            f"{target.label} cannot be suspended: the definition of {target.resource.kind} here drops the field for "
            "it; `muster crds | kubectl apply -f -` installs one that has it",
            reason="Invalid",
        )
    return await jobs.patched(cluster, target, job, {"metadata": {"annotations": {annotation: "true"}}})


def _lasting(job: Custom) -> float:
    # A change of the spec has a new generation, which the status names later; a change of an annotation has none.
    return 0.0 if older(status_of(job), job) else LASTING_SECONDS


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
