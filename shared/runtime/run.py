"""The runtime of a service: fold the log, decide, record the decision, and act on what was read back.

An event puts its job into the work queue (`queue.py`); the folded state decides.  One append per job is in flight at a
time (`appends.py`), and one effect per target (`acts.py`); jobs overlap within bounds.  The runtime has no opinion
about jobs: that is `decide`'s.
"""

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Protocol
from uuid import uuid4

import structlog

from shared.errors import Transient
from shared.eventlog import Batch, EventLog, Stored
from shared.eventlog.retry import backoff
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import Author
from shared.job.fold import Held, Histories, History
from shared.job.measures import Measures
from shared.job.naming import JobKey, key_of, namespace_subjects
from shared.job.state import Job
from shared.job.steps import Effect, Record, Step
from shared.runtime import telling
from shared.runtime.acts import Acts, Context
from shared.runtime.appends import Appends
from shared.runtime.queue import Priority, Slice, WorkQueue
from shared.telemetry.meters import Meters

STOP_SECONDS = 5.0
"""How long a stop waits for what is in hand; Kubernetes kills after 30."""

log = structlog.get_logger()


class Service(Protocol):
    """What makes a runtime the watcher, the scheduler, the scaler or status."""

    author: Author

    def decide(self, history: History) -> list[Step]:
        """What this service has to do for the job.  Pure, or, for the watcher, a comparison with what it sees."""

    async def act(self, effect: Effect, context: Context) -> AnyEvent | None:
        """Carry out one effect; raises `Transient`, `Conflict` or `Refused` (`permanent` by its reason).

        What it alone learned by that is a fact to be recorded, until it is stored.
        """

    async def attend(self, runtime: "Runtime") -> None:
        """What else this service does while it runs, such as watching; for ever."""

    def known(self) -> Iterable[JobKey]:
        """Jobs that this service knows of and the log may not."""


class Runtime:
    """One running service; made inside a running event loop."""

    def __init__(
        self,
        service: Service,
        eventlog: EventLog,
        *,
        namespace: str = "",
        owns: Callable[[], bool] = lambda: True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_id: Callable[[], str] = lambda: uuid4().hex,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.perf_counter,
        meters: Meters | None = None,
        measures: Measures | None = None,
    ) -> None:
        """Of the log only what concerns `namespace` is read; everything without one.

        `owns` says whether this replica may act; time, ids and chance come in so that a simulation can own them.
        `clock` is what the time that the loop is held for is measured by.
        `meters` counts what this process does, `measures` what the log tells of jobs.
        """
        self.service = service
        self.histories = Histories(self._measure if measures else None)
        self.meters = meters or Meters(service.author)
        self.measures = measures
        self.current = False
        """The fold reached the log's end as it was when acting began."""
        self.folded = asyncio.Event()
        """Set once `current` was true for the first time."""
        self.alarm = asyncio.Event()
        """Set when a failure may concern more than one job: `readiness.py` then looks at once."""
        self._queue = WorkQueue[JobKey](clock)
        self._slice = Slice(clock)
        self.appends = Appends(
            service.author, eventlog, self._queue, now=now, new_id=new_id, chance=chance, meters=self.meters
        )
        self._log = eventlog
        self._subjects = namespace_subjects(namespace)
        self._owns = owns
        self._chance = chance
        self._acts = Acts(
            service.act,
            self.appends,
            self._queue,
            owns=owns,
            alarm=self.alarm.set,
            chance=chance,
            meters=self.meters,
        )
        self._act_from = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._broke: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._told_unmeasured = False
        self._unread = ""
        """What keeps us from reading the log, or from asking where it ends."""
        self._stopping = False

    @property
    def trouble(self) -> str:
        """What keeps this machine from reading or appending; empty when all is well.

        A replica that is not the owner appends nothing, and learns nothing of how that would go.
        """
        return self._unread or (self.appends.trouble if self._owns() else "")

    async def run(self) -> None:
        """Fold, decide, record and act until cancelled."""
        self._act_from = await self._end()
        work = (self.service.attend(self), self._read(), self._queue.work(self._decide))
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

    def abandon(self) -> None:
        """Drop what is in hand at once, as a crash would; `run` still has to be cancelled."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()

    def owned(self) -> Coroutine[None, None, None]:
        """This replica owns its service from now on: act once everything that the log holds now is folded.

        Nothing is done from the call itself on; what it returns asks where the log ends.
        """
        # Until the end is known nothing is: meanwhile this fold may be older than what another owner did.
        self.current, self._act_from = False, sys.maxsize
        return self._act_from_the_end()

    async def _act_from_the_end(self) -> None:
        self._act_from = await self._end()
        self._catch_up()

    def wake(self, key: JobKey) -> None:
        """Something outside the log changed for this job: decide again."""
        self._queue.add(key)

    def wake_all(self) -> None:
        """Something changed that may concern every job: decide again about each that is not closed."""
        if not self.current:
            return
        # In the order of the log: that of a set depends on the process.
        for history in (*self.histories.open(), *map(self.histories.__getitem__, self.service.known())):
            self._queue.add(history.job.key, Priority.OVER if history.job.over else Priority.OPEN)

    def wake_later(self, key: JobKey, seconds: float) -> None:
        """Decide again in a while, or a little later; a stop forgets it."""
        self._queue.add_after(key, seconds)

    def held_for(self) -> Counter[Held]:
        """How many jobs this process does not act on, by reason."""
        reasons = (history.held_for or history.job.integrity.word for history in self.histories)
        return Counter(reason for reason in reasons if reason is not None)

    def held(self) -> dict[str, str]:
        """The jobs that this process does not act on, and why."""
        return {
            str(history.job.key): why
            for history in self.histories
            if (why := history.held or history.job.integrity.sentence)
        }

    async def _end(self) -> int:
        """The log's end as it is now, asked for until there is an answer.

        It is the stream's leader that says it: a reader that was served by a server that is behind is no owner yet.
        """
        tries = 0
        while True:
            try:
                end = await self._log.end(self._subjects)
            except Transient as trouble:
                self._unread = str(trouble)
                await asyncio.sleep(trouble.retry_after or backoff(tries, chance=self._chance))
                tries += 1
            else:
                self._unread = ""
                return end

    async def _read(self) -> None:
        after, subjects = self.histories.position, self._subjects
        async with aclosing(self._log.read(after=after, subjects=subjects, trouble=self._cannot_read)) as batches:
            async for batch in batches:
                await self._fold(batch)
                self.meters.read(batch)
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
            try:
                history = self.histories.fold(stored)
            except Exception as error:  # noqa: BLE001  logged there, with its traceback
                self._strange(stored, error)
                continue
            if history is not None:
                if self.appends.uncertain:
                    self.appends.read_back(history, stored)
                changed[history.job.key] = None
                if history.held and history.held_at == stored.sequence:
                    telling.held(history, stored.sequence)
        if not self.current:
            self._catch_up()
            return
        # Now, and not before: a job is decided once for all of its events in a batch.
        for key in changed:
            self._queue.add(key)

    def _measure(self, before: Job, event: AnyEvent, after: Job, time: str) -> None:
        assert self.measures is not None, "only a runtime with measures is called back"
        try:
            self.measures.folded(before, event, after, time)
        except Exception as error:
            # A figure is wrong, and no job is: said once, not for every event.
            if not self._told_unmeasured:
                self._told_unmeasured = True
                log.error("not measured", type=type(event).__name__, job=str(after.key), exc_info=error)

    def _strange(self, stored: Stored, error: Exception) -> None:
        """An event that cannot be folded: not ours, or one job's story; every restart would meet it again."""
        try:
            history = self.histories[key_of(stored.subject)]
        except ValueError:
            log.warning("not an event of ours", subject=stored.subject, seq=stored.sequence)
            return
        history.hold("BrokenInvariant", f"a broken invariant at {stored.sequence}: {error!r}")
        telling.held(history, stored.sequence, error)

    def _catch_up(self) -> None:
        if self.histories.position >= self._act_from:
            self.current = True
            self.folded.set()
            self.wake_all()

    def _decide(self, key: JobKey) -> None:
        """Decide about one job, and start what follows."""
        # What is left out here a pass over all jobs makes up for, once this replica acts.
        if self._stopping or not self.current or not self._owns():
            return
        history = self.histories[key]
        if history.held:
            return
        try:
            steps = self.service.decide(history)
        except Exception as error:  # noqa: BLE001  logged there, with its traceback
            # One job's story: a broken invariant must not stop the others.
            history.hold("BrokenInvariant", f"a broken invariant: {error!r}")
            telling.held(history, history.sequence, error)
            return
        record = next((step for step in steps if isinstance(step, Record)), None)
        if record is None:
            self.appends.nothing_to_record(history)
        elif (work := self.appends.record(history, record.event)) is not None:
            self._start(work)
        for work in self._acts.begin(history, [step for step in steps if isinstance(step, Effect)]):
            self._start(work)
        if history.job.gone:
            self.appends.forget(history)

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
        """Wait a little for what is in hand, then drop it: the next owner decides it again."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
