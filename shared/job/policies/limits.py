"""The limits that end an attempt: activeDeadlineSeconds, schedulingTimeoutSeconds, minReplicas.  Pure.

backoffLimit of restarts is in `restart.py`, that of replacements in `replacement.py`.
"""

from shared.job import reasons, text
from shared.job.outcome import Verdict
from shared.job.state import Job, needed_workers, running_workers
from shared.job.timers import ACTIVE_DEADLINE, BELOW_MINIMUM, SCHEDULING, passed
from shared.job.waiting import waiting


def of_active_deadline(job: Job) -> Verdict | None:
    """The job was active for activeDeadlineSeconds; attempts and the waits between them count, suspension does not."""
    if job.spec is None or job.active is None or not passed(job, job.active.sequence, ACTIVE_DEADLINE):
        return None
    seconds = job.spec.active_deadline_seconds
    if seconds is None:
        return None
    message = reasons.told(reasons.ENDS, reasons.DEADLINE_EXCEEDED, seconds=seconds)
    return Verdict(False, reasons.DEADLINE_EXCEEDED, message, permanent=True)


def of_scheduling(job: Job) -> Verdict | None:
    """The attempt did not run within schedulingTimeoutSeconds of its first slots."""
    assigned = job.attempt.assigned
    seconds = job.spec.scheduling_timeout_seconds if job.spec else None
    if seconds is None or assigned is None or not job.starting or not passed(job, assigned.sequence, SCHEDULING):
        return None
    waits = waiting(job)
    why = waits.sentence if waits is not None and not waits.usual else ""
    message = reasons.told(reasons.ENDS, reasons.SCHEDULING_TIMEOUT, seconds=seconds) + (f"; {why}" if why else "")
    return Verdict(False, reasons.SCHEDULING_TIMEOUT, text.ends(message), permanent=True)


def of_minimum(job: Job) -> Verdict | None:
    """Fewer than minReplicas workers ran for longer than schedulingTimeoutSeconds (600 when absent)."""
    if not passed(job, job.attempt.below_minimum, BELOW_MINIMUM):
        return None
    number = running_workers(job)
    running = f"{text.counted(number, 'worker')} {'runs' if number == 1 else 'run'}"
    told = reasons.told(reasons.ENDS, reasons.BELOW_MINIMUM, running=running, minimum=needed_workers(job))
    return Verdict(False, reasons.BELOW_MINIMUM, told)
