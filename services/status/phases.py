"""Phases, recorded in path order: Created, Running, Scaling and back, then Succeeded or Failed.  Pure.

Whether a job is over is `shared.job.verdict`'s to say.
"""

from shared.job.events import JobCreated, JobFailed, JobRunning, JobScaling, JobSucceeded
from shared.job.state import Job
from shared.job.verdict import verdict

Phase = JobCreated | JobRunning | JobScaling | JobSucceeded | JobFailed


def owed(job: Job) -> Phase | None:
    """The next phase's event, or None while the phase is right."""
    if job.deleting or job.over or job.spec is None:
        return None
    if job.phase == "":
        # An invalid spec waits for a corrected apply.
        return None if job.problems else JobCreated(reason="TrainingJobCreated")
    if job.phase == "Created" and _launcher_started(job):
        return JobRunning(reason="TrainingJobRunning")
    end = verdict(job)
    if end is not None:
        kind = JobSucceeded if end.success else JobFailed
        return kind(reason=end.reason, message=end.message)
    if job.phase == "Running" and job.scaling:
        return JobScaling(reason="ScalingStart")
    if job.phase == "Scaling" and not job.scaling:
        return JobRunning(reason="TrainingJobRunning")
    return None


def _launcher_started(job: Job) -> bool:
    launcher = job.seen_launcher
    return launcher is not None and launcher.phase in ("Running", "Succeeded")
