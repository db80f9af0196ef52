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
"""The longest time that a job counts: the scheduler may be away."""

SETTLING_SECONDS = 2.0
"""The time that a job counts once its pods are there, if it does not run before: an image may take minutes."""


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

    def frees(self, job: Job, now: float) -> float | None:
        """Seconds until somebody's turn may have come by the state of this job; None if it changes nothing."""
        key = job.key
        until = self._under_way.get(key.namespace, {}).get(key)
        if until is None:
            # A turn that was free for it is free for the next one.
            return 0.0 if self._leave(key) else None
        if not _begins(job):
            under_way = self._under_way[key.namespace]
            del under_way[key]
            if not under_way:
                del self._under_way[key.namespace]
            return 0.0
        if until > now + SETTLING_SECONDS and _has_pods(job):
            self._under_way[key.namespace][key] = now + SETTLING_SECONDS
            return SETTLING_SECONDS
        return None

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

    def _leave(self, key: JobKey) -> bool:
        """Take the job out of its line; False if it stood in none."""
        line = self._line.get(key.namespace, {})
        if key not in line:
            return False
        del line[key]
        if not line:
            del self._line[key.namespace]
        return True


def _has_pods(job: Job) -> bool:
    """True once all pods of the job's first attempt are there."""
    return bool(job.attempt.slots) and job.attempt.slots <= {pod.slot for pod in job.pods.values()}


def _begins(job: Job) -> bool:
    """True while nothing but its start is under way: the job neither ran nor waits for something else."""
    if job.over or job.gone or job.deleting or job.halted or job.problems or job.refusals or job.between_attempts:
        return False
    return bool(job.generation) and job.phase in ("", "Created") and not job.attempt.number
