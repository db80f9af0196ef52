"""Measures the timers of jobs.  Pure: every "now" is an argument.

Judgements run only while the watches work, and start again after a blind watch; promises run on.
"""

from collections.abc import Iterable
from datetime import datetime

from shared.job.naming import JobKey
from shared.job.timers import Timer


class Clock:
    """When each running timer is due, on a monotonic clock in seconds."""

    def __init__(self) -> None:
        self._due: dict[JobKey, tuple[int, dict[Timer, float]]] = {}
        """The due times of each job's timers, and the number of outages of the watches when they were measured."""
        self._sees = False
        self._outages = 0

    def note_watches(self, *, sees: bool) -> bool:
        """Note whether the watches work; return True if that changed.  A blind watch resets all judgements."""
        changed, self._sees = sees != self._sees, sees
        self._outages += not sees
        return changed

    def measure(
        self, key: JobKey, timers: Iterable[Timer], monotonic: float, wall: datetime, *, late: bool = False
    ) -> tuple[list[Timer], float | None]:
        """The expired timers of a job, and the seconds until the next one expires (None without one).

        While the job's facts are `late`, its judgements stand still as with a blind watch.
        """
        timers = tuple(timers)
        measured, running = self._due.get(key, (self._outages, {}))
        seen = measured == self._outages and not late
        kept = {timer: due for timer, due in running.items() if timer in timers and (seen or timer.since)}
        for timer in timers:
            if timer not in kept and (timer.since or (self._sees and not late)):
                kept[timer] = monotonic + _remaining(timer, wall)
        if kept:
            self._due[key] = self._outages, kept
        else:
            self._due.pop(key, None)
        out = [timer for timer, due in kept.items() if due <= monotonic]
        later = [due - monotonic for due in kept.values() if due > monotonic]
        return out, min(later) if later else None


def _remaining(timer: Timer, wall: datetime) -> float:
    if not timer.since:
        return float(timer.seconds)
    elapsed = (wall - datetime.fromisoformat(timer.since)).total_seconds()
    # The clocks of two machines may differ; that never makes a promise longer.
    return min(max(timer.seconds - elapsed, 0.0), float(timer.seconds))
