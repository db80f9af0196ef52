"""Figures: what is counted and measured, by labels.  Pure; `shared.telemetry.metrics` serves them.

Names and units are those that Prometheus' users expect; the labels of one measure take few values.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from datetime import datetime
from typing import Literal

import msgspec

Labels = tuple[str, ...]

MOST_WORDS = 64
"""How many different reasons one process tells apart: they may be anybody's, and each is a series for ever."""

OTHER = "Other"

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]{0,63}")


class Measure(msgspec.Struct, frozen=True):
    """One name, and what is behind it."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: Labels
    meaning: str
    """One sentence, without a full stop."""
    buckets: tuple[float, ...] = ()
    """Upper bounds, ascending, of a histogram."""


class Count:
    """The values of a counter or a gauge."""

    __slots__ = ("measure", "values")

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self.values: defaultdict[Labels, float] = defaultdict(float)

    def add(self, *labels: str, by: float = 1) -> None:
        """Nought makes it known: what is not there cannot be seen to grow."""
        self.values[labels] += by


class Spread:
    """How many of the observed values lie below each bound, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self, bounds: int) -> None:
        self.counts = [0] * (bounds + 1)
        """Not cumulative; the last one is of what lies above all bounds."""
        self.total = 0.0


class Distribution:
    """The values of a histogram."""

    __slots__ = ("measure", "values")

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self.values: dict[Labels, Spread] = {}

    def observe(self, value: float, *labels: str) -> None:
        spread = self.values.get(labels)
        if spread is None:
            spread = self.values[labels] = Spread(len(self.measure.buckets))
        spread.counts[bisect_left(self.measure.buckets, value)] += 1
        spread.total += value


Series = Count | Distribution


class Words:
    """Reasons as label values: CamelCase words, and not more of them than a scraper bears."""

    def __init__(self, most: int = MOST_WORDS) -> None:
        self._most = most
        self._known: set[str] = set()

    def bounded(self, word: str) -> str:
        """The word itself, or `Other` when it is none or comes after too many; empty stays empty."""
        if word in self._known or not word:
            return word
        if len(self._known) >= self._most or not _WORD.fullmatch(word):
            return OTHER
        self._known.add(word)
        return word


def seconds_between(began: str, ended: str) -> float | None:
    """Between two times as events carry them, never negative; None when one of them is no time.

    Two authors may have recorded them, whose clocks differ.
    """
    try:
        return max((datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None
