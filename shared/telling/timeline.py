"""`muster timeline`: a lane for each place of a job over all its attempts, one character for a moment.  Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from textwrap import wrap

from shared.job.ledger import BUCKETS, Bucket, Stretch
from shared.job.text import range_words
from shared.job.views import ranges
from shared.telling.report import Lane, Report, first_line
from shared.telling.usage import share_words

SIGNS: dict[Bucket, str] = {
    "quota": "q",
    "node": ".",
    "start": "s",
    "gang": "g",
    "training": "#",
    "scaling": "+",
    "draining": "-",
    "checkpointing": "c",
    "lost": "x",
    "ended": "e",
}

_YELLOW = 33
COLOURS: dict[Bucket, int] = dict.fromkeys(BUCKETS, _YELLOW) | {
    "training": 32,
    "lost": 31,
    "scaling": 36,
    "draining": 35,
    "checkpointing": 35,
    "ended": 90,
}
"""ANSI colours; what waits is yellow."""

LEAST_CELLS = 20
LEGEND = 21
"""Columns of the legend before its words."""


def timeline(report: Report, width: int, *, coloured: bool = False) -> Iterator[str]:
    """The lanes as lines of `width` characters, an axis above and a legend below.

    Places that did the same share a line.  A cell shows what the place did for most of it, and a loss however short.
    """
    yield first_line(report.job)
    if not report.places:
        yield "it has held no place yet"
        return
    names = [*_shared(report.places)]
    margin = max(len(name) for name, _ in names) + 2
    cells = max(width - margin, LEAST_CELLS)
    began = min(_seconds(lane.stretches[0].since) for lane in report.places)
    ended = max(_seconds(each.until or report.until) for lane in report.places for each in lane.stretches)
    step = (ended - began) / cells
    yield ""
    yield " " * margin + _axis(began, ended, cells)
    for name, lane in names:
        drawn = _drawn(lane, report.until, began, step, cells)
        yield name.ljust(margin) + "".join(_signs(bucket, len([*run]), coloured) for bucket, run in groupby(drawn))
    yield ""
    held = sum(share.seconds for share in report.shares)
    for share in report.shares:
        lasted, part, what = share_words(share, held)
        line, *more = wrap(what, max(width - LEGEND, LEAST_CELLS))
        yield f"{_signs(share.bucket, 1, coloured)}  {lasted:>9}  {part:>5}  {line}"
        yield from (" " * LEGEND + each for each in more)


def _shared(places: Sequence[Lane]) -> Iterator[tuple[str, tuple[Stretch, ...]]]:
    """Names and stretches, with one name for neighbours that did the same at the same times on whatever node."""

    def alike(lane: Lane) -> tuple[object, ...]:
        return lane.role, *((each.bucket, each.cause, each.since, each.until) for each in lane.stretches)

    for (role, *_), lanes in groupby(places, alike):
        first, *others = lanes
        yield f"{role} {range_words(ranges(each.index for each in (first, *others)))}", first.stretches


def _drawn(stretches: Sequence[Stretch], until: str, began: float, step: float, cells: int) -> Iterator[Bucket | None]:
    """What the place did in each cell; None where the job did not hold it."""
    spent: list[defaultdict[Bucket, float]] = [defaultdict(float) for _ in range(cells)]
    for each in stretches:
        start, end = _seconds(each.since) - began, _seconds(each.until or until) - began
        first = min(int(start / step), cells - 1) if step else 0
        last = min(int(end / step), cells - 1) if step else 0
        for cell in range(first, last + 1):
            part = min(end, (cell + 1) * step) - max(start, cell * step)
            if part > 0:
                spent[cell][each.bucket] += part
    for parts in spent:
        if "lost" in parts or not parts:
            yield "lost" if parts else None
        else:
            most: Bucket = max(parts, key=parts.__getitem__)
            yield most


def _signs(bucket: Bucket | None, count: int, coloured: bool) -> str:
    signs = (SIGNS[bucket] if bucket is not None else " ") * count
    return f"\x1b[{COLOURS[bucket]}m{signs}\x1b[0m" if coloured and bucket is not None else signs


def _axis(began: float, ended: float, cells: int) -> str:
    """The times of the first and the last cell, and how long it is between them."""
    first, last = (f"{datetime.fromtimestamp(each, UTC):%H:%M:%S}" for each in (began, ended))
    return f"{first}{f' {_words(ended - began)} '.center(cells - len(first) - len(last), '-')}{last}"


def _words(seconds: float) -> str:
    """`2 h 05 min`, `12 min 30 s`, `45 s`."""
    if seconds >= 3600:
        return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:02.0f} min"
    return f"{seconds // 60:.0f} min {seconds % 60:02.0f} s" if seconds >= 60 else f"{seconds:.0f} s"


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
