"""How long workers hold their places while their launcher finds none, and then give them back.  Pure.

Jobs whose workers fill the nodes would otherwise wait for one another for ever.  Each gives its places back after
another time, so that the launchers that wait get them; schedulingTimeoutSeconds of a job has precedence.

A launcher that no node can ever fit would begin its job again for ever: the job ends after `MOST_ATTEMPTS` of them.
"""

from zlib import crc32

from shared.job import reasons, text
from shared.job.events.event import At
from shared.job.outcome import Verdict
from shared.job.state import Job
from shared.job.timers import LAUNCHER_WAIT, passed

SHORTEST_SECONDS = 120
"""The shortest time that a launcher waits: a cluster may make a node for it within that."""

SPREAD_SECONDS = 120
"""The waits of jobs differ by up to this."""

MOST_ATTEMPTS = 20
"""So many attempts in a row without a node for the launcher end the job.

With the waits and the back-offs that is more than two hours: jobs that only wait for one another, for new nodes or for
a drain find a place in that time.  Each attempt makes all workers anew, and holds their places without training.
"""


def seconds(job: Job) -> int | None:
    """Seconds that the launcher waits; None if it waits for ever, or not at all."""
    if job.attempt.launcher_waits is None or not job.starting or not job.attempt.workers:
        return None
    if job.spec is None or job.spec.scheduling_timeout_seconds is not None:
        return None
    return SHORTEST_SECONDS + crc32(f"{job.key.uid}/{job.attempt.number}".encode()) % SPREAD_SECONDS


def of_wait(job: Job) -> Verdict | None:
    """The launcher found no node in that time: the next attempt follows, and counts against no limit but its own."""
    since, limit = job.attempt.launcher_waits, seconds(job)
    if since is None or limit is None or not passed(job, since.sequence, LAUNCHER_WAIT):
        return None
    held = text.counted(len(job.attempt.workers), "worker")
    if _is_last(job):
        reason = reasons.LAUNCHER_NEVER_PLACED
        told = reasons.told(reasons.ENDS, reason, attempts=MOST_ATTEMPTS, seconds=limit, held=held)
        return Verdict(False, reason, told, permanent=True)
    told = reasons.told(reasons.ENDS, reasons.LAUNCHER_UNSCHEDULABLE, seconds=limit, held=held)
    return Verdict(False, reasons.LAUNCHER_UNSCHEDULABLE, told, disrupted=True)


def _is_last(job: Job) -> bool:
    return job.unplaced + 1 >= MOST_ATTEMPTS


def told(job: Job) -> tuple[At, str, str] | None:
    """Since when the launcher waits for a node, the reason, and a sentence; None while it does not."""
    since, limit, launcher = job.attempt.launcher_waits, seconds(job), job.launcher
    if since is None or limit is None or launcher is None:
        return None
    held = text.counted(len(job.attempt.workers), "worker")
    reason = reasons.LAUNCHER_UNSCHEDULABLE
    said = f"{reason}: {launcher.name} finds no node while {held} of its job hold theirs"
    follows = f"another attempt follows ({job.unplaced + 2} of {MOST_ATTEMPTS} in a row)"
    then = f"the job ends: it is the {MOST_ATTEMPTS}th attempt in a row" if _is_last(job) else follows
    return since, reason, f"{said}; {limit} s after {since.clock} they are given back, and {then}"
