"""Phases, recorded in path order: Created, Running, Scaling and back, then Succeeded or Failed; on the way Restarting
between attempts and Suspended for a pause.  Pure.

`shared.job.verdict` says whether an attempt is over, `shared.job.policies.restart` whether another one follows.
"""

from shared.job.events.status import (
    JobCreated,
    JobFailed,
    JobRestarting,
    JobRunning,
    JobScaling,
    JobSucceeded,
    JobSuspended,
)
from shared.job.naming import RESTART_REQUESTED
from shared.job.outcome import Verdict
from shared.job.policies.restart import may_restart
from shared.job.spec import JobSpec
from shared.job.state import Job
from shared.job.verdict import verdict

Phase = JobCreated | JobRunning | JobScaling | JobRestarting | JobSuspended | JobSucceeded | JobFailed


def owed(job: Job) -> Phase | None:
    """The next phase's event, or None while the phase is right."""
    if job.deleting or job.over or job.spec is None:
        return None
    if job.phase == "":
        # An invalid spec waits for a corrected apply.
        return None if job.problems else JobCreated(reason=f"{job.kind}Created")
    if job.phase == "Suspended":
        return None if job.spec.suspend else JobCreated(reason=f"{job.kind}Resumed")
    if job.starting and _judge_started(job, job.spec):
        return JobRunning(reason=f"{job.kind}Running")
    end = verdict(job)
    if end is not None and (end.success or not may_restart(job, end)):
        kind = JobSucceeded if end.success else JobFailed
        return kind(reason=end.reason, message=end.message)
    if job.spec.suspend:
        return JobSuspended(reason=f"{job.kind}Suspended")
    if end is not None:
        return _restarting(job, end)
    if job.restart_wanted and job.restarting is None:
        return JobRestarting(reason=RESTART_REQUESTED, message="a person asked for it")
    if job.phase == "Running" and (request := job.scaling.open_request) is not None:
        return JobScaling(reason="ScalingStart", message=request.sizes)
    if job.phase == "Scaling" and not job.scaling.open:
        return JobRunning(reason=f"{job.kind}Running")
    return None


def _restarting(job: Job, end: Verdict) -> JobRestarting:
    if end.disrupted:
        message = f"{end.message}; the restart does not count against backoffLimit"
        return JobRestarting(reason=end.reason, message=message, counted=False)
    limit = job.spec.backoff_limit if job.spec else 0
    message = f"{end.message}; restart {job.restarts + 1} of {limit} (backoffLimit)"
    return JobRestarting(reason=end.reason, message=message)


def _judge_started(job: Job, spec: JobSpec) -> bool:
    """The launcher runs or ran; of a job without one, the pod of its judge whose end counts, or any where all do."""
    if spec.has_launcher:
        launcher = job.seen_launcher
        return launcher is not None and launcher.phase in ("Running", "Succeeded")
    handling = spec.handling
    places = [slot for slot in job.attempt.places if slot.role == handling.judge]
    counting = {slot for slot in places if slot.index == 0 or handling.succeeds != "First"}
    ended = any(slot in counting for slot in job.attempt.vacancies)
    return ended or any(pod.phase == "Running" and pod.slot in counting for pod in job.pods.values())
