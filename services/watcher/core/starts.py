"""How many jobs are being made at once.  Pure: "now" is an argument.

What begins beyond that waits in the watcher, where it costs nothing.  In the queues behind it, before all those of the
API server's watches, all namespaces stand in one line: ten thousand jobs of one would hold up the first of another, and
those of fifty namespaces would hold up each other, until hardly a job has all its pods.

A job that waits for long is recorded in brief, so that its status says why.  That is a write, too: there are a few a
second, however many jobs wait.
"""

from collections.abc import Sequence

import msgspec

from shared.job.events.catalog import Fact
from shared.job.events.watcher import JobObserved
from shared.job.naming import JobKey
from shared.job.spec import MANY_STARTING, Problem
from shared.job.state import Job

MOST = 40
"""Of all namespaces; each may have one, however many there are.  A busy API server takes seconds for each."""

LONGEST_SECONDS = 60.0
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
        self._under_way: dict[str, dict[JobKey, float]] = {}
        """Until when each counts."""
        self._line: dict[str, dict[JobKey, float]] = {}
        """Who waits, in their order, and since when."""
        self._told: set[JobKey] = set()
        """Those in line of which the log knows, or may know now."""

    def may_begin(self, key: JobKey, now: float, *, told: bool = False) -> bool:
        """True if it is the job's turn, and then it is taken; else the job stands in line.

        `told` if the log knows that it waits.
        """
        if key in self._under_way.get(key.namespace, {}):
            return True
        self._line.setdefault(key.namespace, {}).setdefault(key, now)
        if key in self.due(now):
            self._under_way.setdefault(key.namespace, {})[key] = now + LONGEST_SECONDS
            self._leave(key)
            return True
        if told:
            self._told.add(key)
        return False

    def frees(self, job: Job, now: float) -> float | None:
        """Seconds until this job's state may free a turn for a job in line; None if it changes nothing."""
        key = job.key
        until = self._under_way.get(key.namespace, {}).get(key)
        if until is None:
            # A turn that was free for it is free for the next one.
            return 0.0 if self._leave(key) else None
        if not _begins(job):
            del self._under_way[key.namespace][key]
            return 0.0
        if until > now + SETTLING_SECONDS and _has_pods(job):
            self._under_way[key.namespace][key] = now + SETTLING_SECONDS
            return SETTLING_SECONDS
        return None

    def due(self, now: float) -> tuple[JobKey, ...]:
        """Whose turn it is: of the namespace with the fewest under way its first in line, and so on."""
        self._end(now)
        counts = {namespace: len(self._under_way.get(namespace, ())) for namespace in self._line}
        free = MOST - sum(map(len, self._under_way.values()))
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
        if job.generation:
            return tuple(fact for fact in facts if not isinstance(fact, JobObserved))
        if job.key not in self._told:
            return ()
        starts = (fact for fact in facts if isinstance(fact, JobObserved))
        return tuple(msgspec.structs.replace(fact, spec=None, problems=(_WAITS,)) for fact in starts)

    @property
    def waiting(self) -> dict[str, int]:
        """How many jobs of a namespace wait for their turn."""
        return {namespace: len(line) for namespace, line in self._line.items()}

    def _end(self, now: float) -> None:
        """End the turns whose time is over."""
        lasting = (
            (namespace, {key: until for key, until in under_way.items() if until > now})
            for namespace, under_way in self._under_way.items()
        )
        self._under_way = {namespace: under_way for namespace, under_way in lasting if under_way}

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
    new = not job.generation or any(problem.reason == MANY_STARTING for problem in job.problems)
    return new and any(isinstance(fact, JobObserved) for fact in facts)


def _has_pods(job: Job) -> bool:
    """True once all pods of the job's first attempt are there."""
    slots = job.attempt.slots
    return 0 < len(slots) <= len(job.pods) and slots <= {pod.slot for pod in job.pods.values()}


def _begins(job: Job) -> bool:
    """True while nothing but its start is under way: the job neither ran nor waits for something else."""
    if job.over or job.gone or job.deleting or job.halted or job.problems or job.refusals or job.between_attempts:
        return False
    return bool(job.generation) and job.phase in ("", "Created") and not job.attempt.number
