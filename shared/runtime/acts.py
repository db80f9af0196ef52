"""The effects of a service, carried out: side by side within bounds, each refusal recorded.

`decide` says which effects are wanted; `queue.py` says which of them are due.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator

import msgspec

from shared.errors import Conflict, Refused, Transient
from shared.job.chain import Head
from shared.job.events.catalog import AnyEvent
from shared.job.events.refused import PERMANENT, EffectRefused
from shared.job.fold import History
from shared.job.naming import JobKey, Slot
from shared.job.state import Job
from shared.job.steps import Effect
from shared.job.views import spans
from shared.runtime import telling
from shared.runtime.appends import Appends
from shared.runtime.queue import InFlight, Item, WorkQueue, failed, refused, succeeded
from shared.telemetry.meters import Meters

EFFECTS_IN_FLIGHT = 128
"""Calls of one service at a time: enough to keep an API server busy, few enough not to be turned away."""

EFFECTS_PER_JOB = 64
"""Calls for one job at a time: a job of a thousand workers leaves room for others."""

TOGETHER_SECONDS = 0.25
"""Refusals of one round that come this close to each other are one event, while other calls of it are under way."""


class Context(msgspec.Struct, frozen=True):
    """What an effect was decided on: the job, the head of its history, and the time of its last event."""

    job: Job
    head: Head
    time: str


class _Lane:
    """The effects of one job that are in flight."""

    def __init__(self) -> None:
        self.in_flight = InFlight()
        self.slots = asyncio.Semaphore(EFFECTS_PER_JOB)


class _Round:
    """The effects that one turn began together, and those of them that were refused and are not recorded yet."""

    def __init__(self, history: History, calls: int) -> None:
        self.history = history
        self.context = Context(history.job, history.head, history.time)
        self.answered = asyncio.Event()
        """No call is under way."""
        self.refused: defaultdict[tuple[str, str, str], list[Item]] = defaultdict(list)
        """By kind of effect, reason and field."""
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
        meters: Meters,
    ) -> None:
        self._act = act
        self._appends = appends
        self._queue = queue
        self._owns = owns
        self._alarm = alarm
        self._chance = chance
        self._meters = meters
        self._lanes: defaultdict[JobKey, _Lane] = defaultdict(_Lane)
        self._slots = asyncio.Semaphore(EFFECTS_IN_FLIGHT)

    def begin(self, history: History, wanted: list[Effect]) -> Iterator[Coroutine[None, None, None]]:
        """What is to be run now of all that one turn wants, marked as running."""
        key = history.job.key
        allowed = [effect for effect in wanted if self._may_begin(key, effect)]
        if not allowed and key not in self._lanes:
            return
        lane = self._lanes[key]
        due = lane.in_flight.due(allowed, self._time(), history.sequence)
        if not lane.in_flight:
            del self._lanes[key]
        if together := [item for item in due if not item.effect.apart]:
            yield self._carry_out(together, _Round(history, len(together)))
        for item in due:
            if item.effect.apart:
                yield self._carry_out([item], _Round(history, 1))

    def _may_begin(self, key: JobKey, effect: Effect) -> bool:
        """It is safe to repeat, or follows a decision of this very process for the first time."""
        return not effect.once or self._appends.claim(key, effect.once)

    async def _carry_out(self, items: list[Item], round_: _Round) -> None:
        """Make the calls of a round; a slow one delays the record of no other one's refusal."""
        async with asyncio.TaskGroup() as tasks:
            for item in items:
                tasks.create_task(self._call(item, round_, tasks))
        self._queue.add(round_.history.job.key)

    async def _call(self, item: Item, round_: _Round, tasks: asyncio.TaskGroup) -> None:
        try:
            refusal = await self._outcome(item, round_.history, round_.context)
        finally:
            round_.call_ended()
        if refusal is not None:
            if not round_.refused:
                tasks.create_task(self._record(round_))
            round_.refused[type(item.effect).__name__, refusal.reason, refusal.field].append(item)

    async def _record(self, round_: _Round) -> None:
        """Record what was refused by the time, one event for each kind and reason."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TOGETHER_SECONDS):
                await round_.answered.wait()
        history, rejected = round_.history, round_.refused.copy()
        round_.refused.clear()
        for (kind, reason, field), items in rejected.items():
            slots = spans(slot for item in items if isinstance(slot := getattr(item.effect, "slot", None), Slot))
            permanent = reason in PERMANENT
            event = EffectRefused(effect=kind, reason=reason, slots=slots, field=field, permanent=permanent)
            try:
                sequence = await self._appends.insist(history, event)
            except Refused as refusal:
                telling.append_refused(history.job, event, refusal)
                sequence = 0
            for item in items:
                self._again(history.job.key, refused(item, self._time(), sequence))

    async def _outcome(self, item: Item, history: History, context: Context) -> Refused | None:
        """Carry out one effect; return how it was refused."""
        key = history.job.key
        try:
            with self._meters.effect(item.effect):
                if item.effect.apart:
                    fact = await self._act(item.effect, context)
                else:
                    async with self._lanes[key].slots, self._slots:
                        self._must_own()
                        fact = await self._act(item.effect, context)
            if fact is not None:
                await self._appends.insist(history, fact)
        except Refused as refusal:
            telling.refused(item.effect, context.job, context.head, refusal)
            self._alarm()
            return refusal
        except (Transient, Conflict) as trouble:
            after = None
            if isinstance(trouble, Transient):
                self._alarm()
                after = trouble.retry_after
            telling.retried(item.effect, context.job, context.head, trouble)
            self._again(key, failed(item, self._time(), self._chance(), after))
            return None
        except Exception as error:  # noqa: BLE001  logged there, with its traceback
            history.hold("BrokenInvariant", f"{item.effect.target}: {error!r}")
            telling.held(history, history.sequence, error)
            return None
        self._again(key, succeeded(item, self._time()))
        self._again(key, item.effect.settle)
        return None

    def _again(self, key: JobKey, seconds: float) -> None:
        """Decide again in `seconds`; of what is due at once the end of its round takes care."""
        if seconds:
            self._queue.add_after(key, seconds + 0.001)

    def _must_own(self) -> None:
        """What waited for its turn may have waited longer than this replica was the owner."""
        if not self._owns():
            raise Transient("not sent: another replica is the owner by now")

    def _time(self) -> float:
        return asyncio.get_running_loop().time()
