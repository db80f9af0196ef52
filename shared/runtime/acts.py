"""The effects of a service, carried out: side by side within bounds, each refusal recorded.

`decide` says which effects are wanted; `queue.py` says which of them are due.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from math import isfinite

import msgspec

from shared.errors import Conflict, Refused, Transient, Withheld
from shared.flow import Turns, in_bulk, only_while
from shared.job import text
from shared.job.chain import Head
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import PERMANENT, EffectRefused
from shared.job.fold import History
from shared.job.naming import JobKey, Slot
from shared.job.policies.retries import told_already
from shared.job.reasons import NAME_HELD
from shared.job.state import Job, refusal_key
from shared.job.steps import Effect
from shared.job.views import spans
from shared.runtime import log_lines
from shared.runtime.appends import Appends
from shared.runtime.queue import InFlight, Item, Late, Leisure, WorkQueue, explained, failed, refused, succeeded
from shared.telemetry.process_metrics import ProcessMetrics

EFFECTS_IN_FLIGHT = 512
"""The most effects of one service under way at a time, of bulk work and of the rest each.

More than there are places for requests, as a server may leave those of one job without an answer.
"""

EFFECTS_PER_JOB = 64
"""Of these for one job: a job of a thousand workers leaves room for others."""

TOGETHER_SECONDS = 0.25
"""The executor collects refusals of one round for so long, and records them as one event."""


class Context(msgspec.Struct, frozen=True):
    """The basis of an effect: the job, the head of its history, and the time of its last event."""

    job: Job
    head: Head
    time: str


class _Lane:
    """The effects of one job that are in flight."""

    def __init__(self, leisure: Leisure) -> None:
        self.in_flight = InFlight(leisure)
        self.look_at = 0.0
        """The loop's time of the next look at what was made and is perhaps never seen: one for all of it."""


class _Round:
    """The effects that one decision began together, and their refusals that are not recorded yet."""

    def __init__(self, history: History, calls: int) -> None:
        self.history = history
        self.context = Context(history.job, history.head, history.time)
        self.answered = asyncio.Event()
        """Set when every call has ended."""
        self.refused: defaultdict[tuple[str, str, str], list[tuple[Item, str]]] = defaultdict(list)
        """By kind of effect, reason and field: each effect with the words of its refusal."""
        self._calls = calls

    def call_ended(self) -> None:
        self._calls -= 1
        if not self._calls:
            self.answered.set()


class Acts:
    """The effects of one service."""

    def __init__(
        self,
        act: Callable[[Effect, Context], Awaitable[AnyEvent | None]],
        appends: Appends,
        queue: WorkQueue[JobKey],
        *,
        owns: Callable[[], bool],
        alarm: Callable[[], None],
        chance: Callable[[], float],
        metrics: ProcessMetrics,
    ) -> None:
        self._act = act
        self._appends = appends
        self._queue = queue
        self._owns = owns
        self._alarm = alarm
        self._chance = chance
        self._metrics = metrics
        self._leisure = Leisure()
        self._lanes: defaultdict[JobKey, _Lane] = defaultdict(lambda: _Lane(self._leisure))
        self._waiting: dict[JobKey, None] = {}
        """Jobs with targets that are to be changed, and some whose targets have been changed since then."""
        self._turns = {bulk: Turns(EFFECTS_IN_FLIGHT, EFFECTS_PER_JOB) for bulk in (False, True)}

    def begin(
        self, history: History, wanted: list[Effect], *, all_of_them: bool
    ) -> Iterator[Coroutine[None, None, None]]:
        """Mark the effects of `wanted` that are due as running; yield the coroutines that carry them out.

        What is not wanted is forgotten, if these are `all_of_them`: a decision that comes first hides the others.
        """
        key = history.job.key
        allowed = [effect for effect in wanted if self._may_begin(key, effect)]
        if not allowed and key not in self._lanes:
            return
        lane = self._lanes[key]
        due = lane.in_flight.due(allowed, self._time(), history.sequence, all_of_them=all_of_them)
        next_due = lane.in_flight.next_due()
        self._requeue_after(key, max(next_due - self._time(), 0.0))
        self._look_at(key, lane.in_flight.settled(self._time()))
        if due or isfinite(next_due):
            self._waiting[key] = None
        if not lane.in_flight:
            del self._lanes[key]
            self._waiting.pop(key, None)
        if together := [item for item in due if not item.effect.apart]:
            yield self._carry_out(together, _Round(history, len(together)))
        for item in due:
            if item.effect.apart:
                yield self._carry_out([item], _Round(history, 1))

    def forget(self, key: JobKey) -> None:
        """The job's history is sealed; calls under way end by themselves."""
        self._lanes.pop(key, None)
        self._waiting.pop(key, None)

    def late(self) -> Late:
        """How many targets wait for their change longer than they should."""
        now, lanes = self._time(), self._lanes
        # Finished jobs keep their lanes, which are too many to look at for every probe.
        self._waiting = {key: None for key in self._waiting if lanes[key].in_flight.waits()}
        waits = [seconds for key in self._waiting for seconds in lanes[key].in_flight.late(now)]
        return Late(len(waits), max(waits, default=0.0))

    def _may_begin(self, key: JobKey, effect: Effect) -> bool:
        """True if the effect is safe to repeat, or if this process recorded its decision and did not act on it yet."""
        return not effect.once or self._appends.use_once(key, effect.once)

    async def _carry_out(self, items: list[Item], round_: _Round) -> None:
        """Make the calls of a round; a slow call does not delay the record of another call's refusal."""
        async with asyncio.TaskGroup() as tasks:
            for bulk in (False, True):
                if some := [item for item in items if item.bulk == bulk]:
                    tasks.create_task(self._begin_in_turn(some, round_, tasks))
        self._queue.add(round_.history.job.key)

    async def _begin_in_turn(self, items: list[Item], round_: _Round, tasks: asyncio.TaskGroup) -> None:
        """Begin each call when its turn has come; until then it is no task, of which a large job would need many."""
        key = round_.history.job.key
        for item in items:
            if not item.effect.apart:
                await self._turns[item.bulk].enter(key.namespace, key)
                if item.unwanted:
                    # Its slot was released while it waited: its pod would come beside those of the next attempt.
                    self._turns[item.bulk].leave(key.namespace, key)
                    item.running = False
                    round_.call_ended()
                    continue
            tasks.create_task(self._call(item, round_, tasks))

    async def _call(self, item: Item, round_: _Round, tasks: asyncio.TaskGroup) -> None:
        try:
            with in_bulk(item.bulk), only_while(lambda: not item.unwanted):
                refusal = await self._outcome(item, round_.history, round_.context)
        finally:
            round_.call_ended()
        if refusal is not None:
            if not round_.refused:
                tasks.create_task(self._record(round_))
            round_.refused[type(item.effect).__name__, refusal.reason, refusal.field].append((item, refusal.words))

    async def _record(self, round_: _Round) -> None:
        """Record the refusals so far: one event for each kind of effect and reason."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TOGETHER_SECONDS):
                await round_.answered.wait()
        history, rejected = round_.history, round_.refused.copy()
        round_.refused.clear()
        for (kind, reason, field), found in rejected.items():
            items = [item for item, _ in found]
            slots = spans(self._slots(history.job.key, items, reason))
            permanent = reason in PERMANENT
            # The next probe is the first slot's effect: the API server's message about it changes only with the cause.
            words = min(found, key=lambda each: each[0].effect.target)[1]
            event = EffectRefused(
                effect=kind, reason=reason, slots=slots, field=field, permanent=permanent, message=text.ends(words)
            )
            sequence, told = 0, told_already(history.job, event)
            if not told:
                try:
                    sequence = await self._appends.append_until_stored(history, event)
                except Refused as refusal:
                    log_lines.append_refused(history.job, event, refusal)
            for item in items:
                if reason == NAME_HELD:
                    item.not_below = sequence
                    delay = failed(item, self._time(), self._chance(), None)
                else:
                    delay = refused(item, self._time(), sequence, longest=told)
                self._requeue_after(history.job.key, delay)

    def _slots(self, key: JobKey, items: list[Item], reason: str) -> set[Slot]:
        """The slots of refused effects; those of names that are held with all others that are."""
        lane = self._lanes.get(key)
        if reason == NAME_HELD and lane is not None:
            items = [*items, *lane.in_flight.held_names(type(items[0].effect))]
        return {slot for item in items if isinstance(slot := getattr(item.effect, "slot", None), Slot)}

    def _lasts(self, item: Item, job: Job, trouble: Transient) -> bool:
        """True if the API server answers so about this object for long, or the job was told so before."""
        if not trouble.reason:
            return False
        lasts = explained(item, self._time(), trouble.reason)
        known = job.efforts.refusals.get(refusal_key(type(item.effect).__name__, trouble.reason))
        return lasts or (known is not None and known.reason == trouble.reason)

    async def _outcome(self, item: Item, history: History, context: Context) -> Refused | None:
        """Carry out one effect; return its refusal."""
        key = history.job.key
        try:
            with self._metrics.effect(item.effect):
                fact = (
                    await self._act(item.effect, context)
                    if item.effect.apart
                    else await self._made_in_turn(item, context)
                )
            if fact is not None:
                await self._appends.append_until_stored(history, fact)
        except Refused as refusal:
            log_lines.refused(item.effect, context.job, context.head, refusal)
            self._alarm()
            return refusal
        except Withheld:
            # A lost lease is said once, by itself: thousands may have waited.
            self._requeue_after(key, failed(item, self._time(), self._chance(), None))
            return None
        except (Transient, Conflict) as trouble:
            after = None
            if isinstance(trouble, Transient):
                self._alarm()
                after = trouble.retry_after
            log_lines.retried(item.effect, context.job, context.head, trouble)
            if isinstance(trouble, Transient) and self._lasts(item, history.job, trouble):
                return Refused(str(trouble), reason=trouble.reason, words=trouble.words)
            conflict = isinstance(trouble, Conflict)
            self._requeue_after(key, failed(item, self._time(), self._chance(), after, conflict=conflict))
            return None
        except Exception as error:  # noqa: BLE001  logged there, with its traceback
            history.hold("BrokenInvariant", f"{item.effect.target}: {error!r}", error=error)
            log_lines.held(history, history.sequence)
            return None
        succeeded(item, self._time())
        self._look_at(key, item.not_before)
        return None

    async def _made_in_turn(self, item: Item, context: Context) -> AnyEvent | None:
        """What the effect observed; its place is free then."""
        key = context.job.key
        try:
            self._must_own()
            began = self._time()
            fact = await self._act(item.effect, context)
            self._leisure.observe(self._time() - began)
        finally:
            self._turns[item.bulk].leave(key.namespace, key)
        return fact

    def _requeue_after(self, key: JobKey, seconds: float) -> None:
        """Requeue the job in `seconds`; not for 0, because the end of the round requeues it."""
        if seconds:
            self._queue.add_after(key, seconds + 0.001)

    def _look_at(self, key: JobKey, moment: float) -> None:
        """Requeue the job at this moment, unless it is looked at before: then the rest is seen to."""
        now, lane = self._time(), self._lanes.get(key)
        if lane is not None and isfinite(moment) and not now < lane.look_at <= moment:
            lane.look_at = moment
            self._requeue_after(key, moment - now)

    def _must_own(self) -> None:
        """Raise `Withheld` if this replica lost the lease while the effect waited for its turn."""
        if not self._owns():
            raise Withheld("this replica lost the lease")

    def _time(self) -> float:
        return asyncio.get_running_loop().time()
