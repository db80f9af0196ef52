"""Measures the timers of jobs, only while their watches work and this process runs.

`shared/job/timing.py` says which timers a job has; `clock.py` computes when they expire.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from math import inf

import structlog

from services.watcher.core.cache import Cache
from services.watcher.core.clock import Clock
from services.watcher.core.nodes import still_lost
from services.watcher.core.turns import of_crashes
from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.kinds import Kinds
from shared.job.events.watcher import TimePassed
from shared.job.fold import History, closed
from shared.job.naming import NO_UID, JobKey
from shared.job.state import Job, Memo
from shared.job.timers import SEAL, STALL, Timer, passed
from shared.job.timing import next_due

STALL_SECONDS = 5.0
"""A process that stalled this long (it was paused, or had no processor) counts as blind meanwhile."""

_Watched = tuple[Resource[Custom] | None, bool]
"""A kind of job, and whether nodes count, too."""

log = structlog.get_logger()


class Deadlines:
    def __init__(
        self,
        cache: Cache,
        kinds: Kinds,
        now: Callable[[], float | None],
        wake_later: Callable[[JobKey, float], None],
        wake_all: Callable[[], None],
        seal_after: int | None = None,
        *,
        reports: Callable[[str], bool],
    ) -> None:
        """`now` is the log server's clock, `seal_after` when the history of a closed job may be sealed; None: never.

        `reports` is false of a namespace whose trainings cannot report: there no silence counts.
        """
        self._seal_after = seal_after
        self._reports = reports
        self._cache = cache
        self._kinds = kinds
        self._now = now
        self._wake_later = wake_later
        self._wake_all = wake_all
        self._clocks: Mapping[_Watched, Clock] = {
            (kind, of_nodes): Clock() for kind in (*cache.jobs, None) for of_nodes in (False, True)
        }
        """By kind of job, as the watch of one kind may be broken while the others work; None for no kind that is known.

        Another one measures what depends on nodes.
        """
        self._beat = inf
        """The time of the last heartbeat, on the loop's clock."""
        self._next_due = Memo(next_due)

    def look(self) -> None:
        """Tell the clocks which watches work now."""
        changed = [clock.note_watches(sees=self._sees(*watched)) for watched, clock in self._clocks.items()]
        if any(changed):
            self._wake_all()

    def forget(self, key: JobKey) -> None:
        for clock in self._clocks.values():
            clock.forget(key)
        self._next_due.forget(key)

    async def notice_stalls(self) -> None:
        while True:
            self._notice_stall()
            await asyncio.sleep(1.0)

    def _notice_stall(self) -> None:
        loop = asyncio.get_running_loop()
        stood, self._beat = loop.time() - self._beat, loop.time()
        if stood > STALL_SECONDS:
            log.warning("stalled", seconds=round(stood))
            for watched, clock in self._clocks.items():
                clock.note_watches(sees=False)
                clock.note_watches(sees=self._sees(*watched))
            loop.call_soon(self._wake_all)

    def _of_the_seal(self, job: Job) -> Iterator[Timer]:
        if self._seal_after is not None and closed(job) and not passed(job, job.resource.gone, SEAL):
            yield Timer(job.resource.gone, SEAL, self._seal_after)

    def _sees(self, kind: Resource[Custom] | None, of_nodes: bool) -> bool:
        return kind is not None and self._cache.sees(kind) and (self._cache.sees_nodes or not of_nodes)

    def _kind_of(self, job: Job) -> Resource[Custom] | None:
        if job.key.uid == NO_UID:
            # Whether a request has a job shows in the watch of these.
            return self._cache.scaled
        framework = self._kinds.find(job.resource.api_version, job.resource.kind)
        return framework.resource if framework is not None else None

    def passed(self, history: History, *, late: bool) -> list[TimePassed]:
        """The expired timers of this job, which is woken for the next one; `late` if facts about it wait."""
        # After a stall the wake-up of a deadline may be the first thing to run.
        self._notice_stall()
        if not history.sequence:
            return []
        job, monotonic, server = history.job, asyncio.get_running_loop().time(), self._now()
        kind, due = self._kind_of(job), (*self._next_due(job), *of_crashes(job, self._cache), *self._of_the_seal(job))
        due = tuple(timer for timer in due if timer.name != STALL or self._reports(job.key.namespace))
        unsure = late or (any(timer.of_nodes for timer in due) and not still_lost(job, self._cache))
        found: list[TimePassed] = []
        for of_nodes in (False, True):
            clock, timers = self._clocks[kind, of_nodes], [timer for timer in due if timer.of_nodes is of_nodes]
            out, following = clock.measure(job.key, timers, monotonic, server, late=unsure if of_nodes else late)
            if following is not None:
                self._wake_later(job.key, following + 0.001)
            found += [TimePassed(anchor=timer.anchor, timer=timer.name) for timer in out]
        return found
