"""The runtime of a service: fold the log, decide, record the decision, and act on what was read back.

An event puts its job into the work queue (`queue.py`); `decide` sees only the folded state.  One append per job is in
flight at a time (`appends.py`), and one effect per target (`acts.py`); jobs overlap within bounds.
"""

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from math import inf
from typing import Protocol, TypeVar
from uuid import uuid4

import structlog

from shared.errors import Refused, Transient
from shared.eventlog import Batch, Bucket, EventLog, Stored
from shared.eventlog.inspection import Space
from shared.eventlog.retry import backoff
from shared.eventlog.subject import filters
from shared.flow import Limiter
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import Author
from shared.job.fold import Held, Histories, History
from shared.job.metrics import JobMetrics
from shared.job.naming import JobKey, namespace_filters
from shared.job.state import Job
from shared.job.steps import Effect, Record, Step
from shared.runtime import log_lines
from shared.runtime.acts import Acts, Context
from shared.runtime.appends import Appends
from shared.runtime.heads import astray
from shared.runtime.queue import Late, Priority, Slice, WorkQueue
from shared.telemetry.metrics import Series
from shared.telemetry.process_metrics import ProcessMetrics

STOP_SECONDS = 5.0
"""How long a stop waits for appends and effects in flight; the kubelet kills the process after 30."""

COMPARE_SECONDS = 1.0
"""Seconds between two comparisons of a history that does not lead to its checkpoint."""

GONE_SECONDS = 30.0
"""A job that is gone and does not lead to its head is cleaned up so many seconds after that was seen all the same.

Its resource, on which a person would accept the lost history, is gone; a watcher would have seen one that is there.
"""

COMPARED_AT_ONCE = 64
"""The most comparisons in flight."""

log = structlog.get_logger()

T = TypeVar("T")


class Service(Protocol):
    """The part of the runtime that differs between the watcher, the scheduler, the scaler and the status service."""

    author: Author

    def decide(self, history: History) -> list[Step]:
        """The steps of this service for the job; pure, except that the watcher compares with its cache."""

    async def act(self, effect: Effect, context: Context) -> AnyEvent | None:
        """Carry out one effect; return a fact that only this call could learn, to be recorded.

        Raises `Transient`, `Conflict` or `Refused`, which is permanent for some reasons.
        """

    async def attend(self, runtime: "Runtime") -> None:
        """Run this service's other work for ever, such as the watches."""
        await asyncio.Event().wait()

    def known(self) -> Iterable[JobKey]:
        """Jobs that this service has seen outside the log."""
        return ()

    def forget(self, key: JobKey) -> None:
        """Let go of a job whose history was sealed; a standby replica, which decides nothing, is told, too."""


class Runtime:
    """One running service; made inside a running event loop."""

    def __init__(
        self,
        service: Service,
        eventlog: EventLog,
        *,
        heads: Bucket | None = None,
        namespace: str = "",
        release: str = "",
        owns: Callable[[], bool] = lambda: True,
        reserved: Callable[[], bool] = lambda: False,
        space: Callable[[], Space] = Space,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_id: Callable[[], str] = lambda: uuid4().hex,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.perf_counter,
        limiter: Limiter | None = None,
        metrics: ProcessMetrics | None = None,
        job_metrics: JobMetrics | None = None,
    ) -> None:
        """Read the events of one `namespace`, or of all without one.  Decisions name the `release`.

        With `heads`, the bucket of checkpoints, each time that this replica begins to act it takes no step for a job of
        which the log has not led to the checkpoint; without, as the watcher, which compares more, it looks at none.
        `owns` says whether this replica may act, `reserved` whether the rest of the log's room is for decisions, and
        `space` the bytes that it may have, and has.  A simulation passes its own time, ids and chance.
        `clock` measures how long a slice of work holds the loop.  `limiter` is that of the requests.  `metrics` counts
        what this process does, `job_metrics` counts jobs.
        """
        self.service = service
        self.histories = Histories(self._measure if job_metrics else None, _warn_of_stray, self._tell_late)
        self.metrics = metrics or ProcessMetrics(service.author)
        self.job_metrics = job_metrics
        self.current = False
        """True once the fold has reached the end that the log had when this replica got the lease."""
        self.folded = asyncio.Event()
        """Set when `current` is true for the first time."""
        self.alarm = asyncio.Event()
        """Set after a failure that may concern more than one job: the service then checks at once."""
        self._clock = clock
        self._queue = WorkQueue[JobKey](clock, flow=lambda key: key.namespace)
        self._slice = Slice(clock)
        self._pass_wanted = asyncio.Event()
        self.appends = Appends(
            service.author, eventlog, self._queue, now=now, new_id=new_id, chance=chance, metrics=self.metrics
        )
        self.eventlog = eventlog
        self._release = release
        self.subjects = namespace_filters(namespace)
        """The filters of what is read; none for all."""
        self.reserved, self.space = reserved, space
        self.owns = owns
        self._chance = chance
        self._acts = Acts(
            service.act,
            self.appends,
            self._queue,
            owns=owns,
            alarm=self.alarm.set,
            chance=chance,
            metrics=self.metrics,
        )
        self._limiter = limiter or Limiter()
        self._act_from = 0
        self._heads = heads
        self._unproven: dict[JobKey, float] = {}
        """Jobs of which this fold has not led to the checkpoint yet, and since when they are gone; infinity before."""
        self._comparing: set[JobKey] = set()
        self._few = asyncio.Semaphore(COMPARED_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._broke: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._told_unmeasured = False
        self._unread = ""
        """Why the log cannot be read, or its end not be asked for."""
        self._stopping = False

    @property
    def trouble(self) -> str:
        """Why this replica cannot read or append; empty if it can.  A standby replica appends nothing."""
        return self._unread or (self.appends.trouble if self.owns() else "")

    @property
    def acting(self) -> bool:
        """True while this replica has the lease and has folded what the last holder wrote."""
        return self.current and self.owns()

    async def run(self) -> None:
        """Fold, decide, record and act until cancelled."""
        self._act_from = await self._end()
        work = (self.service.attend(self), self._read(), self._queue.work(self._decide), self._make_passes())
        tasks = [asyncio.create_task(each) for each in work]
        try:
            done, _ = await asyncio.wait((*tasks, self._broke), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._stopping = True
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._finish()

    def owned(self) -> Coroutine[None, None, None]:
        """This replica got the lease: it stops acting at once, and acts after it has folded the log's present end.

        The coroutine that is returned asks the log for its end.
        """
        # This fold may lack events of the last holder.
        self.current, self._act_from = False, sys.maxsize
        return self._act_from_the_end()

    async def _act_from_the_end(self) -> None:
        self._act_from = await self._end()
        self._catch_up()

    def wake(self, key: JobKey) -> None:
        """Decide again about this job, because something outside the log changed."""
        self._queue.add(key)

    def wake_all(self) -> None:
        """Decide again soon about every job that is not closed; several calls before the pass begins make one pass."""
        self._pass_wanted.set()

    async def _make_passes(self) -> None:
        """Queue the jobs of each pass, those that are not over first."""
        histories = self.histories
        while True:
            await self._pass_wanted.wait()
            self._pass_wanted.clear()
            if not self.current:
                continue
            over: list[JobKey] = []
            # The order is that of the log, because the order of a set depends on the process.
            async for history in self.in_slices(histories.open()):
                if history.job.over:
                    over.append(history.job.key)
                else:
                    self._queue.add(history.job.key, Priority.OPEN)
            async for key in self.in_slices(self.service.known()):
                if not histories.is_open(key):
                    known = histories.get(key)
                    self._queue.add(key, Priority.OVER if known is not None and known.job.over else Priority.OPEN)
            async for key in self.in_slices(over):
                self._queue.add(key, Priority.OVER)

    def in_slices(self, things: Iterable[T]) -> AsyncGenerator[T, None]:
        """Yield each of `things`; the loop runs other callbacks in between, so a pass over many jobs blocks none."""
        return Slice(self._clock).each(things)

    def wake_later(self, key: JobKey, seconds: float) -> None:
        """Decide again about this job in `seconds`, or up to a tick later; a stop drops the timer."""
        self._queue.add_after(key, seconds)

    def late(self) -> Late:
        """The targets of this replica that wait for their change longer than they should."""
        return self._acts.late() if self.owns() else Late()

    def held_for(self) -> Counter[Held]:
        """How many jobs this process does not act on, by reason."""
        reasons = (history.held_for or history.job.integrity.word for history in self.histories.held())
        return Counter(reason for reason in reasons if reason is not None)

    def held(self) -> dict[str, str]:
        """The jobs that this process does not act on, and why."""
        return {
            str(history.job.key): why
            for history in self.histories.held()
            if (why := history.held or history.job.integrity.sentence)
        }

    async def _end(self) -> int:
        """The last sequence of the log now, from the stream's leader, asked for until there is an answer.

        Only the leader is asked: a follower may lag, and this replica would act on an old fold.
        """
        tries = 0
        while True:
            try:
                # The last event may have been purged: the fold never comes to its sequence.
                end = await self.eventlog.end(self.subjects or filters())
            except Transient as trouble:
                self._unread = str(trouble)
                await asyncio.sleep(trouble.retry_after or backoff(tries, chance=self._chance))
                tries += 1
            else:
                self._unread = ""
                return end

    async def _read(self) -> None:
        after, subjects = self.histories.position, self.subjects
        async with aclosing(self.eventlog.read(after=after, subjects=subjects, trouble=self._cannot_read)) as batches:
            async for batch in batches:
                await self._fold(batch)
                self.metrics.read(batch)
                await asyncio.sleep(0)

    def _cannot_read(self, why: str) -> None:
        self._unread = why

    async def _fold(self, batch: Batch) -> None:
        changed: dict[JobKey, None] = {}
        self._slice.begin()
        for stored in batch.events:
            if self._slice.over():
                await asyncio.sleep(0)
                self._slice.begin()
            history = self.histories.fold(stored)
            if history is not None:
                if self.appends.uncertain:
                    self.appends.read_back(history, stored)
                if history.sealed:
                    self._forget(history)
                    changed.pop(history.job.key, None)
                    continue
                changed[history.job.key] = None
                if history.job.status.phase in ("Running", "Scaling") and history.last_decision != stored.sequence:
                    self._limiter.somebody_waits()
                if history.held and history.held_at == stored.sequence:
                    log_lines.held(history, stored.sequence)
        if not self.current:
            self._catch_up()
            return
        if not self.owns():
            # A standby replica only folds.  When it gets the lease, `owned` queues every job.
            return
        # After the whole batch, so that a job is decided once for all of its events.
        for key in changed:
            self._queue.add(key)

    def _forget(self, history: History) -> None:
        key = history.job.key
        self.appends.forget(history)
        self._acts.forget(key)
        self._unproven.pop(key, None)
        self.service.forget(key)

    def _tell_late(self, key: JobKey, stored: Stored) -> None:
        # What a start reads was told when it was stored.
        if self.acting:
            self.metrics.late(stored)
            log_lines.late(key, stored)

    def _measure(self, before: Job, event: AnyEvent, after: Job, time: str) -> None:
        assert self.job_metrics is not None, "only a runtime with metrics of jobs is called back"
        with self._measuring(type=type(event).__name__, job=str(after.key)):
            self.job_metrics.folded(before, event, after, time)

    def measured(self) -> tuple[Series, ...]:
        """The metrics of jobs; none of a service without them."""
        if self.job_metrics is None:
            return ()
        with self._measuring():
            self.job_metrics.count_places()
        return self.job_metrics.series

    @contextmanager
    def _measuring(self, **of: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # Only a metric is wrong: logged once, not for every event.
            if not self._told_unmeasured:
                self._told_unmeasured = True
                log.error("not measured", **of, exc_info=error)

    def _catch_up(self) -> None:
        if self.histories.position >= self._act_from:
            self.current = True
            if self._heads is not None:
                self._unproven = {history.job.key: inf for history in self.histories.open()}
            self.folded.set()
            self.wake_all()

    def _decide(self, key: JobKey) -> None:
        """Decide about one job, and start its append and its effects."""
        # A job that is skipped here is queued again by `wake_all`, once this replica acts.
        if self._stopping or not self.acting:
            return
        # A history without events is not kept: anyone may name any number of jobs.
        history = self.histories.get(key) or History(key)
        if history.held:
            return
        try:
            steps = self.service.decide(history)
        except Exception as error:  # noqa: BLE001  logged there, with its traceback
            # A broken invariant of one job must not stop the others.
            history = self.histories[key]
            history.hold("BrokenInvariant", f"a broken invariant: {error!r}", error=error)
            log_lines.held(history, history.sequence)
            return
        # What needs no step needs no comparison: a start asks for few of the checkpoints.
        if steps and key in self._unproven:
            if key not in self._comparing:
                self._comparing.add(key)
                self._start(self._compare(history))
            return
        record = next((step for step in steps if isinstance(step, Record)), None)
        if record is not None and not history.sequence and self.histories.sealed(key):
            # A resource came back whose job is over for good.
            log_lines.held(self.histories.reopened(key), 0)
            return
        if record is None:
            self.appends.nothing_to_record(history)
        elif (work := self.appends.record(self.histories[key], record.explained(self._release))) is not None:
            self._start(work)
        # A decision may come instead of effects, which are wanted again after it.
        effects = [step for step in steps if isinstance(step, Effect)]
        for work in self._acts.begin(history, effects, all_of_them=record is None):
            self._start(work)
        if history.job.resource.gone:
            self.appends.forget(history)

    async def _compare(self, history: History) -> None:
        """Let the job be decided once its history has led to its checkpoint; until then look again and again.

        The watcher records what is wrong; here a head that this fold does not have yet looks the same.
        """
        key, head = history.job.key, None
        assert self._heads is not None, "no job is unproven without checkpoints"
        try:
            async with self._few:
                head = await astray(self._heads, self.eventlog, history)
        except (Transient, Refused) as trouble:
            log.info("cannot compare a history", job=str(key), why=str(trouble))
        else:
            now, gone = asyncio.get_running_loop().time(), history.job.resource.gone
            if gone and self._unproven.get(key) == inf:
                self._unproven[key] = now
            if head is None or (gone and now - self._unproven.get(key, inf) > GONE_SECONDS):
                self._unproven.pop(key, None)
                self._queue.add(key)
                return
            log_lines.unproven(history, head)
        finally:
            self._comparing.discard(key)
        self.wake_later(key, COMPARE_SECONDS)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)  # the loop itself keeps only weak references
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._broke.done():
            # Shared state may be wrong: the process ends, and the next one folds again.
            self._broke.set_exception(error)

    async def _finish(self) -> None:
        """Wait for appends and effects up to `STOP_SECONDS`, then cancel them: the next lease holder repeats them."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


def _warn_of_stray(stored: Stored) -> None:
    log.warning("not an event of ours", subject=stored.subject, seq=stored.sequence)
