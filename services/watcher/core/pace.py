"""How long the watcher coalesces changes of one job's pods and children.  Pure.

An event with views of pods costs an append, and every service a decision over all pods of the job.
"""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from services.watcher.core.cache import Cache
from shared.job.attempt import Members
from shared.job.events.catalog import Fact
from shared.job.events.watcher import ChildrenObserved, PodsGone, PodsObserved
from shared.job.naming import config_name
from shared.job.spec import LAUNCHER
from shared.job.state import Job
from shared.job.views import PodView, alive

SECONDS_PER_POD = 0.0001
"""The pause for each pod of the job: about ten times what the four services need to fold and decide."""

APPENDS = 3.0
"""The pause in durations of an append, so that a busy log gets fewer appends."""

LONGEST_SECONDS = 0.1
"""The longest pause of a job of up to a thousand pods, which a person who watches the status does not notice."""

LONGEST_OF_MANY_PODS_SECONDS = 1.0
"""The longest pause of any job: that of 10,000 pods."""

SECONDS_PER_JOB = 0.03
"""The pause for each other job that pauses: about thirty events a second for all jobs together."""

LONGEST_IN_A_CROWD_SECONDS = 0.25
"""The longest pause if many jobs start at once; each of them waits longer for its nodes."""

RESTLESS = 20
"""Series in a row after which a job pauses for the longest: no start needs so many, so its pods change for ever."""

IN_A_ROW_SECONDS = 1.0
"""The longest rest between two series of a row."""

SHORTEST_SECONDS = 0.005
"""The shortest pause, during which jobs that change at the same time are counted."""

START_SECONDS = 0.25
"""The longest wait of a job alone for the rest of its start: its status tells of a part no later than this."""

LONGEST_START_SECONDS = 2.0
"""The longest such wait if many jobs start at once."""

MOST_WAITED_FOR = 64
"""The slots of a job that waits so; each change of a pod compares all of them."""


def waits_for_the_rest(fact: Fact, job: Job, cache: Cache) -> bool:
    """True if the job starts, all goes well, and no decision follows from this fact before the rest is there.

    The rest of pods are all others, running; the rest of children are the hosts files.
    """
    match fact:
        case PodsObserved():
            return pods_are_to_come(job, cache)
        case ChildrenObserved(children=children):
            if not _waits(job) or any(child.workload is not None for child in children):
                return False
            return _comes_with_hosts_files(job) and not _has_hosts_files(job, cache)
        case _:
            return False


def pods_are_to_come(job: Job, cache: Cache) -> bool:
    """True if the job starts, pods of it do not run yet, and all goes well."""
    if not _waits(job):
        return False
    pods = cache.pods_of(job.key).values()
    up = {pod.slot for pod in pods if _is_up(pod)}
    return not job.attempt.slots <= up and all(
        alive(pod) and not pod.disruption and not cache.notice(pod) and not cache.lost_node(pod) for pod in pods
    )


def _waits(job: Job) -> bool:
    return job.starting and 0 < len(job.attempt.slots) <= MOST_WAITED_FOR


def wait(others: int) -> float:
    """Seconds to wait for the rest of a start while so many other jobs wait for theirs."""
    return min(max(others * SECONDS_PER_JOB, START_SECONDS), LONGEST_START_SECONDS)


def _is_up(pod: PodView) -> bool:
    # A job runs as soon as its launcher does, Ready or not.
    return pod.ready or (pod.role == LAUNCHER and pod.phase == "Running")


def _comes_with_hosts_files(job: Job) -> bool:
    return job.spec is not None and job.spec.handling.hosts_files


def _has_hosts_files(job: Job, cache: Cache) -> bool:
    held = cache.children_of(job.key).get(("ConfigMap", config_name(job.key.name)))
    return isinstance(job.membership, Members) and held is not None and held.hosts >= job.membership.version


def coalesces(facts: Iterable[Fact]) -> bool:
    """True if the facts hold all changes of pods; changes that do not fit into one event follow at once."""
    return sum(isinstance(fact, PodsObserved | PodsGone) for fact in facts) == 1


def pause(pods: int, append_seconds: float, others: int, row: int = 1) -> float:
    """Seconds to coalesce the changes of a job with so many pods.

    `append_seconds` is the duration of the last append, `others` the number of jobs that pause now, `row` that of this
    job's series without a rest between them.
    """
    of_its_size = min(pods * SECONDS_PER_POD, LONGEST_OF_MANY_PODS_SECONDS)
    busy = LONGEST_SECONDS if row > RESTLESS else min(append_seconds * APPENDS, LONGEST_SECONDS)
    crowd = min(others * SECONDS_PER_JOB, LONGEST_IN_A_CROWD_SECONDS)
    return max(of_its_size, busy, crowd, SHORTEST_SECONDS)


class Row(NamedTuple):
    """The series of one job that follow one another without a rest."""

    length: int = 0
    ends: float = -inf
    """The end of the last pause, in seconds of the loop's clock."""

    def next(self, now: float) -> int:
        """The length with one more series that begins now."""
        return self.length + 1 if now < self.ends + IN_A_ROW_SECONDS else 1
