"""A machine's effects, carried out: side by side within bounds, each outcome remembered, each refusal recorded.

What is wished for is `decide`'s; what is under way, and when it is tried again, is kept in `effects.py`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from math import isfinite

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
from shared.runtime.effects import Wish, Wishes, failed, refused, succeeded
from shared.telemetry.meters import Meters

EFFECTS_IN_FLIGHT = 128
"""Calls of one service at a time: enough to keep an API server busy, few enough not to be turned away."""

EFFECTS_PER_JOB = 64
"""Calls for one job at a time: a job of a thousand workers leaves room for others."""


class Standing(msgspec.Struct, frozen=True):
    """What an effect was decided on: the job, the head of its history, and the time of its last event."""

    job: Job
    head: Head
    time: str


class _Lane:
    """The effects that are under way for one job."""

    def __init__(self) -> None:
        self.wishes = Wishes()
        self.slots = asyncio.Semaphore(EFFECTS_PER_JOB)


class Acts:
    """The effects of one service."""

    def __init__(
        self,
        act: Callable[[Effect, Standing], Awaitable[AnyEvent | None]],
        appends: Appends,
        *,
        owns: Callable[[], bool],
        wake: Callable[[JobKey], None],
        wake_later: Callable[[JobKey, float], None],
        alarm: Callable[[], None],
        chance: Callable[[], float],
        meters: Meters,
    ) -> None:
        self._act = act
        self._appends = appends
        self._owns = owns
        self._wake = wake
        self._wake_later = wake_later
        self._alarm = alarm
        self._chance = chance
        self._meters = meters
        self._lanes: defaultdict[JobKey, _Lane] = defaultdict(_Lane)
        self._slots = asyncio.Semaphore(EFFECTS_IN_FLIGHT)

    def begin(self, history: History, wanted: list[Effect]) -> Iterator[Coroutine[None, None, None]]:
        """What is to be run now of all that one turn wishes for, marked as under way."""
        key = history.job.key
        allowed = [effect for effect in wanted if self._may_begin(key, effect)]
        if not allowed and key not in self._lanes:
            return
        lane = self._lanes[key]
        due = lane.wishes.due(allowed, self._time(), history.sequence)
        if not lane.wishes:
            del self._lanes[key]
        standing = Standing(history.job, history.head, history.time)
        if together := [wish for wish in due if not wish.effect.apart]:
            yield self._round(history, together, standing)
        for wish in due:
            if wish.effect.apart:
                yield self._round(history, [wish], standing)

    def _may_begin(self, key: JobKey, effect: Effect) -> bool:
        """It is safe to repeat, or follows a decision of this very process for the first time."""
        return not effect.once or self._appends.claim(key, effect.once)

    async def _round(self, history: History, wishes: list[Wish], standing: Standing) -> None:
        """Carry out what was wished for in one turn, then record what was refused, once per kind and reason."""
        answers = await asyncio.gather(*(self._carry_out(history, wish, standing) for wish in wishes))
        rejected: defaultdict[tuple[str, str, str], list[Wish]] = defaultdict(list)
        for wish, refusal in zip(wishes, answers, strict=True):
            if refusal is not None:
                kind = type(wish.effect).__name__
                rejected[kind, refusal.reason, refusal.field].append(wish)
        for (kind, reason, field), group in rejected.items():
            slots = spans(slot for wish in group if isinstance(slot := getattr(wish.effect, "slot", None), Slot))
            permanent = reason in PERMANENT
            event = EffectRefused(effect=kind, reason=reason, slots=slots, field=field, permanent=permanent)
            try:
                sequence = await self._appends.insist(history, event)
            except Refused as refusal:
                telling.append_refused(history.job, event, refusal)
                sequence = 0
            for wish in group:
                self._wake_later(history.job.key, refused(wish, self._time(), sequence) + 0.001)
        self._wake(history.job.key)

    async def _carry_out(self, history: History, wish: Wish, standing: Standing) -> Refused | None:
        key = history.job.key
        try:
            with self._meters.effect(wish.effect):
                if wish.effect.apart:
                    fact = await self._act(wish.effect, standing)
                else:
                    async with self._lanes[key].slots, self._slots:
                        self._must_own()
                        fact = await self._act(wish.effect, standing)
            if fact is not None:
                await self._appends.insist(history, fact)
        except Refused as refusal:
            telling.refused(wish.effect, standing.job, standing.head, refusal)
            self._alarm()
            return refusal
        except (Transient, Conflict) as trouble:
            after = None
            if isinstance(trouble, Transient):
                self._alarm()
                after = trouble.retry_after
            delay = failed(wish, self._time(), self._chance(), after)
            telling.retried(wish.effect, standing.job, standing.head, trouble)
            self._wake_later(key, delay + 0.001)
            return None
        except Exception as error:  # noqa: BLE001  logged there, with its traceback
            history.hold("BrokenInvariant", f"{wish.effect.target}: {error!r}")
            telling.held(history, history.sequence, error)
            return None
        if rest := succeeded(wish, self._time()):
            self._wake_later(key, rest + 0.001)
        if isfinite(wish.effect.settle):
            self._wake_later(key, wish.effect.settle + 0.001)
        return None

    def _must_own(self) -> None:
        """What waited for its turn may have waited longer than this replica was the owner."""
        if not self._owns():
            raise Transient("not sent: another replica is the owner by now")

    def _time(self) -> float:
        return asyncio.get_running_loop().time()
