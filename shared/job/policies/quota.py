"""Whether a job in a queue of Kueue has quota, and how much it needs.  Pure.

The scheduler writes the job's Workloads, the status service pauses a job without quota, the scaler lets a scale-out
wait for it.
"""

from collections import Counter
from collections.abc import Iterable

from shared.job.naming import Slot, workload_number
from shared.job.policies import replacement
from shared.job.scaling import Request
from shared.job.spec import LAUNCHER, WORKER, waits_for_turn
from shared.job.state import Job, needed_workers
from shared.job.timers import may_appear
from shared.job.views import ChildView, PodSetView, WorkloadView, occupies

REPLACED = "WorkloadSliceReplaced"
"""The reason with which Kueue finishes a Workload that a larger one replaced."""


def workloads(job: Job) -> list[tuple[ChildView, WorkloadView]]:
    """The job's Workloads in the order of their numbers."""
    if not job.objects.queued:
        # Most jobs are in no queue, and some have a thousand children.
        return []
    found = [
        (number, child, child.workload)
        for child in job.objects.children.values()
        if child.workload is not None and child.ours and (number := workload_number(job.key, child.name))
    ]
    return [(child, view) for _, child, view in sorted(found, key=lambda one: one[0])]


def admitted(job: Job) -> tuple[ChildView, WorkloadView] | None:
    """The newest Workload by which the job may run."""
    known = workloads(job)
    successors = {view.replaces for _, view in known if _holds_quota(view)}
    found = [
        (child, view)
        for child, view in known
        if view.admitted
        and not (view.evicted or view.deleting or is_outdated(job, view))
        # Kueue ends a Workload before its successor has passed the admission checks.
        and (not view.finished or (view.finished == REPLACED and child.name in successors))
    ]
    return found[-1] if found else None


def _holds_quota(view: WorkloadView) -> bool:
    return view.reserved and not (view.finished or view.evicted or view.deleting)


def is_outdated(job: Job, view: WorkloadView) -> bool:
    """True if a job without an attempt was edited since its Workload was written: Kueue has counted other pods.

    The definition lets templates change only before a job begins and while it is suspended.
    """
    begins = job.suspended or (job.status.phase == "Created" and (job.retries.paused or not job.attempt.begun))
    return begins and not is_of(job, view)


def is_of(job: Job, view: WorkloadView) -> bool:
    """True if a Workload has the job's queue and pod templates."""
    fits = job.resource.templates <= view.generation <= job.resource.generation
    return job.spec is None or (fits and view.queue == job.spec.queue)


def in_queue(job: Job) -> bool:
    """True if the job needs quota.

    The label counts when an attempt begins: a running job that gets it runs on, and one that loses it still needs the
    quota that it runs with.  A Workload without quota, which anyone may write, puts no job in a queue.
    """
    if job.spec is None:
        return False
    if job.spec.queue:
        return job.attempt.queued or job.between_attempts or not job.attempt.begun
    holds = any(view.reserved and not (view.finished or view.deleting) for _, view in workloads(job))
    return job.attempt.queued and holds and not is_empty(job)


def waits(job: Job) -> bool:
    """True if the job may not run, as it has no quota."""
    return in_queue(job) and admitted(job) is None


def wants_pause(job: Job) -> bool:
    """True if a person or the queue wants the job to have no pods."""
    return job.spec is not None and (job.spec.suspend or waits(job))


def is_empty(job: Job) -> bool:
    """True if no pod of the job exists or may still appear."""
    return not (job.attempt.unreleased or job.pods.views or may_appear(job))


def first_workers(job: Job) -> int:
    """The number of workers that a job without quota asks for: one with elasticity begins with its minimum.

    It asks for the others when it runs.  Kueue's own partial admission excludes the slices by which jobs grow.
    """
    return needed_workers(job) if job.elasticity is not None else wanted_workers(job)


def wanted_workers(job: Job) -> int:
    """The number of workers that the job needs quota for: its size, or that which the open or next request asks for."""
    size = job.scaling.size or (job.spec.worker.replicas if job.spec is not None else 0)
    if job.scaling.open_request is not None:
        return max(size, job.scaling.open_request.after)
    if job.status.phase != "Running" or job.leaving or job.scaling.next_request is None:
        return size
    return max(size, _asked(job, job.scaling.next_request))


def _asked(job: Job, request: Request) -> int:
    """The number of workers after a waiting request, if it adds some and its job may have them."""
    most = job.spec.worker.max_replicas if job.spec is not None else 0
    count = request.spec.count if request.spec is not None and request.kind == "ScaleOut" else None
    after = request.resize or (len(replacement.filled(job)) + count if count else 0)
    unfit = request.gone or waits_for_turn(request.problems) or (most is not None and after > most)
    return 0 if unfit else after


def used_workers(job: Job) -> int:
    """The number of workers that use quota: those in slots, those that are leaving, and those that may still appear."""
    leaving = {pod.slot for pod in job.pods.views.values() if pod.role == WORKER and occupies(pod)}
    unseen = [slot for slot in job.pods.unseen.slots if slot.role == WORKER] if may_appear(job) else ()
    return len(replacement.filled(job) | leaving | unseen)


def allows(job: Job, workers: int) -> bool:
    """True if the job has quota for so many workers, or needs none."""
    return most_workers(job, workers) == workers


def most_workers(job: Job, workers: int) -> int:
    """As many of these workers as the job has quota for; all of them if it needs none."""
    if not in_queue(job):
        return workers
    found = admitted(job)
    return min(workers, found[1].count(WORKER)) if found is not None else 0


def within(job: Job, slots: Iterable[Slot]) -> list[Slot]:
    """The slots that may get pods now: all of them in no queue, else as many as there is quota for beside other pods.

    The pod that replaces a lost one waits for its end, and an evicted job gets none.
    """
    if not in_queue(job):
        return [*slots]
    found = admitted(job)
    there = Counter(pod.role for pod in job.pods.views.values() if occupies(pod))
    left = {each.role: each.count - there[each.role] for each in found[1].pod_sets} if found is not None else {}
    may: list[Slot] = []
    for slot in slots:
        if left.get(slot.role, 0) > 0:
            left[slot.role] -= 1
            may.append(slot)
    return may


def placement(job: Job, role: str) -> tuple[str, PodSetView] | None:
    """The Workload by which a job in a queue makes pods of a role, and what they get; None in no queue."""
    found = admitted(job) if in_queue(job) else None
    if found is None:
        return None
    child, view = found
    return next(((child.name, each) for each in view.pod_sets if each.role == role), None)


def pod_sets(job: Job, workers: int) -> tuple[tuple[str, int], ...]:
    """The roles of a Workload with their numbers of pods."""
    roles = job.spec.roles if job.spec is not None else ()
    return tuple((role.name, {LAUNCHER: 1, WORKER: workers}.get(role.name, role.replicas)) for role in roles)
