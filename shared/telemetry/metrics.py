"""Counters, gauges and histograms, by labels.  Pure; `shared.process.serving` serves them.

Names and units follow Prometheus; the labels of one metric take few values.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Literal, Self

import msgspec

Labels = tuple[str, ...]

MOST_WORDS = 64
"""The most reasons that one process uses as label values: plug-ins bring their own, and each is a series for ever."""

OTHER = "Other"

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]{0,63}")


class Metric(msgspec.Struct, frozen=True):
    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: Labels
    meaning: str
    """One sentence, without a full stop."""
    buckets: tuple[float, ...] = ()
    """The upper bounds of a histogram, ascending."""


class Count:
    """The values of a counter or a gauge."""

    __slots__ = ("metric", "values")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.values: defaultdict[Labels, float] = defaultdict(float)

    @classmethod
    def now(cls, metric: Metric, values: Mapping[Labels, float]) -> Self:
        """The values of this moment, by labels."""
        found = cls(metric)
        found.values.update(values)
        return found

    def copy(self) -> Self:
        """The values of this moment, which no longer change."""
        return self.now(self.metric, self.values)

    def add(self, *labels: str, by: float = 1) -> None:
        """Add to the value of these labels.  A zero creates the series, so that its first increase can be seen."""
        self.values[labels] += by


class Spread:
    """How many of the observed values lie below each bound, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self, bounds: int) -> None:
        self.counts = [0] * (bounds + 1)
        """Not cumulative; the last one counts the values above all bounds."""
        self.total = 0.0

    def copy(self) -> "Spread":
        found = Spread(0)
        found.counts, found.total = self.counts.copy(), self.total
        return found


class Histogram:
    __slots__ = ("metric", "values")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.values: dict[Labels, Spread] = {}

    def copy(self) -> "Histogram":
        """The values of this moment, which no longer change."""
        found = Histogram(self.metric)
        found.values = {labels: spread.copy() for labels, spread in self.values.items()}
        return found

    def observe(self, value: float, *labels: str) -> None:
        spread = self.values.get(labels)
        if spread is None:
            spread = self.values[labels] = Spread(len(self.metric.buckets))
        spread.counts[bisect_left(self.metric.buckets, value)] += 1
        spread.total += value


Series = Count | Histogram


class BoundedLabel:
    """Words of others as label values, such as CamelCase reasons: at most `most` of them."""

    def __init__(self, most: int = MOST_WORDS) -> None:
        self._most = most
        self._known: set[str] = set()

    def bounded(self, word: str) -> str:
        """The word itself; `Other` if it has another shape or is one too many; empty stays empty."""
        if word in self._known or not word:
            return word
        if len(self._known) >= self._most or not _WORD.fullmatch(word):
            return OTHER
        self._known.add(word)
        return word


def seconds_between(began: str, ended: str) -> float | None:
    """The seconds between the times of two events; None if one of them is no time.

    Never negative: two authors, whose clocks differ, may have recorded them.
    """
    try:
        return max((datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None
