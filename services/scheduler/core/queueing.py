"""Keeps the Workloads by which Kueue gives a job its quota, and takes it back.  Pure.

A job in a queue has one Workload, and while it grows a second one, which replaces the first once it is admitted.
Quota goes back when the pods are gone, and not before.
`shared/job/policies/quota.py` says whether the job may run.
"""

from services.scheduler.core.effects import (
    DeleteWorkload,
    FinishWorkload,
    ReadyWorkload,
    ReturnQuota,
    ShrinkWorkload,
    WriteWorkload,
)
from shared.job.naming import Uid, workload_name, workload_number
from shared.job.policies import quota
from shared.job.spec import WORKER
from shared.job.state import Job
from shared.job.steps import Step
from shared.job.views import ChildView, WorkloadView, occupies

Known = tuple[ChildView, WorkloadView]


def next_steps(job: Job) -> list[Step]:
    """Write, shrink, replace or delete the Workloads of a job that is not over."""
    known = quota.workloads(job)
    if not known and not quota.in_queue(job):
        # Most jobs are in no queue.
        return []
    holder = quota.admitted(job) or _reserved(job, known)
    steps: list[Step] = []
    live: list[Known] = []
    for child, view in known:
        if view.finished or view.deleting or _is_obsolete(job, view):
            # A Workload that Kueue has finished has no quota; one that a person deletes has, until its finalizer goes.
            over = view.finished and (holder is None or child is not holder[0])
            steps += _deleted(job, child, view) if over or _may_go(job, view) else []
        else:
            live.append((child, view))
    if not quota.in_queue(job) or (job.spec is not None and job.spec.suspend):
        # A pause that a person asked for gives the place in the queue up.
        return [*steps, *(step for child, view in live if _may_go(job, view) for step in _deleted(job, child, view))]
    if holder is None:
        return [*steps, *_queued(job, known, live)]
    return [*steps, *_held(job, known, live, holder)]


def after_the_end(job: Job) -> list[Step]:
    """Finish the Workloads once no pod runs, and let them go with their job; while pods run, all but the newest one."""
    known = quota.workloads(job)
    if any(occupies(pod) for pod in job.pods.views.values()):
        # A Workload that waits for a job to grow would get quota for a job that is over.
        holder = _reserved(job, known)
        known = [(child, view) for child, view in known if holder and child is not holder[0] and not view.finished]
    reason = "Succeeded" if job.status.phase == "Succeeded" else "Failed"
    return [
        FinishWorkload(child.name, child.uid, reason)
        for child, view in known
        if (not view.finished or view.held) and job.may_try("FinishWorkload")
    ]


def everything(job: Job) -> list[Step]:
    """Let the Workloads of a deleted job go: their finalizer keeps them, and they keep their quota."""
    if job.pods.views:
        return []
    return [step for child, view in quota.workloads(job) for step in _deleted(job, child, view)]


def _reserved(job: Job, known: list[Known]) -> Known | None:
    """The newest Workload with quota, admitted or evicted."""
    found = [
        (child, view)
        for child, view in known
        if view.reserved and not (view.finished or view.deleting or _is_obsolete(job, view))
    ]
    return found[-1] if found else None


def _is_obsolete(job: Job, view: WorkloadView) -> bool:
    """True if Kueue gave quota for pods that the job no longer has; of such a Workload no template can be changed."""
    return view.reserved and not view.evicted and quota.is_outdated(job, view)


def _may_go(job: Job, view: WorkloadView) -> bool:
    """True if no pod has the Workload's quota, or is about to.

    The first slots of a job in a queue that is not suspended may be on their way to the log; the decision to suspend
    it fences them.
    """
    fenced = job.suspended or job.spec is None or not job.spec.queue
    return not view.reserved or (fenced and quota.is_empty(job))


def _deleted(job: Job, child: ChildView, view: WorkloadView) -> list[Step]:
    if (view.deleting and not view.held) or not job.may_try("DeleteWorkload"):
        return []
    return [DeleteWorkload(child.name, child.uid, waiting=not (view.reserved or view.finished or job.resource.gone))]


def _next(job: Job, known: list[Known]) -> str:
    newest = workload_number(job.key, known[-1][0].name) if known else 0
    return workload_name(job.key, newest + 1)


def _written(
    job: Job, name: str, queue: str, workers: int, *, uid: Uid | None = None, replaces: str = ""
) -> list[Step]:
    """The Workload that asks a queue for so many workers: a new one, or the one with this uid."""
    if not job.may_try("WriteWorkload") or job.resource.problems:
        return []
    return [WriteWorkload(name, queue, quota.pod_sets(job, workers), uid=uid, replaces=replaces)]


def _queued(job: Job, known: list[Known], live: list[Known]) -> list[Step]:
    """One Workload that waits for quota, as the job is now."""
    if job.spec is None or not quota.is_empty(job):
        # A Workload was taken away: its job is suspended first.
        return []
    if any(not _may_go(job, view) for _, view in known if not view.finished):
        # One is obsolete, and its quota may still be used.
        return []
    workers, queue = quota.first_workers(job), job.spec.queue
    if not live:
        return _written(job, _next(job, known), queue, workers)
    (child, view), others = live[-1], live[:-1]
    steps = [step for other, its in others for step in _deleted(job, other, its)]
    if not quota.is_of(job, view) or view.count(WORKER) != workers:
        steps += _written(job, child.name, queue, workers, uid=child.uid, replaces=view.replaces)
    return steps


def _held(job: Job, known: list[Known], live: list[Known], holder: Known) -> list[Step]:
    """A Workload with quota: its eviction, its readiness and its size."""
    child, view = holder
    waiting = [(other, its) for other, its in live if other is not child]
    steps: list[Step] = []
    if view.evicted:
        steps += [step for other, its in waiting for step in _deleted(job, other, its)]
        if quota.is_empty(job) and job.may_try("ReturnQuota"):
            steps.append(ReturnQuota(child.name, child.uid))
        return steps
    workers = quota.wanted_workers(job)
    # Kueue replaces a Workload only by one in the same queue.
    slices = [its for _, its in waiting if (its.replaces, its.queue) == (child.name, view.queue)]
    asked = _larger(job, view, workers, slices[-1] if slices else None)
    wanted = (child.name, view.queue, asked)
    fitting = [each for each in waiting if (each[1].replaces, each[1].queue, each[1].count(WORKER)) == wanted]
    # One is enough: that with quota, else the one that has waited longest.
    kept = [other for other, its in fitting if its.reserved] or [other for other, _ in fitting[:1]]
    # A job by capacity begins with what it has quota for: its attempt has that size, and not what it wants.
    begun = job.elasticity is None or job.attempt.begun
    grows = begun and view.admitted and not view.finished and workers > view.count(WORKER)
    for other, its in waiting:
        older = workload_number(job.key, other.name) < workload_number(job.key, child.name)
        if _is_spare(job, view, its, older=older) if its.reserved else not (grows and other in kept):
            steps += _deleted(job, other, its)
    if not view.admitted or view.finished:
        return steps
    if job.status.phase in ("Running", "Scaling") and not view.ready and job.may_try("ReadyWorkload"):
        steps.append(ReadyWorkload(child.name, child.uid))
    if grows and not kept:
        steps += _written(job, _next(job, known), view.queue, asked, replaces=child.name)
    least = max(workers, quota.used_workers(job))
    if least < view.count(WORKER) and job.may_try("ShrinkWorkload"):
        steps.append(ShrinkWorkload(child.name, child.uid, quota.pod_sets(job, least)))
    return steps


def _larger(job: Job, view: WorkloadView, workers: int, waiting: WorkloadView | None) -> int:
    """The number of workers that the next Workload of a growing job asks for: all that it wants.

    A job by capacity that got no quota for them asks for half as many more, down to one: Kueue does not say how much
    there is.
    """
    has, asked = view.count(WORKER), waiting.count(WORKER) if waiting is not None else 0
    if waiting is None or job.elasticity is None or not has < asked <= workers:
        return workers
    return has + max((asked - has) // 2, 1) if waiting.refused and not waiting.reserved else asked


def _is_spare(job: Job, view: WorkloadView, other: WorkloadView, *, older: bool) -> bool:
    """True if the quota of an older or evicted Workload goes back, as the job has all that it uses by an admitted one.

    Kueue finishes the older one itself, but for one that it evicted or has in another queue.
    """
    enough = view.admitted and not view.finished and quota.used_workers(job) <= view.count(WORKER)
    return enough and (older or bool(other.evicted))
