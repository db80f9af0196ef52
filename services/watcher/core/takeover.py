"""Jobs of another operator: left alone, or taken over with their pods.  Pure.

The watcher cannot see whether that operator still runs, and two operators would undo each other's work.  So its jobs
are only recorded, until the setting `MUSTER_TAKE_OVER` confirms that it is gone.
"""

from collections.abc import Iterator

from services.watcher.core.cache import Cache
from services.watcher.core.observed import ObservedJob
from shared.frameworks.takeover import Inherited
from shared.job.events.watcher import JobAdopted, JobOfAnother
from shared.job.evolve_attempts import ANOTHER_OPERATOR
from shared.job.naming import Slot
from shared.job.spec import LAUNCHER, RENDEZVOUS, WORKER, JobSpec
from shared.job.state import Job
from shared.job.views import alive, ended, ranges, spans

LEFT_ALONE = "a job of another operator is left alone"
OF_ITS_KIND = "its kind cannot be taken over: let it end there, or create it again"


def begun_by_another(job: Job, resource: ObservedJob | None, cache: Cache) -> JobOfAnother | None:
    """The fact that the resource has a status of another operator, and this log has no event of the job.

    A status of Muster's has a head, or the log knows the job: other definitions drop the head.  The checkpoint was
    compared before.
    """
    if resource is None or resource.inherited is None or resource.head is not None:
        return None
    if job.resource.generation or job.resource.another or job.integrity.accepted or job.resource.gone:
        return None
    return _left_alone(job, resource, resource.inherited, cache, pods=False)


def warning(job: Job, cache: Cache) -> tuple[str, str] | None:
    if not job.resource.another or job.resource.gone or cache.inherited_selector(job.resource) is None:
        return None
    if job.resource.obstacle != OF_ITS_KIND and not cache.takes_over:
        return LEFT_ALONE, "MUSTER_TAKE_OVER is not true: that operator may still run"
    if job.resource.obstacle:
        return LEFT_ALONE, job.resource.obstacle
    if job.resource.problems:
        problem = job.resource.problems[0]
        return LEFT_ALONE, f"{problem.field}: {problem.message} ({problem.reason})"
    return None


def _left_alone(job: Job, resource: ObservedJob, theirs: Inherited, cache: Cache, *, pods: bool) -> JobOfAnother:
    """The fact with why the job cannot be taken over as it is; `pods` if the log knows all its pods."""
    obstacle = theirs.obstacle if cache.inherited_selector(resource.observed) else OF_ITS_KIND
    has_launcher = any(pod.role == LAUNCHER for pod in job.pods.views.values())
    lost = not has_launcher if pods else job.resource.obstacle == theirs.without_launcher
    return JobOfAnother(
        phase=theirs.phase,
        obstacle=obstacle or (theirs.without_launcher if lost else ""),
        kind=resource.observed.kind,
        api_version=resource.observed.api_version,
    )


def obstructed(job: Job, cache: Cache, *, pods: bool) -> Iterator[JobOfAnother]:
    """The fact anew when something else hinders, or nothing does any more; `pods` if the log knows all its pods."""
    resource = cache.job(job.key)
    if resource is not None and resource.inherited is not None and not (job.deleting or job.resource.gone):
        now = _left_alone(job, resource, resource.inherited, cache, pods=pods)
        if now.obstacle != job.resource.obstacle:
            yield now


def adopted(job: Job, cache: Cache) -> Iterator[JobAdopted]:
    """The adoption of a job, once the log knows all its pods and that nothing hinders."""
    resource = cache.job(job.key)
    if (
        resource is None
        or resource.inherited is None
        or job.spec is None
        or job.resource.problems
        or job.deleting
        or job.resource.gone
    ):
        return
    if not job.resource.obstacle:
        yield _of(job, job.spec, resource.inherited)


def _of(job: Job, spec: JobSpec, theirs: Inherited) -> JobAdopted:
    attempt = max((pod.attempt for pod in job.pods.views.values()), default=0)
    # Other services address a pod by its slot's name: a pod with another name is not adopted.
    pods = {
        pod.slot: pod
        for pod in job.pods.views.values()
        if pod.attempt == attempt and pod.name == job.pod_name(pod.slot)
    }
    there = frozenset(pods)
    wanted = _wanted(spec, theirs, attempt) if pods or theirs.begun else frozenset()
    slots, lost = (there, wanted - there) if theirs.begun else (there | wanted, frozenset())
    if theirs.end:
        slots, lost = there, frozenset()
    workers = {slot.index for slot in slots | lost if slot.role == WORKER}
    missed = {slot for slot in there - wanted if ended(pods[slot])}
    members = [
        slot.index for slot, pod in pods.items() if slot.role == WORKER and pod.ready and alive(pod) and theirs.begun
    ]
    return JobAdopted(
        source=ANOTHER_OPERATOR,
        attempt=attempt,
        restarts=theirs.restarts,
        slots=spans(slots),
        lost=spans(lost),
        size=sum(slot.role == WORKER for slot in (slots | lost) - missed),
        next_index=max(workers, default=-1) + 1,
        members=ranges(members) if not theirs.end else (),
        phase=theirs.end,
        start_time=theirs.start_time,
        completion_time=theirs.completion_time,
        conditions=theirs.conditions,
        counts=theirs.counts if theirs.end else (),
    )


def _wanted(spec: JobSpec, theirs: Inherited, attempt: int) -> frozenset[Slot]:
    """The slots that should have a pod; the launcher's only after it was created."""
    found = set()
    for role in spec.roles:
        indices = range(role.replicas)
        if role.name == WORKER and theirs.workers is not None:
            found |= {Slot(attempt, role.name, index) for index in theirs.workers}
        elif role.name == RENDEZVOUS and theirs.begun:
            # The pods that are there have theirs at the first worker.
            continue
        elif role.name != LAUNCHER or theirs.begun:
            found |= {Slot(attempt, role.name, index) for index in indices}
    return frozenset(found)
