"""Whether another attempt follows a failed one, and after which back-off.  Pure.

The status service records that one follows (`JobRestarting`); the scheduler begins it (`JobRestarted`).
"""

from shared.job.naming import RESTART_REQUESTED
from shared.job.outcome import Verdict
from shared.job.policies.back_off import before_start
from shared.job.spec import JobSpec
from shared.job.state import Job, Restarting


def may_restart(job: Job, end: Verdict) -> bool:
    """True if another attempt follows.  After a disruption one always does, and counts against no limit."""
    if job.spec is None or end.success or end.permanent:
        return False
    return end.disrupted or (_wanted(job.spec) and job.restarts < job.spec.backoff_limit)


def used_up(job: Job, end: Verdict) -> bool:
    """True if only backoffLimit prevents another attempt."""
    if job.spec is None or end.success or end.permanent or may_restart(job, end):
        return False
    return _wanted(job.spec)


def _wanted(spec: JobSpec) -> bool:
    """True if the restartPolicy of the job, or of its leader, asks for another attempt after a failed one."""
    handling = spec.handling
    of_leader = handling.restarts == "Job" and spec.policy(handling.leader) != "Never"
    return spec.restart_policy != "Never" or of_leader


def delay(job: Job, why: Restarting) -> int:
    """Seconds from the end of an attempt to the next one.

    After a failure 10 s, doubled with each restart that counted, at most 300 s.  After a disruption none; a job that
    is disrupted again before it was steady waits in the same steps.  A restart that a person asked for begins at once.
    """
    if why.counted:
        return before_start(job.restarts + 1)
    return 0 if why.reason == RESTART_REQUESTED else before_start(job.disruptions - 1)
