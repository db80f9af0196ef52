"""The one flow control: places for what is under way, a queue for what waits, by namespace and in it by job.

`Turns` is the queue; appends, effects and requests each have one.  `Shares` refuses what should not wait here: who asks
may come again.  `Limiter` bounds the requests of a process to the
API server.  What is made or removed in bulk has places of its own, so that nothing else waits behind it.

The bounds are numbers of places and do not follow how long answers take: where others load the API server, answers
take long whatever is sent, and who steps back then loses its share.  Only what the server says lowers a bound: a 429
(of its priority and fairness, which also names the seconds), an error of its own, and no answer in time.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from math import inf
from typing import NamedTuple, TypeVar

T = TypeVar("T")

INTERACTIVE = 10
"""Requests in flight that are not of bulk work."""

BULK = 40
"""Requests in flight of bulk work: its share of a server that others use is by their number, not by their age."""

BULK_BESIDE = 12
"""So many of them while something happens to a job that runs: they keep a small server busy, and its queue is short."""

BESIDE_SECONDS = 1.0
"""For so long after that."""

OF_ONE = 0.8
"""The part of these that one namespace may have: where its calls hang in a webhook of its own, others go on."""

OF_ONE_BESIDE = 0.3
"""That part while several namespaces ask: at a busy server each request waits for all that are in flight."""

ASKED_SECONDS = 5.0
"""For so long after one of them asked for something that is not bulk work; a job begins with several calls."""

_BULK: ContextVar[bool] = ContextVar("bulk", default=False)
_WANTED: ContextVar[Callable[[], bool]] = ContextVar("wanted", default=lambda: True)

_Place = asyncio.Future[None]


def in_bulk(bulk: bool) -> AbstractContextManager[None]:
    """Requests within are those of bulk work, or are not."""
    return _within(_BULK, bulk)


def only_while(wanted: Callable[[], bool]) -> AbstractContextManager[None]:
    """Requests within create nothing that is not `wanted` when they are sent: their turn may come late."""
    return _within(_WANTED, wanted)


@contextmanager
def _within(variable: ContextVar[T], value: T) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def is_wanted() -> bool:
    return _WANTED.get()()


class Turns:
    """`async with turns.turn(namespace, job)`; at most `limit` at once, in the order of turns, `of_one` of a job, and
    `of_namespace` of a namespace.

    Namespaces take turns, and jobs of one namespace; within a job it is first come, first served.
    """

    def __init__(self, limit: int, of_one: float = inf, of_namespace: float = inf) -> None:
        self.limit = limit
        self.running = 0
        self.waiting = 0
        """How many wait for a place; none does that could have a free one."""
        self.of_one, self._of_namespace = of_one, of_namespace
        self._running: Counter[tuple[Hashable, ...]] = Counter()
        """By namespace, and by namespace and job."""
        self._waiting: dict[Hashable, dict[Hashable, deque[_Place]]] = {}
        """By namespace and job, whose turn is next first."""

    def resize(self, limit: int) -> None:
        """A lower limit holds for those who come next."""
        self.limit = limit
        self._fill()

    @asynccontextmanager
    async def turn(self, namespace: Hashable, job: Hashable = None) -> AsyncIterator[None]:
        """Wait for the turn of this namespace and job, and for a place."""
        await self.enter(namespace, job)
        try:
            yield
        finally:
            self.leave(namespace, job)

    async def enter(self, namespace: Hashable, job: Hashable = None) -> None:
        """As `turn`, until `leave`: for a place that another caller gives back."""
        if self.running < self.limit and self._may(namespace, job):
            self._take(namespace, job)
            return
        place: _Place = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, {}).setdefault(job, deque()).append(place)
        self.waiting += 1
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                # The place came together with the cancellation: the next one gets it.
                self.leave(namespace, job)
            raise

    def running_of(self, namespace: Hashable) -> int:
        return self._running[namespace,]

    def _may(self, namespace: Hashable, job: Hashable) -> bool:
        return self._running[namespace, job] < self.of_one and self._running[namespace,] < self._of_namespace

    def _take(self, namespace: Hashable, job: Hashable) -> None:
        self.running += 1
        self._running[namespace,] += 1
        self._running[namespace, job] += 1

    def leave(self, namespace: Hashable, job: Hashable = None) -> None:
        self.running -= 1
        _less(self._running, ((namespace,), (namespace, job)))
        self._fill()

    def _fill(self) -> None:
        while self.waiting and self.running < self.limit and (turn := self._next()) is not None:
            place = self._called(*turn)
            if not place.done():
                self._take(*turn)
                place.set_result(None)

    def _next(self) -> tuple[Hashable, Hashable] | None:
        """Whose turn it is, of those who may have more."""
        turns = ((namespace, job) for namespace, jobs in self._waiting.items() for job in jobs)
        return next((turn for turn in turns if self._may(*turn)), None)

    def _called(self, namespace: Hashable, job: Hashable) -> _Place:
        """The job's first place; its next turn, and that of its namespace, come after those of all others."""
        jobs = self._waiting.pop(namespace)
        places = jobs.pop(job)
        place = places.popleft()
        if places:
            jobs[job] = places
        if jobs:
            self._waiting[namespace] = jobs
        self.waiting -= 1
        return place


class Shares:
    """Places without a queue: a caller that would have more of them than are left free gets none.

    So one alone has half, and `n` who take all they can have one part each of `n + 1`: there is always as much for
    another.  Places of one within a part, such as a tenant's of a namespace, leave as much for others of that part.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self._of: Counter[tuple[Hashable, ...]] = Counter()

    def take(self, *path: Hashable, amount: int = 1) -> bool:
        """True if there was room for so much in each part of `path`, outermost first; `give` gives it back."""
        room, parts = self.limit - self.taken - amount, _parts(path)
        for part in parts:
            if self._of.get(part, 0) + amount > room:
                return False
            room -= self._of.get(part, 0)
        self.taken += amount
        for part in parts:
            self._of[part] += amount
        return True

    def give(self, *path: Hashable, amount: int = 1) -> None:
        self.taken -= amount
        _less(self._of, _parts(path), amount)


def _parts(path: tuple[Hashable, ...]) -> list[tuple[Hashable, ...]]:
    return [path[: depth + 1] for depth in range(len(path))]


def _less(counts: Counter[tuple[Hashable, ...]], parts: Iterable[tuple[Hashable, ...]], amount: int = 1) -> None:
    for part in parts:
        counts[part] -= amount
        if not counts[part]:
            # Zero takes no memory: anyone may come.
            del counts[part]


class Bound:
    """The requests of bulk work, or all others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._turns = Turns(most, of_one=int(most * OF_ONE))
        self._limit = float(most)
        self._few, self._few_until = most, 0.0
        self._shared_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        """Sets the bound again when a time of fewer places ends: perhaps no answer comes then."""
        self._begun = self._begun_at_last_cut = 0

    @property
    def limit(self) -> int:
        """How many requests may be in flight now."""
        return self._turns.limit

    @property
    def in_flight(self) -> int:
        return self._turns.running

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return self._turns.waiting

    @asynccontextmanager
    async def place(self, namespace: str) -> AsyncIterator["Sent"]:
        await self._turns.enter(namespace)
        try:
            self._begun += 1
            yield Sent(self, self._begun)
        finally:
            self._turns.leave(namespace)

    def leave_room(self, few: int, seconds: float) -> None:
        """Have few places for so long."""
        self._few, self._few_until = few, _now() + seconds
        self._set(self._limit)

    def has_others(self, namespace: str) -> bool:
        """True if requests of other namespaces are in flight; requests for the whole cluster do not count."""
        return self._turns.running > self._turns.running_of(namespace) + self._turns.running_of("")

    def share(self, seconds: float) -> None:
        """Have fewer places for one namespace for so long."""
        self._shared_until = _now() + seconds
        self._set(self._limit)

    def answered(self) -> None:
        """One place more after a round of answers, up to the most."""
        if self._limit < self._most:
            self._set(min(self._limit + 1 / self._limit, float(self._most)))

    def throttled(self, number: int) -> None:
        """Half the places; a burst halves them once: requests sent before the last cut do not count."""
        if number > self._begun_at_last_cut:
            self._begun_at_last_cut = self._begun
            self._set(max(self._limit / 2, 1.0))

    def _set(self, limit: float) -> None:
        self._limit, now = limit, _now()
        places = int(min(limit, self._few) if now < self._few_until else limit)
        self._turns.of_one = max(int(places * (OF_ONE_BESIDE if now < self._shared_until else OF_ONE)), 1)
        self._turns.resize(places)
        self._set_again(min((end for end in (self._few_until, self._shared_until) if end > now), default=inf))

    def _set_again(self, end: float) -> None:
        """At this time, by one timer however often the bound is set until then."""
        if end < (self._timer.when() if self._timer is not None else inf):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(end, self._is_over)

    def _is_over(self) -> None:
        self._timer = None
        self._set(self._limit)


class Sent(NamedTuple):
    """A request in flight."""

    bound: Bound
    number: int

    def answered(self) -> None:
        """The request succeeded.  A refusal tells nothing."""
        self.bound.answered()

    def throttled(self) -> None:
        """The request got a 429, an error of the server or no answer in time."""
        self.bound.throttled(self.number)


class Limiter:
    """The two bounds of one client of an API server."""

    def __init__(self) -> None:
        self.interactive, self.bulk = Bound(INTERACTIVE), Bound(BULK)

    def somebody_waits(self) -> None:
        """Something happened to a job that runs: bulk work makes room for what follows, in other services too."""
        self.bulk.leave_room(BULK_BESIDE, BESIDE_SECONDS)

    def place(self, namespace: str = "") -> AbstractAsyncContextManager[Sent]:
        """A place among the requests in flight, once there is one."""
        if _BULK.get():
            return self.bulk.place(namespace)
        bounds = (self.interactive, self.bulk)
        if namespace and any(bound.has_others(namespace) for bound in bounds):
            for bound in bounds:
                bound.share(ASKED_SECONDS)
        return self.interactive.place(namespace)


def _now() -> float:
    return asyncio.get_running_loop().time()
