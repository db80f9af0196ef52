"""How often the pods of one job are told of, when they change one after the other.  Pure.

A series of views costs the log an append, and every service a look at all of the job's pods.
"""

from collections.abc import Iterable

from shared.job.events.catalog import Fact
from shared.job.events.watcher import PodsGone, PodsObserved

SECONDS_PER_POD = 0.0001
"""Folding a series and deciding on it takes the four services about a tenth of that for each pod of the job."""

APPENDS = 3.0
"""A pause in appends: a log that is busy with other jobs takes longer for each, and is asked less."""

LONGEST_SECONDS = 0.1
"""What a person who looks at the status does not notice."""

SECONDS_PER_JOB = 0.03
"""For each job that pauses at the same time: about thirty series a second of all jobs together, if they can wait."""

LONGEST_IN_A_CROWD_SECONDS = 0.25
"""Where many jobs start at once, each waits longer for nodes and API server than this."""

SHORTEST_SECONDS = 0.005
"""Of any job: so that those that are told of at the same time are counted."""


def coalesces(facts: Iterable[Fact]) -> bool:
    """True if changes of pods were recorded whole; what does not fit into one event goes on at once."""
    return sum(isinstance(fact, PodsObserved | PodsGone) for fact in facts) == 1


def pause(pods: int, append_seconds: float, others: int) -> float:
    """Seconds from one series of views of a job with so many pods to the next.

    `append_seconds` is how long an append takes at the moment, `others` how many jobs pause at the moment.
    """
    alone = min(max(pods * SECONDS_PER_POD, append_seconds * APPENDS), LONGEST_SECONDS)
    crowd = min(others * SECONDS_PER_JOB, LONGEST_IN_A_CROWD_SECONDS)
    return max(alone, crowd, SHORTEST_SECONDS)
