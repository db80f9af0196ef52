"""Which jobs have all their Kubernetes Events, so that the next process does not create them again."""

from collections import defaultdict
from collections.abc import Iterable

from services.status.core.effects import Announce
from shared.job.fold import History
from shared.job.naming import JobKey
from shared.job.steps import Record, Step


class Announced:
    """The Kubernetes Events of one process.

    A sequence tells the next one of them: each job without an event after it has all its Events.  A job that has one
    is decided anew, as an Event may be named after an earlier event of the log.
    """

    def __init__(self) -> None:
        self._made: defaultdict[JobKey, set[str]] = defaultdict(set)
        """Targets of Events that are there."""
        self._complete: dict[JobKey, int] = {}
        """The last event of a job for which all its Events are there."""

    def decided(self, history: History, steps: Iterable[Step]) -> None:
        """These are all steps for the job after its last event."""
        wanted = set[str]()
        for step in steps:
            if isinstance(step, Record):
                # Events that follow from it are not wanted yet.
                return
            if isinstance(step, Announce):
                wanted.add(step.target)
        if wanted <= self._made[history.job.key]:
            self._complete[history.job.key] = history.sequence

    def made(self, key: JobKey, announce: Announce) -> None:
        self._made[key].add(announce.target)

    def forget(self, key: JobKey) -> None:
        """The job is gone, and needs no Events."""
        self._made.pop(key, None)
        self._complete.pop(key, None)

    def owes(self, history: History) -> bool:
        """True if the job may lack an Event."""
        return not history.job.gone and self._complete.get(history.job.key) != history.sequence
