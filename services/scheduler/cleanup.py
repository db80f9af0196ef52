"""Cleaning up: after the end by the job's cleanPodPolicy, after its deletion everything that is left.  Pure."""

from services.scheduler.effects import DeletePod, DeleteService
from shared.job.events import SlotsReleased
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.views import spans


def after_the_end(job: Job) -> list[Step]:
    """Release what the policy takes: `Running` the pods that still run, `All` every pod, `None` none."""
    policy = job.spec.clean_pod_policy if job.spec is not None else "None"
    going = {"None": frozenset(), "Running": job.slots, "All": job.slots | job.spent}[policy]
    if not going:
        return []
    return [Record(SlotsReleased(slots=spans(going), reason=f"CleanPodPolicy{policy}"))]


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
    return [*pods, *services]
