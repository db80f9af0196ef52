"""How many jobs of a namespace are being made at once.  Pure: "now" is an argument.

What begins beyond that waits in the watcher, where it costs nothing.  In the queues behind it, before all those of the
API server's watches, all namespaces stand in one line: ten thousand jobs of one would hold up the first of another.
"""

from itertools import islice

from shared.job.naming import JobKey
from shared.job.state import Job

MOST = 20
"""Of one namespace: enough to keep a cluster busy that makes each within a tenth of a second."""

LONGEST_SECONDS = 60.0
"""After which a job counts no more, whatever became of it: somebody may have stopped the scheduler."""

SETTLING_SECONDS = 2.0
"""For which a job counts on once its pods are there, if it does not run before: an image may take minutes."""


def is_made(job: Job) -> bool:
    """True once all pods of the job's first attempt are there, and it does not run yet."""
    return bool(job.attempt.slots) and job.attempt.slots <= {pod.slot for pod in job.pods.values()}


def begins(job: Job) -> bool:
    """True while nothing but its start is under way: the job neither ran nor waits for something else."""
    if job.over or job.gone or job.deleting or job.halted or job.problems or job.refusals or job.between_attempts:
        return False
    return bool(job.generation) and job.phase in ("", "Created") and not job.attempt.number


class Starts:
    """The jobs that are being made, and those that wait for their turn, by namespace."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._under_way: dict[str, dict[JobKey, float]] = {}
        """Until when each counts."""
        self._line: dict[str, dict[JobKey, None]] = {}
        """Who waits, in their order."""

    def may_begin(self, key: JobKey, now: float) -> bool:
        """True if it is the job's turn, and then it is taken; else the job stands in line."""
        under_way = self._under_way.setdefault(key.namespace, {})
        if key not in under_way:
            if not self._free(key.namespace, now):
                self._line.setdefault(key.namespace, {})[key] = None
                return False
            under_way[key] = now + LONGEST_SECONDS
            self._leave(key)
        return True

    def settles(self, key: JobKey, now: float) -> bool:
        """The job's pods are there; True if its turn ends in `SETTLING_SECONDS` by this, and did later before."""
        under_way = self._under_way.get(key.namespace, {})
        if under_way.get(key, 0.0) <= now + SETTLING_SECONDS:
            return False
        under_way[key] = now + SETTLING_SECONDS
        return True

    def started(self, key: JobKey) -> None:
        """The job runs, or waits for something else."""
        self._leave(key)
        under_way = self._under_way.get(key.namespace, {})
        under_way.pop(key, None)
        if not under_way:
            self._under_way.pop(key.namespace, None)

    def due(self, namespace: str, now: float) -> tuple[JobKey, ...]:
        """The first of the line, as many as there are free turns."""
        line = self._line.get(namespace)
        return tuple(islice(line, self._free(namespace, now))) if line else ()

    @property
    def waiting(self) -> dict[str, int]:
        """How many jobs of a namespace wait for their turn."""
        return {namespace: len(line) for namespace, line in self._line.items()}

    def _free(self, namespace: str, now: float) -> int:
        """Free turns; those whose time is over are."""
        under_way = self._under_way.get(namespace, {})
        for old in [old for old, until in under_way.items() if until <= now]:
            del under_way[old]
        return max(self._most - len(under_way), 0)

    def _leave(self, key: JobKey) -> None:
        line = self._line.get(key.namespace, {})
        line.pop(key, None)
        if not line:
            self._line.pop(key.namespace, None)
