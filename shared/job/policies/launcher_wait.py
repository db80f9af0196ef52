"""How long workers hold their places while their launcher finds none, and then give them back.  Pure.

Jobs whose workers fill the nodes would otherwise wait for one another for ever.  Each gives its places back after
another time, so that the launchers that wait get them; schedulingTimeoutSeconds of a job has precedence.
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


def seconds(job: Job) -> int | None:
    """Seconds that the launcher waits; None if it waits for ever, or not at all."""
    if job.attempt.launcher_waits is None or not job.starting or not job.attempt.workers:
        return None
    if job.spec is None or job.spec.scheduling_timeout_seconds is not None:
        return None
    return SHORTEST_SECONDS + crc32(f"{job.key.uid}/{job.attempt.number}".encode()) % SPREAD_SECONDS


def of_wait(job: Job) -> Verdict | None:
    """The launcher found no node in that time: the next attempt follows, and counts against no limit."""
    since, limit = job.attempt.launcher_waits, seconds(job)
    if since is None or limit is None or not passed(job, since.sequence, LAUNCHER_WAIT):
        return None
    held = text.counted(len(job.attempt.workers), "worker")
    told = reasons.told(reasons.ENDS, reasons.LAUNCHER_UNSCHEDULABLE, seconds=limit, held=held)
    return Verdict(False, reasons.LAUNCHER_UNSCHEDULABLE, told, disrupted=True)


def told(job: Job) -> tuple[At, str, str] | None:
    """Since when the launcher waits for a node, the reason, and a sentence; None while it does not."""
    since, limit, launcher = job.attempt.launcher_waits, seconds(job), job.launcher
    if since is None or limit is None or launcher is None:
        return None
    held = text.counted(len(job.attempt.workers), "worker")
    reason = reasons.LAUNCHER_UNSCHEDULABLE
    said = f"{reason}: {launcher.name} finds no node while {held} of its job hold theirs"
    return since, reason, f"{said}; {limit} s after {since.clock} they are given back, and another attempt follows"
