"""Decides the scheduler's next steps for a job: its pods and slots, its next attempt, its clean-up.  Pure.

After the end of an attempt the slots are released, then the back-off or the resumption is awaited; the verdict decides
whether there is another attempt, and the status service records that (`JobRestarting`).  After a job's end the clean-up
follows cleanPodPolicy; after the resource's deletion all of its objects go.
"""

from services.scheduler.core import gangs, keys, queueing, slots
from services.scheduler.core.effects import CreateAutoscaler, DeleteAutoscaler, DeleteJob, DeletePod, DeleteService
from shared.job import causes
from shared.job.events.event import Cause
from shared.job.events.scheduler import JobExpired, JobRestarted, SlotsReleased
from shared.job.naming import Slot
from shared.job.policies import nodes, verdict
from shared.job.policies.retries import restart_delay
from shared.job.sorted_set import SortedSet
from shared.job.spec import RENDEZVOUS
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timers import RESTART, TIME_TO_LIVE, passed
from shared.job.views import alive, occupies, spans

MOST_LOST = 1_000
"""No log loses more attempts; who may make pods may write a higher number into a label."""


def next_attempt(job: Job) -> list[Step]:
    """Release every slot, so that the pods are deleted; then begin the next attempt when its back-off is over."""
    held = job.attempt.unreleased
    if held:
        resumed = job.retries.paused and not job.suspended
        return [_released(job, held, "Resumed" if resumed else f"Job{job.status.phase}")]
    if job.suspended:
        return []
    if job.retries.restarting is None:
        because = Cause(job.status.active.sequence if job.status.active is not None else 0)
        return [_restarted(job, "Resumed", because, counted=False)]
    why = job.retries.restarting
    at_once = job.retries.restart_wanted or not restart_delay(job, why)
    if not at_once and not passed(job, why.at.sequence, RESTART):
        return []
    waited = causes.timer(job, why.at.sequence, RESTART)
    because = causes.newest(Cause(why.at.sequence), waited, Cause(job.retries.restart_wanted))
    return [_restarted(job, why.reason, because, counted=why.counted)]


def _released(job: Job, slots: SortedSet[Slot], reason: str) -> Step:
    return Record(SlotsReleased(slots=spans(slots), reason=reason), causes.of_interruption(job))


def _restarted(job: Job, reason: str, because: Cause, *, counted: bool) -> Step:
    # A restored log may have lost attempts whose pods are still there.
    number = job.attempt.number
    lost = [pod.attempt for pod in job.pods.views.values() if pod.attempt <= number + MOST_LOST]
    return Record(JobRestarted(attempt=max([number, *lost]) + 1, counted=counted, reason=reason), because)


def after_the_end(job: Job) -> list[Step]:
    """Release slots by cleanPodPolicy: `Running` those whose pods still run, `All` every slot, `None` no slot.

    A pod that waits for a node goes in any case: it would take the next free node although the job is over.
    """
    if verdict.winds_down(job):
        return []
    policy = job.spec.clean_pod_policy if job.spec is not None else "None"
    lingering = [pod.slot for pod in job.pods.views.values() if pod.slot in job.attempt.spent and occupies(pod)]
    going = {
        "None": SortedSet[Slot](),
        "Running": job.attempt.slots | lingering,
        "All": job.attempt.unreleased,
    }[policy]
    if going:
        return [_released(job, going, f"CleanPodPolicy{policy}")]
    pods = job.pods.views.values()
    unplaced = job.attempt.slots & [pod.slot for pod in pods if alive(pod) and pod.phase == "Pending" and not pod.node]
    if unplaced:
        return [_released(job, unplaced, "NeverPlaced")]
    # A rendezvous never ends by itself, and serves the workers that still run; its log holds no result.
    if job.attempt.slots and all(slot.role == RENDEZVOUS for slot in job.attempt.slots):
        return [_released(job, job.attempt.slots, "NoWorkerLeft")]
    return []


def expiry(job: Job) -> list[Step]:
    """Delete the resource when ttlSecondsAfterFinished is over; the garbage collector deletes its children."""
    if job.status.expired:
        return [DeleteJob()]
    if job.status.ended is None or not passed(job, job.status.ended.sequence, TIME_TO_LIVE):
        return []
    return [Record(JobExpired(), causes.timer(job, job.status.ended.sequence, TIME_TO_LIVE))]


def everything(job: Job) -> list[Step]:
    """Delete the objects that outlive the resource, as the garbage collector would."""
    pods = [DeletePod(pod.name, pod.uid) for pod in slots.by_name(job.pods.views.values()) if not pod.deleting]
    services = [
        DeleteService(child.name, child.uid)
        for child in job.objects.children.values()
        if child.kind == "Service" and child.ours
    ]
    return [*pods, *services, *keys.everything(job), *gangs.everything(job), *queueing.everything(job)]


def decide(job: Job) -> list[Step]:
    """Slots to assign or release; pods, Services, Secrets, PodGroups and Workloads to create or delete."""
    if job.halted or job.resource.orphan:
        return []
    forced = [DeletePod(pod.name, pod.uid, force=True) for pod in slots.by_name(nodes.forced(job))]
    return [*_of_phase(job), *autoscaler(job), *forced]


def autoscaler(job: Job) -> list[Step]:
    """Create the autoscaler of a job that has begun, and delete that of one that is suspended or over.

    With the resource the garbage collector deletes it.
    """
    if job.spec is None or job.deleting or job.resource.gone or job.resource.problems:
        return []
    made, wanted = job.objects.autoscaler, job.spec.autoscaled and not (job.over or job.suspended)
    if made:
        return [DeleteAutoscaler(made)] if not wanted and job.may_try("DeleteAutoscaler") else []
    begun = job.attempt.begun and not job.between_attempts
    return [CreateAutoscaler()] if wanted and begun and job.may_try("CreateAutoscaler") else []


def _of_phase(job: Job) -> list[Step]:
    if job.resource.gone:
        return everything(job)
    if job.deleting or job.status.phase == "":
        return []
    there = SortedSet(pod.slot for pod in job.pods.views.values())
    if job.over:
        decisions = [*after_the_end(job), *expiry(job)]
        pods = [*slots.surplus(job, there), *slots.unclaimed(job)]
        return [*decisions, *pods, *keys.spent(job), *gangs.spent(job), *queueing.after_the_end(job)]
    if job.between_attempts:
        spent = [*keys.spent(job), *gangs.spent(job)]
        return [*next_attempt(job), *slots.surplus(job, there), *spent, *queueing.next_steps(job)]
    decisions = [*slots.replaced(job), *slots.assigned(job), *keys.missing(job), *gangs.missing(job)]
    pods = [*slots.missing(job, there), *slots.surplus(job, there), *slots.outliving(job), *slots.unclaimed(job)]
    return [*decisions, *pods, *keys.spent(job), *gangs.spent(job), *queueing.next_steps(job)]
