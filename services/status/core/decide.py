"""Decides the status service's next steps for a job: the next phase, else documents and Kubernetes Events.  Pure.

Created, Running, Scaling and back, then Succeeded or Failed; Restarting between attempts, Suspending and Suspended for
a pause.  The verdict decides whether an attempt is over, `retries.py` whether another follows.
"""

from services.status.core import announce, documents
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.job import causes, reasons, text
from shared.job.attempt import Verdict
from shared.job.conditions import since
from shared.job.events import status
from shared.job.events.event import Cause
from shared.job.fold import History, closed
from shared.job.naming import NO_UID, RESTART_REQUESTED, Slot
from shared.job.policies import gangs, quota
from shared.job.policies.retries import may_restart, used_up
from shared.job.policies.verdict import verdict
from shared.job.sorted_set import SortedSet
from shared.job.spec import UNLIMITED, JobSpec
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timers import SEAL, UNSEEN, passed


def next_phase(job: Job) -> Record | None:
    """The decision that enters the next phase, or None while the job stays in its phase."""
    if job.deleting or job.over or job.spec is None:
        return None
    if job.status.phase == "":
        # An invalid spec waits for its correction.
        created = Record(status.JobCreated(reason=f"{job.resource.kind}Created"), _because_asked(job))
        return created if not job.resource.problems else None
    if job.suspended and not quota.wants_pause(job):
        return Record(status.JobCreated(reason=f"{job.resource.kind}Resumed"), _because_asked(job))
    if job.suspended:
        return _suspended(job) if job.status.phase == "Suspending" and quota.is_empty(job) else None
    if job.starting and _leader_started(job, job.spec):
        return Record(status.JobRunning(reason=f"{job.resource.kind}Running"), _because_started(job, job.spec))
    end = verdict(job)
    if end is not None and not may_restart(job, end):
        kind = status.JobSucceeded if end.success else status.JobFailed
        limit = f"; no restart is left: backoffLimit is {job.spec.backoff_limit}" if used_up(job, end) else ""
        return Record(kind(reason=end.reason, message=end.message + limit), end.because)
    if quota.wants_pause(job):
        suspending = status.JobSuspending(reason=f"{job.resource.kind}Suspending", message=_of_queue(job))
        return _suspended(job) if quota.is_empty(job) else Record(suspending, _because_asked(job))
    if end is not None:
        return _restarting(job, end)
    if job.retries.restart_wanted and job.retries.restarting is None:
        message = reasons.told(reasons.PHASES, RESTART_REQUESTED)
        return Record(
            status.JobRestarting(reason=RESTART_REQUESTED, message=message), Cause(job.retries.restart_wanted)
        )
    if left := gangs.left(job):
        message = reasons.told(reasons.PHASES, reasons.GANG_TOO_LARGE, least=job.attempt.gang, left=left)
        asked = Cause(job.resource.edited)
        return Record(status.JobRestarting(reason=reasons.GANG_TOO_LARGE, message=message), asked)
    if job.status.phase == "Running" and (request := job.scaling.open_request) is not None:
        return Record(status.JobScaling(reason=reasons.SCALING_START, message=request.wish), Cause(request.accepted))
    if job.status.phase == "Scaling" and not job.scaling.open:
        ends = (Cause(since(job.status.conditions, kind)) for kind in ("ScaleSucceeded", "ScaleFailed"))
        return Record(status.JobRunning(reason=f"{job.resource.kind}Running"), causes.newest(ends))
    return None


def _because_asked(job: Job) -> Cause:
    """A person's edit, or the queue's answer."""
    return Cause(max(job.resource.edited, job.objects.queued))


def _because_started(job: Job, spec: JobSpec) -> Cause:
    """The start of the launcher, or of the pods of the leader role that count."""
    if spec.has_launcher:
        return causes.of_launcher(job)
    running = {pod.slot for pod in job.pods.views.values() if pod.phase == "Running"} | job.attempt.spent
    return causes.newest(causes.of_pods(job, _leading(job, spec) & running))


def _suspended(job: Job) -> Record:
    # The last pod's end, or the wait for unseen pods, may come after the edit.
    last = causes.newest(causes.of_pods(job, job.attempt.news), causes.timer(job, job.pods.unseen.since, UNSEEN))
    decision = status.JobSuspended(reason=f"{job.resource.kind}Suspended", message=_of_queue(job))
    return Record(decision, causes.newest(_because_asked(job), last))


def _of_queue(job: Job) -> str:
    """Why a job in a queue has no quota; empty if a person suspends it."""
    if job.spec is None or job.spec.suspend:
        return ""
    views = [view for _, view in quota.workloads(job)]
    evicted = [view for view in views if view.evicted]
    why = f"; evicted ({evicted[-1].evicted}): {evicted[-1].message}" if evicted else ""
    # A job that lost its label has its Workload's queue.
    queue = job.spec.queue or (views[-1].queue if views else "")
    return text.ends(f"waits for quota in queue {queue}{why}")


def _restarting(job: Job, end: Verdict) -> Record:
    if end.disrupted:
        message = f"{end.message}; the restart does not count against backoffLimit"
        return Record(status.JobRestarting(reason=end.reason, message=message, counted=False), end.because)
    limit = job.spec.backoff_limit if job.spec else 0
    of = f" of {limit} (backoffLimit)" if limit < UNLIMITED else ""
    message = f"{end.message}; restart {job.retries.restarts + 1}{of}"
    return Record(status.JobRestarting(reason=end.reason, message=message), end.because)


def _leader_started(job: Job, spec: JobSpec) -> bool:
    """True once the launcher has run; in a job without one, once a pod of the leader role has run or ended.

    With `succeeds: First` only the pod of index 0 counts.  A pod that never ran, such as one that the kubelet rejected,
    starts nothing.
    """
    if spec.has_launcher:
        launcher = job.seen_launcher
        if launcher is None or launcher.slot not in job.attempt.unreleased:
            return False
        return launcher.phase in ("Running", "Succeeded")
    counting = _leading(job, spec)
    ended = any(slot in counting and vacancy.ran for slot, vacancy in job.attempt.vacancies.items())
    return ended or any(pod.phase == "Running" and pod.slot in counting for pod in job.pods.views.values())


def _leading(job: Job, spec: JobSpec) -> SortedSet[Slot]:
    """The slots of the leader role whose pods count for the job's start and end."""
    first = spec.handling.succeeds == "First"
    return SortedSet(
        slot for slot in job.attempt.unreleased if slot.role == spec.handling.leader and not (first and slot.index)
    )


def sealing(history: History) -> Record | None:
    """The seal of a history that is over: its job is gone with all that it had, and was so for the time to settle."""
    job, head = history.job, history.head
    if job.integrity.doubt is not None or history.held or not closed(job) or not passed(job, job.resource.gone, SEAL):
        return None
    ended = job.status.conditions[-1].reason if job.over and job.status.conditions else "Deleted"
    seal = status.JobSealed(
        first=history.first,
        last=head.sequence,
        count=history.count,
        hash=head.hash,
        outcome=job.status.phase,
        reason=ended,
    )
    return Record(seal, causes.timer(job, job.resource.gone, SEAL))


def decide(job: Job, kinds: Kinds = BUILT_IN) -> list[Step]:
    """The next phase; without one the status documents and the Kubernetes Events."""
    if job.halted:
        return []
    if job.resource.gone:
        # Its deletion orphaned them.  Those that wait are shown by the history to which they move.
        return [each for each in documents.of_requests(job) if job.scaling.requests[each.uid].over]
    if job.key.uid == NO_UID:
        return [*documents.of_requests(job), *announce.of_requests(job)]
    if not kinds.knows(job):
        return []
    phase = next_phase(job)
    if phase is not None:
        # The phase comes first: a document without it would be old within a millisecond.
        return [phase]
    return [*documents.of_job(job, kinds), *documents.of_requests(job), *announce.announcements(job, kinds)]
