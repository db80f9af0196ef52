"""The verdict: whether the attempt is over, and how.  All services ask it.  Pure.

It applies the policies in their order, to the pods of this attempt whose slots were not released.
"""

from shared.job.outcome import Verdict
from shared.job.policies import failure, launcher_wait, limits, success
from shared.job.spec import JobSpec
from shared.job.state import Job


def verdict(job: Job) -> Verdict | None:
    """The end of the attempt, or None while it goes on."""
    if job.spec is None:
        return None
    over = None if job.between_attempts else _of_attempt(job, job.spec)
    return over or limits.of_active_deadline(job)


def _of_attempt(job: Job, spec: JobSpec) -> Verdict | None:
    return (
        _of_leader(job, spec)
        or failure.of_lost_launcher(job)
        or limits.of_scheduling(job)
        or launcher_wait.of_wait(job)
        or (failure.of_needed_pod(job, spec) if spec.handling.strict else None)
        or failure.of_refusal(job)
        or (limits.of_minimum(job) if _runs(job, spec) else failure.of_start(job, spec))
    )


def _of_leader(job: Job, spec: JobSpec) -> Verdict | None:
    """The end of the launcher, or of the pods of the leader role."""
    if spec.has_launcher:
        return success.of_launcher(job) or failure.of_launcher(job)
    return success.of_leader(job, spec) or failure.of_leader(job, spec)


def _runs(job: Job, spec: JobSpec) -> bool:
    """True once minReplicas holds: the launcher's slot is assigned, or a job without a launcher runs."""
    return job.attempt.launched if spec.has_launcher else job.under_way
