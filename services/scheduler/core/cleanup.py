"""Cleaning up: after the end by the job's cleanPodPolicy, after its deletion everything that is left.  Pure."""

from services.scheduler.core.effects import DeleteJob, DeletePod, DeleteSecret, DeleteService
from shared.job.events.scheduler import JobExpired, SlotsReleased
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timing import TIME_TO_LIVE, passed
from shared.job.views import spans


def after_the_end(job: Job) -> list[Step]:
    """Release what the policy takes: `Running` the pods that still run, `All` every pod, `None` none."""
    policy = job.spec.clean_pod_policy if job.spec is not None else "None"
    going = {"None": frozenset(), "Running": job.attempt.slots, "All": job.attempt.places}[policy]
    if not going:
        return []
    return [Record(SlotsReleased(slots=spans(going), reason=f"CleanPodPolicy{policy}"))]


def expiry(job: Job) -> list[Step]:
    """The resource goes when its time to live after the end ran out; its children go with it."""
    if job.expired:
        return [DeleteJob()]
    if job.ended is None or not passed(job, job.ended.sequence, TIME_TO_LIVE):
        return []
    return [Record(JobExpired())]


def everything(job: Job) -> list[Step]:
    """The resource is gone: delete by uid what the garbage collector has not taken yet."""
    pods: list[Step] = [
        DeletePod(pod.name, pod.uid)
        for pod in sorted(job.pods.values(), key=lambda pod: (pod.name, pod.uid))
        if not pod.deleting
    ]
    services: list[Step] = [
        DeleteService(child.name, child.uid)
        for child in job.children.values()
        if child.kind == "Service" and child.ours
    ]
    secrets: list[Step] = [
        DeleteSecret(child.name, child.uid) for child in job.children.values() if child.kind == "Secret" and child.ours
    ]
    return [*pods, *services, *secrets]
