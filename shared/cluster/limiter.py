"""Bounds the requests in flight by how long answers take: the API server is busy, and has no queue.

The rule is that of `GradientLimit` in Netflix's concurrency-limits (github.com/Netflix/concurrency-limits), which goes
back to TCP Vegas: each answer is compared with the quickest one of late, of the same kind of request, because a GET is
answered sooner than a patch.  A 429 halves the bound.

What is made or removed in bulk has a bound of its own, so that nothing else waits behind it.  The API server's own
fairness is between its clients; between the namespaces of one client the turns are.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from math import sqrt
from typing import NamedTuple

from shared.turns import Turns

FIRST = 16
"""The bound before the first answer."""

LEAST = 8
"""The lowest bound without a 429: so many keep a small API server busy, whatever else that has to do."""

MOST = 512
"""The highest bound."""

TOLERANCE = 2.0
"""An answer may take so many times as long as the quickest of late before that counts as a queue."""

DOUBLES_SECONDS = 60.0
"""In this time the quickest answer of late counts as twice as slow: the server may have become slower for good."""

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


class Bound:
    """The requests of bulk work, or all others."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` is in seconds."""
        self._clock = clock
        self._turns = Turns(FIRST)
        self._limit = float(FIRST)
        self._quickest: dict[str, tuple[float, float]] = {}
        """The seconds of the quickest answer of late by kind of request, and when it came."""
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
            yield Sent(self, self._begun, kind, self._clock(), self._turns.running)

    def answered(self, sent: Sent) -> None:
        """Move the bound: by a round of quick answers up by its root, by a round of slow ones down to half at most."""
        now = self._clock()
        took = max(now - sent.at, 1e-6)
        quickest, came = self._quickest.get(sent.kind, (took, now))
        quickest *= 2 ** ((now - came) / DOUBLES_SECONDS)
        if took <= quickest:
            quickest = took
            self._quickest[sent.kind] = took, now
        gradient = max(0.5, min(1.0, TOLERANCE * quickest / took))
        step = gradient - 1 + 1 / sqrt(self._limit)
        # Where few are in flight, nothing shows that more would be answered as quickly.
        if step < 0 or sent.in_flight * 2 >= self._limit:
            self._set(max(self._limit + step, min(self._limit, LEAST)))

    def throttled(self, sent: Sent) -> None:
        """The request got a 429."""
        # A burst of 429s halves the bound once: requests sent before the last cut do not count.
        if sent.number > self._begun_at_last_cut:
            self._begun_at_last_cut = self._begun
            self._set(max(self._limit / 2, 1.0))

    def _set(self, limit: float) -> None:
        self._limit = min(limit, float(MOST))
        self._turns.limit = int(self._limit)


class Limiter:
    """The two bounds of one client."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """`clock` is in seconds; the running loop's unless given."""
        time = clock or (lambda: asyncio.get_running_loop().time())
        self.interactive, self.bulk = Bound(time), Bound(time)

    @asynccontextmanager
    async def slot(self, kind: str, namespace: str = "") -> AsyncIterator[Sent]:
        """Wait for a place among the requests in flight; give what `answered` or `throttled` is told of."""
        async with (self.bulk if _BULK.get() else self.interactive).slot(kind, namespace) as sent:
            yield sent

    @staticmethod
    def answered(sent: Sent) -> None:
        """The request succeeded.  A refusal tells nothing: it takes less time than what was asked for."""
        sent.bound.answered(sent)

    @staticmethod
    def throttled(sent: Sent) -> None:
        """The request got a 429."""
        sent.bound.throttled(sent)
