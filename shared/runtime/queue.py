"""The work queue of a service: which jobs it decides next, and which effects of each job are in flight.

`WorkQueue` holds keys of jobs: each once, by priority, now or at a due time.  `InFlight` holds the effects of one job
by target, with their back-off and the times of what can wait.  Losing either costs calls, never correctness: effects
are safe to repeat.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable
from enum import IntEnum
from math import ceil, inf, isfinite
from typing import Generic, TypeVar

import msgspec

from shared.backoff import doubled
from shared.job.policies.retries import LONGEST_EFFECT_SECONDS, before_effect
from shared.job.reasons import NAME_HELD
from shared.job.steps import Effect

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

TICK_SECONDS = 0.05
"""Due times of one key within one tick coalesce."""

SLICE_SECONDS = 0.005
SLICE_KEYS = 100
"""The queue yields to the loop's other callbacks after `SLICE_KEYS` keys or `SLICE_SECONDS`, whichever is first."""

FIRST_RETRY_SECONDS = 0.2
LONGEST_RETRY_SECONDS = 30.0
LONGEST_RETRY_OF_A_NAME_SECONDS = 2.0
"""A name is free in the moment when the object that holds it ends, of which nothing else may tell."""
FIRST_RETRY_AFTER_CONFLICT_SECONDS = 0.01
"""Another writer came in between, which is no overload (as in client-go, `retry.DefaultRetry`)."""

TOLD_AFTER_SECONDS = 10.0
"""An effect that the API server answers with the same trouble for so long is told as refused."""

SOONEST_SECONDS = 0.25
LATEST_SECONDS = 10.0
"""What can wait is carried out between these two times after it was wanted first."""
SHARE = 0.8
"""The effects that could wait have this many calls in flight on the average: an API server that answers slowly gets
fewer of them.
"""


class Priority(IntEnum):
    """Which keys are taken first."""

    CHANGED = 0
    """An event, a watch or a timer named this job."""
    OPEN = 1
    """A pass over all jobs; this one is not over."""
    OVER = 2
    """A pass over all jobs; this one is over."""


class Slice:
    """A stretch of work that ends in time for the loop's other callbacks.

    `clock` is in seconds, and has to advance during a callback, which the time of some loops does not.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._until = 0.0

    def begin(self) -> None:
        self._until = self._clock() + SLICE_SECONDS

    def over(self) -> bool:
        return self._clock() >= self._until

    async def each(self, things: Iterable[T]) -> AsyncGenerator[T, None]:
        """Yield each of `things`; after every slice the loop runs its other callbacks."""
        self.begin()
        for thing in things:
            yield thing
            if self.over():
                await asyncio.sleep(0)
                self.begin()


class WorkQueue(Generic[K]):
    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, *, flow: Callable[[K], Hashable] = lambda _: None
    ) -> None:
        """Keys of one priority are taken by turns of their `flow`, and in the order in which they were added."""
        self._slice = Slice(clock)
        self._flow = flow
        self._ready: tuple[dict[Hashable, dict[K, None]], ...] = tuple({} for _ in Priority)
        """The keys of each priority by flow, the flow whose turn is next first."""
        self._due: dict[int, dict[K, None]] = {}
        """The keys of each tick to come."""
        self._added = asyncio.Event()

    def add(self, key: K, priority: Priority = Priority.CHANGED) -> None:
        """Queue `key`; a queued key keeps its place, unless the new priority is higher."""
        flow = self._flow(key)
        if any(key in ready.get(flow, ()) for ready in self._ready[: priority + 1]):
            return
        for ready in self._ready[priority + 1 :]:
            if key in ready.get(flow, ()):
                self._take(ready, flow, key)
        self._ready[priority].setdefault(flow, {})[key] = None
        self._added.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Queue `key` in `seconds`, or up to a tick later; never if they are infinite."""
        loop = asyncio.get_running_loop()
        if seconds < TICK_SECONDS:
            loop.call_later(seconds, self.add, key)
        elif isfinite(seconds):
            tick = ceil((loop.time() + seconds) / TICK_SECONDS)
            if tick not in self._due:
                self._due[tick] = {}
                loop.call_at(tick * TICK_SECONDS, self._ring, tick)
            self._due[tick][key] = None

    async def work(self, do: Callable[[K], None]) -> None:
        """Call `do` with each key that is due, one after the other, for ever."""
        while True:
            await self._added.wait()
            self._slice.begin()
            for _ in range(SLICE_KEYS):
                ready = next((ready for ready in self._ready if ready), None)
                if ready is None:
                    self._added.clear()
                    break
                flow, keys = next(iter(ready.items()))
                key = next(iter(keys))
                self._take(ready, flow, key)
                if keys:
                    # The next turn of this flow comes after those of all others.
                    ready[flow] = ready.pop(flow)
                do(key)
                if self._slice.over():
                    break
            await asyncio.sleep(0)

    @staticmethod
    def _take(ready: dict[Hashable, dict[K, None]], flow: Hashable, key: K) -> None:
        keys = ready[flow]
        del keys[key]
        if not keys:
            del ready[flow]

    def _ring(self, tick: int) -> None:
        for key in self._due.pop(tick):
            self.add(key)


class Item(msgspec.Struct, gc=False):
    """One effect on one target, and its progress.  `gc=False`: finished jobs keep several for the process's life."""

    effect: Effect
    begun: float = 0.0
    """The loop's time."""
    running: bool = True
    not_before: float = 0.0
    """The loop's time before which the effect is not repeated."""
    not_below: int = 0
    """The sequence of its recorded refusal, which has to be folded before the effect is repeated."""
    due: float = 0.0
    """The loop's time at which a change that can wait is carried out; 0 without one."""
    wanted: float = inf
    """The loop's time since which the target is to be changed; infinite while it is as wanted."""
    tries: int = 0
    """Transient failures in a row."""
    answered: float = inf
    """The loop's time since which the API server's answers about this object say why it fails; infinite without."""
    reason: str = ""
    """The reason in the last one of these."""
    refusals: int = 0
    """Refusals in a row."""
    bulk: bool = False
    """True if it began as one of many; a later try of it alone is still one of them."""
    unwanted: bool = False
    """True while it waits for its turn and no decision wants it any more: what was not sent yet is not created."""

    def settles(self, now: float) -> bool:
        """True if it made something that lasts, so recently that the same is not made again, wanted or not."""
        return self.effect.lasting and not self.tries and not self.refusals and now < self.not_before


class Late(msgspec.Struct, frozen=True):
    """The targets that are to be changed for longer than `Effect.latest` of their effects."""

    targets: int = 0
    seconds: float = 0.0
    """Since the first of them was to be changed."""


class Leisure:
    """When effects that can wait are carried out: one after the other, at the pace of the API server."""

    def __init__(self) -> None:
        self._next = 0.0
        self._took = 0.0

    def observe(self, seconds: float) -> None:
        """An effect took so long."""
        self._took += (seconds - self._took) / 8

    def place(self, now: float) -> float:
        """The time at which another one is carried out."""
        self._next = min(max(self._next, now + SOONEST_SECONDS) + self._took / SHARE, now + LATEST_SECONDS)
        return self._next


class InFlight:
    """The effects of one job that run, wait for a watch to show them or for their time, or back off."""

    def __init__(self, leisure: Leisure) -> None:
        self._leisure = leisure
        self._by_target: dict[str, Item] = {}

    def __len__(self) -> int:
        return len(self._by_target)

    def due(self, wanted: list[Effect], now: float, sequence: int, *, all_of_them: bool = True) -> list[Item]:
        """The effects of `wanted` to carry out now, marked as running.

        Others are forgotten, if these are `all_of_them`.
        """
        targets = {effect.target: effect for effect in wanted}
        for target, known in self._by_target.items():
            # What is made once for good, such as a Kubernetes Event, is not wanted again by the next decision.
            if known.running and isfinite(known.effect.settle) and (all_of_them or target in targets):
                known.unwanted = target not in targets or (known.unwanted and targets[target] != known.effect)
        unwanted = [
            target
            for target, item in self._by_target.items()
            if target not in targets and not item.running and not item.settles(now)
        ]
        for target in unwanted if all_of_them else ():
            del self._by_target[target]
        due = [item for effect in targets.values() if (item := self._begin(effect, now, sequence)) is not None]
        _mark_bulk(due)
        return due

    def next_due(self) -> float:
        """The loop's time at which the first change that can wait is carried out; infinite without one."""
        return min((item.due for item in self._by_target.values() if item.due), default=inf)

    def settled(self, now: float) -> float:
        """The loop's time at which the first change that was made and is still wanted may be repeated; or infinite."""
        made = (item.not_before for item in self._by_target.values() if not item.running and not item.tries)
        return min((settled for settled in made if settled > now), default=inf)

    def held_names(self, effect: type[Effect]) -> list[Item]:
        """The effects of this type that find their names held."""
        return [item for item in self._by_target.values() if item.reason == NAME_HELD and type(item.effect) is effect]

    def waits(self) -> bool:
        """True if a target is to be changed."""
        return any(isfinite(item.wanted) for item in self._by_target.values())

    def late(self, now: float) -> list[float]:
        """The seconds since which each target is to be changed that is late."""
        waits = ((item, now - item.wanted) for item in self._by_target.values())
        return [seconds for item, seconds in waits if seconds > item.effect.latest]

    def _begin(self, effect: Effect, now: float, sequence: int) -> Item | None:
        known = self._by_target.get(effect.target)
        if known is not None:
            if known.running or sequence < known.not_below:
                return None
            if effect == known.effect:
                known.due = 0.0
                if not known.tries and not known.refusals:
                    known.wanted = inf
            elif not known.tries and not known.refusals and effect.can_wait(known.effect):
                known.due = known.due or self._leisure.place(now)
                known.wanted = min(known.wanted, now)
                if now < known.due:
                    return None
            # After a transient failure any effect on that target waits; after success only the same one.
            if now < known.not_before and (known.tries or known.effect == effect):
                return None
        item = Item(effect, begun=now, wanted=now)
        if known is not None:
            item.tries, item.refusals, item.wanted = known.tries, known.refusals, min(known.wanted, now)
            item.answered, item.reason = known.answered, known.reason
            item.bulk = known.bulk and bool(known.tries or known.refusals)
        self._by_target[effect.target] = item
        return item


def _mark_bulk(items: list[Item]) -> None:
    """Mark what is made or removed for several slots, or told several times, at once."""
    bulk = [item for item in items if item.effect.bulk]
    if len({getattr(item.effect, "slot", None) or item.effect.target for item in bulk}) > 1:
        for item in bulk:
            item.bulk = True


def succeeded(item: Item, now: float) -> None:
    """The effect succeeded; the same one is not repeated before a watch had time to show its outcome."""
    item.running, item.tries, item.refusals, item.not_before = False, 0, 0, now + item.effect.settle
    item.wanted, item.answered, item.reason = inf, inf, ""


def failed(item: Item, now: float, jitter: float, retry_after: float | None, *, conflict: bool = False) -> float:
    """The effect failed transiently; return the seconds until the next try.  `jitter` is between 0 and 1."""
    first = FIRST_RETRY_AFTER_CONFLICT_SECONDS if conflict else FIRST_RETRY_SECONDS
    longest = LONGEST_RETRY_OF_A_NAME_SECONDS if item.reason == NAME_HELD else LONGEST_RETRY_SECONDS
    delay = doubled(first, item.tries + 1, longest) * (0.5 + jitter)
    delay = max(delay, retry_after or 0.0)
    if now < item.answered + TOLD_AFTER_SECONDS:
        delay = min(delay, item.answered + TOLD_AFTER_SECONDS - now)
    item.running, item.tries, item.not_before = False, item.tries + 1, now + delay
    return delay


def explained(item: Item, now: float, reason: str) -> bool:
    """Note the reason that the API server gives for this object; True once it has given one for long enough to tell."""
    item.answered, item.reason = min(item.answered, now), reason
    return now >= item.answered + TOLD_AFTER_SECONDS


def refused(item: Item, now: float, sequence: int, *, longest: bool = False) -> float:
    """The effect was refused, and the refusal is recorded at `sequence`; 0 if it is not recorded.

    With `longest` the next try waits for the longest back-off, as after a refusal that the job knows already.
    Return the seconds until the same effect is repeated, if `decide` still wants it.
    """
    item.running, item.tries, item.not_below = False, 0, sequence
    item.refusals += 1
    delay = float(LONGEST_EFFECT_SECONDS if longest else before_effect(item.refusals))
    item.not_before = now + delay
    return delay
