"""Which jobs have all their Kubernetes Events, so that the next process does not create them again."""

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
        self._made: dict[JobKey, set[str]] = {}
        """Targets of Events that are there, of those that each job wanted last."""
        self._complete: dict[JobKey, int] = {}
        """The last event of a job for which all its Events are there."""

    def decided(self, history: History, steps: Iterable[Step]) -> None:
        """These are all steps for the job after its last event."""
        key, wanted = history.job.key, set[str]()
        made = self._made.setdefault(key, set())
        for step in steps:
            if isinstance(step, Record):
                # Events that follow from it are not wanted yet.
                return
            if isinstance(step, Announce):
                wanted.add(step.target)
        made &= wanted
        if made == wanted:
            self._complete[key] = history.sequence

    def made(self, key: JobKey, announce: Announce) -> None:
        # A job that was gone before the call ended stays forgotten.
        if key in self._made:
            self._made[key].add(announce.target)

    def forget(self, key: JobKey) -> None:
        """The job is gone, and needs no Events."""
        self._made.pop(key, None)
        self._complete.pop(key, None)

    def owes(self, history: History) -> bool:
        """True if the job may lack an Event."""
        return not history.job.gone and self._complete.get(history.job.key) != history.sequence
