"""Measures the timers of jobs, only while their watches work and this process runs.

`shared/job/timing.py` says which timers a job has; `clock.py` computes when they expire.
"""

import asyncio
from collections.abc import Callable, Mapping
from math import inf

import structlog

from services.watcher.core.cache import Cache
from services.watcher.core.clock import Clock
from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.kinds import Kinds
from shared.job.events.watcher import TimePassed
from shared.job.fold import History
from shared.job.naming import NO_UID, JobKey
from shared.job.state import Job
from shared.job.timing import next_due

STALL_SECONDS = 5.0
"""A process that stalled this long (it was paused, or had no processor) counts as blind meanwhile."""

log = structlog.get_logger()


class Deadlines:
    """The clocks of one watcher."""

    def __init__(
        self,
        cache: Cache,
        kinds: Kinds,
        now: Callable[[], float | None],
        wake_later: Callable[[JobKey, float], None],
        wake_all: Callable[[], None],
    ) -> None:
        """`now` is the log server's clock."""
        self._cache = cache
        self._kinds = kinds
        self._now = now
        self._wake_later = wake_later
        self._wake_all = wake_all
        self._clocks: Mapping[Resource[Custom], Clock] = {kind: Clock() for kind in cache.jobs}
        """One for each kind of job: the watch of one kind may be broken while the others work."""
        self._promises = Clock()
        """For histories without a kind."""
        self._beat = inf
        """The time of the last heartbeat, on the loop's clock."""

    def look(self) -> None:
        """Tell the clocks which watches work now."""
        changed = [clock.note_watches(sees=self._cache.sees(kind)) for kind, clock in self._clocks.items()]
        if any(changed):
            self._wake_all()

    async def notice_stalls(self) -> None:
        while True:
            self._notice_stall()
            await asyncio.sleep(1.0)

    def _notice_stall(self) -> None:
        loop = asyncio.get_running_loop()
        stood, self._beat = loop.time() - self._beat, loop.time()
        if stood > STALL_SECONDS:
            log.warning("stalled", seconds=round(stood))
            for kind, clock in self._clocks.items():
                clock.note_watches(sees=False)
                clock.note_watches(sees=self._cache.sees(kind))
            loop.call_soon(self._wake_all)

    def _clock_of(self, job: Job) -> Clock:
        if job.key.uid == NO_UID:
            # Whether a request has a job shows in the watch of these.
            return self._clocks.get(self._cache.scaled, self._promises) if self._cache.scaled else self._promises
        framework = self._kinds.find(job.api_version, job.kind)
        return self._clocks[framework.resource] if framework is not None else self._promises

    def passed(self, history: History, *, late: bool) -> list[TimePassed]:
        """The expired timers of this job, which is woken for the next one; `late` if facts about it wait."""
        # After a stall the wake-up of a deadline may be the first thing to run.
        self._notice_stall()
        key, monotonic = history.job.key, asyncio.get_running_loop().time()
        clock = self._clock_of(history.job)
        out, following = clock.measure(key, next_due(history.job), monotonic, self._now(), late=late)
        if following is not None:
            self._wake_later(key, following + 0.001)
        return [TimePassed(anchor=timer.anchor, timer=timer.name) for timer in out]
