"""Measures the timers of jobs.  Pure: every "now" is an argument.

Judgements run only while the watches work, and start again after a blind watch; promises run on.  Both ends of a
promise are times of the log server: the clocks of nodes may be hours apart.
"""

from collections.abc import Iterable
from datetime import datetime

from shared.job.naming import JobKey
from shared.job.timers import Timer

ASK_AGAIN_SECONDS = 1.0
"""Until the server's clock is looked at again while it is not known."""

FRESH_SECONDS = 1.0
"""An event that the log stored less long ago is measured for the first time."""


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

    def forget(self, key: JobKey) -> None:
        self._due.pop(key, None)

    def measure(
        self, key: JobKey, timers: Iterable[Timer], monotonic: float, server: float | None, *, late: bool = False
    ) -> tuple[list[Timer], float | None]:
        """The expired timers of a job, and the seconds until the next one expires (None without one).

        While the job's facts are `late`, its judgements stand still as with a blind watch.  `server` is the time by the
        log server's clock: until that is known, no promise expires that was not measured before.
        """
        timers = tuple(timers)
        if not timers and key not in self._due:
            return [], None
        measured, running = self._due.get(key, (self._outages, {}))
        seen = measured == self._outages and not late
        kept = {timer: due for timer, due in running.items() if timer in timers and (seen or timer.since)}
        unknown = [timer for timer in timers if timer.since and timer not in kept and server is None]
        for timer in timers:
            if timer not in kept and not timer.since and self._sees and not late:
                kept[timer] = monotonic + timer.seconds - _ahead(timer, server)
            elif timer not in kept and timer.since and server is not None:
                kept[timer] = monotonic + _remaining(timer, server)
        if kept:
            self._due[key] = self._outages, kept
        else:
            self._due.pop(key, None)
        out = [timer for timer, due in kept.items() if due <= monotonic]
        later = [due - monotonic for due in kept.values() if due > monotonic]
        later += [ASK_AGAIN_SECONDS] * bool(unknown)
        return out, min(later) if later else None


def _ahead(timer: Timer, server: float | None) -> int:
    """The seconds of a judgement that had passed at its anchor; none of one that is measured anew."""
    if not timer.ahead or not timer.logged or server is None:
        return 0
    return timer.ahead if abs(server - datetime.fromisoformat(timer.logged).timestamp()) < FRESH_SECONDS else 0


def _remaining(timer: Timer, server: float) -> float:
    elapsed = server - datetime.fromisoformat(timer.since).timestamp()
    # The server's clock may have been set back; that never makes a promise longer.
    return min(max(timer.seconds - elapsed, 0.0), float(timer.seconds))
