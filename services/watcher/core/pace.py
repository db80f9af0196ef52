"""What waits before it is recorded: changes of one job's pods, children and labels, and jobs that begin.  Pure.

An event with views of pods costs an append, and every service a decision over all pods of the job: the changes of a
moment are one event.

Of the jobs that begin, what is beyond a number waits in the watcher, where it costs nothing.  In the queues behind it,
before all those of the API server's watches, all namespaces stand in one line: ten thousand jobs of one would hold up
the first of another, and those of fifty namespaces would hold up each other, until hardly a job has all its pods.

A job that waits for long is recorded in brief, so that its status says why.  That is a write, too: there are a few a
second, however many jobs wait.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

import msgspec

from services.watcher.core.cache import Cache
from shared.job.attempt import Members
from shared.job.events.catalog import Fact
from shared.job.events.watcher import ChildrenObserved, JobObserved, PodsGone, PodsObserved
from shared.job.naming import JobKey, config_name
from shared.job.spec import LAUNCHER, MANY_STARTING, Problem
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

SECONDS_PER_START = 0.1
"""Such a wait for each other job that waits: pods take the longer to run the more of them start."""

LONGEST_START_SECONDS = 2.0
"""The longest such wait if many jobs start at once."""

LABELS_SECONDS = 60.0
"""The time after a change of a job's labels during which further ones are merged: a program may write them for ever."""

MOST_WAITED_FOR = 64
"""The slots of a job that waits so; each change of a pod compares all of them."""


def waits_for_the_rest(fact: Fact, job: Job, cache: Cache) -> bool:
    """True if the job starts, all goes well, and no decision follows from this fact before the rest is there.

    The rest of pods are all others, running; the rest of children are the hosts files.
    """
    match fact:
        case PodsObserved():
            return pods_are_to_come(job, cache)
        case ChildrenObserved(children=children) if _waits(job) and all(child.workload is None for child in children):
            held = cache.children_of(job.key).get(("ConfigMap", config_name(job.key.name)))
            known = isinstance(job.membership, Members) and held is not None and held.hosts >= job.membership.version
            return job.spec is not None and job.spec.handling.hosts_files and not known
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
    return min(max(others * SECONDS_PER_START, START_SECONDS), LONGEST_START_SECONDS)


def _is_up(pod: PodView) -> bool:
    # A job runs as soon as its launcher does, Ready or not.
    return pod.ready or (pod.role == LAUNCHER and pod.phase == "Running")


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


MOST = 40
"""Of all namespaces; each may have one, however many there are.  A busy API server takes seconds for each."""

LONGEST_TURN_SECONDS = 60.0
"""The longest time that a job counts: the scheduler may be away."""

SETTLING_SECONDS = 2.0
"""The time that a job counts once its pods are there, if it does not run before: an image may take minutes."""

TOLD_AFTER_SECONDS = 10.0
"""The time that a job waits without a word."""

TOLD_AT_ONCE = 2
"""As many are told each second, of the namespaces by turns: with two statuses, two looks and a Kubernetes Event more
each, a fiftieth of what a small API server takes."""

LIMITS = f"{MOST} jobs begin at once, and one of each namespace in any case"

_WAITS = Problem(
    reason=MANY_STARTING,
    message="many jobs of this namespace or of others are starting; this one waits for its turn",
)


class Starts:
    """The jobs that are being made, and those that wait for their turn, by namespace."""

    def __init__(self) -> None:
        self._under_way: dict[JobKey, float] = {}
        """Until when each counts."""
        self._line: dict[str, dict[JobKey, float]] = {}
        """Who waits, in their order, and since when."""
        self._told: set[JobKey] = set()
        """Those in line of which the log knows, or may know now."""

    def may_begin(self, key: JobKey, now: float, *, told: bool = False) -> bool:
        """True if it is the job's turn, and then it is taken; else the job stands in line.

        `told` if the log knows that it waits.
        """
        if key in self._under_way:
            return True
        self._line.setdefault(key.namespace, {}).setdefault(key, now)
        if key in self.due(now):
            self._under_way[key] = now + LONGEST_TURN_SECONDS
            self._leave(key)
            return True
        if told:
            self._told.add(key)
        return False

    def frees(self, job: Job, now: float) -> float | None:
        """Seconds until this job's state may free a turn for a job in line; None if it changes nothing."""
        key = job.key
        until = self._under_way.get(key)
        if until is None:
            # A turn that was free for it is free for the next one.
            return 0.0 if self._leave(key) else None
        if not _begins(job):
            del self._under_way[key]
            return 0.0
        if until > now + SETTLING_SECONDS and _has_pods(job):
            self._under_way[key] = now + SETTLING_SECONDS
            return SETTLING_SECONDS
        return None

    def due(self, now: float) -> tuple[JobKey, ...]:
        """Whose turn it is: of the namespace with the fewest under way its first in line, and so on."""
        self._under_way = {key: until for key, until in self._under_way.items() if until > now}
        counts = Counter(key.namespace for key in self._under_way)
        free = MOST - len(self._under_way)
        lines = {namespace: iter(line) for namespace, line in self._line.items()}
        found: list[JobKey] = []
        while lines:
            namespace = min(lines, key=counts.__getitem__)
            if counts[namespace] and free <= 0:
                break
            key = next(lines[namespace], None)
            if key is None:
                del lines[namespace]
                continue
            found.append(key)
            counts[namespace] += 1
            free -= 1
        return (*found,)

    def tell(self, now: float) -> tuple[JobKey, ...]:
        """Who is told now; to be called each second."""
        found = (self._told_next(now) for _ in range(TOLD_AT_ONCE))
        return tuple(key for key in found if key is not None)

    def _told_next(self, now: float) -> JobKey | None:
        """Of the namespace whose turn it is the one that came last, as it waits longest from here."""
        for namespace, line in self._line.items():
            late = (key for key, since in reversed(line.items()) if now - since >= TOLD_AFTER_SECONDS)
            key = next((key for key in late if key not in self._told), None)
            if key is not None:
                self._told.add(key)
                self._line[namespace] = self._line.pop(namespace)
                return key
        return None

    def meanwhile(self, job: Job, facts: Sequence[Fact]) -> tuple[Fact, ...]:
        """What is recorded of a job that stands in line: that it waits, if it is told, and then all but its start."""
        if job.resource.generation:
            return tuple(fact for fact in facts if not isinstance(fact, JobObserved))
        if job.key not in self._told:
            return ()
        starts = (fact for fact in facts if isinstance(fact, JobObserved))
        return tuple(msgspec.structs.replace(fact, spec=None, problems=(_WAITS,)) for fact in starts)

    @property
    def waiting(self) -> dict[str, int]:
        return {namespace: len(line) for namespace, line in self._line.items()}

    def _leave(self, key: JobKey) -> bool:
        """Take the job out of its line; False if it stood in none."""
        line = self._line.get(key.namespace, {})
        if key not in line:
            return False
        del line[key]
        self._told.discard(key)
        if not line:
            del self._line[key.namespace]
        return True


def begins(job: Job, facts: Sequence[Fact]) -> bool:
    """True if the job begins with these facts, or would if it were its turn."""
    new = not job.resource.generation or any(problem.reason == MANY_STARTING for problem in job.resource.problems)
    return new and any(isinstance(fact, JobObserved) for fact in facts)


def _has_pods(job: Job) -> bool:
    """True once all pods of the job's first attempt are there."""
    slots = job.attempt.slots
    return 0 < len(slots) <= len(job.pods.views) and slots <= {pod.slot for pod in job.pods.views.values()}


def _begins(job: Job) -> bool:
    """True while nothing but its start is under way: the job neither ran nor waits for something else."""
    if (
        job.over
        or job.resource.gone
        or job.deleting
        or job.halted
        or job.resource.problems
        or job.efforts.refusals
        or job.between_attempts
    ):
        return False
    return bool(job.resource.generation) and job.status.phase in ("", "Created") and not job.attempt.number
