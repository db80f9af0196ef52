"""Cleans up: after a job's end by cleanPodPolicy, after the resource's deletion all of its objects.  Pure."""

from services.scheduler.core import keys, queueing
from services.scheduler.core.effects import DeleteJob, DeletePod, DeleteService
from shared.job.events.scheduler import JobExpired, SlotsReleased
from shared.job.naming import Slot
from shared.job.policies import winding_down
from shared.job.sorted_set import SortedSet
from shared.job.spec import RENDEZVOUS
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timers import TIME_TO_LIVE, passed
from shared.job.views import occupies, spans


def after_the_end(job: Job) -> list[Step]:
    """Release slots by cleanPodPolicy: `Running` those whose pods still run, `All` every slot, `None` no slot."""
    if winding_down.lasts(job):
        return []
    policy = job.spec.clean_pod_policy if job.spec is not None else "None"
    lingering = [pod.slot for pod in job.pods.values() if pod.slot in job.attempt.spent and occupies(pod)]
    going = {
        "None": SortedSet[Slot](),
        "Running": job.attempt.slots | lingering,
        "All": job.attempt.unreleased,
    }[policy]
    if going:
        return [Record(SlotsReleased(slots=spans(going), reason=f"CleanPodPolicy{policy}"))]
    # A rendezvous never ends by itself, and serves the workers that still run; its log holds no result.
    if job.attempt.slots and all(slot.role == RENDEZVOUS for slot in job.attempt.slots):
        return [Record(SlotsReleased(slots=spans(job.attempt.slots), reason="NoWorkerLeft"))]
    return []


def expiry(job: Job) -> list[Step]:
    """Delete the resource when ttlSecondsAfterFinished is over; the garbage collector deletes its children."""
    if job.expired:
        return [DeleteJob()]
    if job.ended is None or not passed(job, job.ended.sequence, TIME_TO_LIVE):
        return []
    return [Record(JobExpired())]


def everything(job: Job) -> list[Step]:
    """Delete the pods, Services, Secrets and Workloads that outlive the resource, as the garbage collector would."""
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
    return [*pods, *services, *keys.everything(job), *queueing.everything(job)]
