"""Bounds the requests in flight by how long answers take: the API server is busy, and has no queue.

The rule is that of Netflix's concurrency-limits (github.com/Netflix/concurrency-limits), which goes back to TCP Vegas:
how long answers take is compared with how long they took without a queue.  Here means of some answers are compared, as
single ones vary on any server, and each kind of request with itself, as a GET is answered sooner than a patch.  A 429,
an error of the server and a timeout halve the bound.

What is made or removed in bulk has a bound of its own, so that nothing else waits behind it.  The API server's own
fairness is between its clients; between the namespaces of one client the turns are.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from math import inf, sqrt
from typing import NamedTuple

from shared.turns import Turns

FIRST = 4
"""The bound before the first mean: few enough that it is one without a queue."""

LEAST = 8
"""The lowest bound of a server that answers: so many keep a small one busy, whatever else that has to do."""

MOST = 512
"""The highest bound."""

ANSWERS = 16
"""The answers of which a mean is taken."""

TOLERANCE = 2.0
"""Answers may take so many times as long as the lowest mean of late before that counts as a queue."""

DOUBLES_SECONDS = 60.0
"""In this time the lowest mean of late counts as twice as high: the server may have become slower for good."""

_BULK: ContextVar[bool] = ContextVar("bulk", default=False)


@contextmanager
def in_bulk(bulk: bool) -> Iterator[None]:
    """Requests within are those of bulk work, or are not."""
    token = _BULK.set(bulk)
    try:
        yield
    finally:
        _BULK.reset(token)


class Sent(NamedTuple):
    """A request in flight."""

    bound: "Bound"
    number: int
    kind: str
    at: float
    in_flight: int
    """How many there were, this one included."""

    def answered(self) -> None:
        """The request succeeded.  A refusal tells nothing: it takes less time than what was asked for."""
        self.bound.answered(self)

    def throttled(self) -> None:
        """The request got a 429, an error of the server or no answer in time."""
        self.bound.throttled(self)


class _Pace:
    """How long the answers to one kind of request take."""

    def __init__(self) -> None:
        self._count = 0
        self._mean = 0.0
        self._lowest, self._came = inf, 0.0

    def gradient(self, took: float, now: float) -> float | None:
        """From 1 without a queue down to a half, after an answer that took so long; None before the first mean."""
        self._count = min(self._count + 1, ANSWERS)
        self._mean += (took - self._mean) / self._count
        if self._count < ANSWERS:
            return None
        # A night without a request must not overflow.
        lowest = self._lowest * 2 ** min((now - self._came) / DOUBLES_SECONDS, 60.0)
        if self._mean <= lowest:
            lowest = self._lowest = self._mean
            self._came = now
        return max(0.5, min(1.0, TOLERANCE * lowest / self._mean))


class Bound:
    """The requests of bulk work, or all others."""

    def __init__(self) -> None:
        self._turns = Turns(FIRST)
        self._limit = float(FIRST)
        self._paces: defaultdict[str, _Pace] = defaultdict(_Pace)
        """By kind of request."""
        self._begun = 0
        self._begun_at_last_cut = 0

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
    async def slot(self, kind: str, namespace: str) -> AsyncIterator[Sent]:
        async with self._turns.turn(namespace):
            self._begun += 1
            yield Sent(self, self._begun, kind, _now(), self._turns.running)

    def answered(self, sent: Sent) -> None:
        """Move the bound: by a round of quick answers up by its root, by a round of slow ones down to half at most."""
        now = _now()
        gradient = self._paces[sent.kind].gradient(max(now - sent.at, 1e-6), now)
        if gradient is None:
            return
        step = gradient - 1 + 1 / sqrt(self._limit)
        if self._limit < LEAST:
            step = max(step, 1 / self._limit)
        # Where few are in flight, nothing shows that more would be answered as quickly.
        if step < 0 or sent.in_flight * 2 >= self._limit:
            self._set(max(self._limit + step, min(self._limit, LEAST)))

    def throttled(self, sent: Sent) -> None:
        """The request was too much for the server."""
        # A burst of them halves the bound once: requests sent before the last cut do not count.
        if sent.number > self._begun_at_last_cut:
            self._begun_at_last_cut = self._begun
            self._set(max(self._limit / 2, 1.0))

    def _set(self, limit: float) -> None:
        self._limit = min(limit, float(MOST))
        self._turns.limit = int(self._limit)


class Limiter:
    """The two bounds of one client."""

    def __init__(self) -> None:
        self.interactive, self.bulk = Bound(), Bound()

    def slot(self, kind: str, namespace: str = "") -> AbstractAsyncContextManager[Sent]:
        """A place among the requests in flight, once there is one."""
        return (self.bulk if _BULK.get() else self.interactive).slot(kind, namespace)


def _now() -> float:
    """Seconds, by the running loop."""
    return asyncio.get_running_loop().time()
