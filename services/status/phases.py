"""Phases, recorded in path order: Created, Running, Scaling and back, then Succeeded or Failed; on the way Restarting
between attempts and Suspended for a pause.  Pure.

Whether an attempt is over, and whether another one may follow, is `shared.job.verdict`'s to say.
"""

from shared.job.events import (
    JobCreated,
    JobFailed,
    JobRestarting,
    JobRunning,
    JobScaling,
    JobSucceeded,
    JobSuspended,
)
from shared.job.naming import RESTART_REQUESTED
from shared.job.state import Job
from shared.job.verdict import Verdict, may_restart, verdict

Phase = JobCreated | JobRunning | JobScaling | JobRestarting | JobSuspended | JobSucceeded | JobFailed


def owed(job: Job) -> Phase | None:
    """The next phase's event, or None while the phase is right."""
    if job.deleting or job.over or job.spec is None:
        return None
    if job.phase == "":
        # An invalid spec waits for a corrected apply.
        return None if job.problems else JobCreated(reason="TrainingJobCreated")
    if job.phase == "Suspended":
        return None if job.spec.suspend else JobCreated(reason="TrainingJobResumed")
    if job.starting and _launcher_started(job):
        return JobRunning(reason="TrainingJobRunning")
    end = verdict(job)
    if end is not None and (end.success or not may_restart(job, end)):
        kind = JobSucceeded if end.success else JobFailed
        return kind(reason=end.reason, message=end.message)
    if job.spec.suspend:
        return JobSuspended(reason="TrainingJobSuspended")
    if end is not None:
        return _restarting(job, end)
    if job.restart_wanted and job.restarting is None:
        return JobRestarting(reason=RESTART_REQUESTED, message="a person asked for it")
    if job.phase == "Running" and job.scaling:
        return JobScaling(reason="ScalingStart")
    if job.phase == "Scaling" and not job.scaling:
        return JobRunning(reason="TrainingJobRunning")
    return None


def _restarting(job: Job, end: Verdict) -> JobRestarting:
    limit = job.spec.backoff_limit if job.spec else 0
    return JobRestarting(
        reason=end.reason, message=f"{end.message}; restart {job.restarts + 1} of {limit} (backoffLimit)"
    )


def _launcher_started(job: Job) -> bool:
    launcher = job.seen_launcher
    return launcher is not None and launcher.phase in ("Running", "Succeeded")
