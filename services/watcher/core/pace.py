"""How long the watcher coalesces changes of one job's pods.  Pure.

An event with views of pods costs an append, and every service a decision over all pods of the job.
"""

from collections.abc import Iterable

from shared.job.events.catalog import Fact
from shared.job.events.watcher import PodsGone, PodsObserved

SECONDS_PER_POD = 0.0001
"""The pause for each pod of the job: about ten times what the four services need to fold and decide."""

APPENDS = 3.0
"""The pause in durations of an append, so that a busy log gets fewer appends."""

LONGEST_SECONDS = 0.1
"""The longest pause, which a person who watches the status does not notice."""

SECONDS_PER_JOB = 0.03
"""The pause for each other job that pauses: about thirty events a second for all jobs together."""

LONGEST_IN_A_CROWD_SECONDS = 0.25
"""The longest pause if many jobs start at once; each of them waits longer for its nodes."""

SHORTEST_SECONDS = 0.005
"""The shortest pause, during which jobs that change at the same time are counted."""


def coalesces(facts: Iterable[Fact]) -> bool:
    """True if the facts hold all changes of pods; changes that do not fit into one event follow at once."""
    return sum(isinstance(fact, PodsObserved | PodsGone) for fact in facts) == 1


def pause(pods: int, append_seconds: float, others: int) -> float:
    """Seconds to coalesce the changes of a job with so many pods.

    `append_seconds` is the duration of the last append, `others` the number of jobs that pause now.
    """
    alone = min(max(pods * SECONDS_PER_POD, append_seconds * APPENDS), LONGEST_SECONDS)
    crowd = min(others * SECONDS_PER_JOB, LONGEST_IN_A_CROWD_SECONDS)
    return max(alone, crowd, SHORTEST_SECONDS)
