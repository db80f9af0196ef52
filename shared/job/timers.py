"""The names of timers, and whether one expired.  Pure.

`timing.py` says which timers run, by the rules of `policies`; these ask here.
"""

import msgspec

from shared.job.naming import Uid
from shared.job.state import Job

SCALING_DEADLINE = "ScalingDeadline"
JOB_WAIT = "JobWait"
SCRIPT_DEADLINE = "ScriptDeadline"
DRAIN = "Drain"
DRAIN_CHECK = "DrainCheck"
ACTIVE_DEADLINE = "ActiveDeadline"
SCHEDULING = "Scheduling"
RESTART = "Restart"
UNSEEN = "Unseen"
TIME_TO_LIVE = "TimeToLive"
DISRUPTION_DRAIN = "DisruptionDrain"
BELOW_MINIMUM = "BelowMinimum"
WINDING_DOWN = "WindingDown"
"""The timer after which pods that still run after their job's success are cleaned up."""
WAITING = "Waiting"
"""The timer after which people are told what a job waits for."""
STEADY = "Steady"
"""The timer after which a replaced slot, or an attempt after a disruption, is steady."""

REPLACEMENT = "Replacement:"
"""The prefix of a replacement's timer; the seconds follow, because pods of one event may wait for different times."""

FORCED_DELETION = "ForcedDeletion:"
"""The prefix of the timer of a forced deletion; the seconds follow, because pods have different grace periods."""

LAUNCHER_WAIT = "LauncherWait"
"""The timer after which the workers of a launcher without a node give their places back."""

NOTICE = "Notice:"
"""The prefix of the timer of an announced end of a node; the seconds follow, because notices have different lengths."""

WELL = "Well:"
"""The prefix of the timer of a pod whose containers crashed and run again; its uid and their restarts follow."""

BACK_OFF = "BackOff:"
"""The prefix of a refused effect's timer."""


class Timer(msgspec.Struct, frozen=True):
    """`seconds` after the event with the sequence `anchor`, `TimePassed(anchor, name)` is due."""

    anchor: int
    name: str
    seconds: int
    since: str = ""
    """When a promise's anchor was logged; empty for a judgement."""
    of_nodes: bool = False
    """True for a judgement about lost nodes, which runs only while the watcher sees that they are lost."""


def passed(job: Job, anchor: int, name: str) -> bool:
    """True if the timer expired."""
    return (anchor, name) in job.ledger.timers_passed


def well(uid: Uid, restarts: int) -> str:
    """The timer's name."""
    return f"{WELL}{uid}:{restarts}"


def may_appear(job: Job) -> bool:
    """True while pods may appear that were created and not seen before their slots were released."""
    return bool(job.pods.unseen.slots) and not passed(job, job.pods.unseen.since, UNSEEN)
