"""`python -m tests.ha.soak [--hours H | --minutes M]`: a strike each 30 s under a steady load, and what that leaves.

The load, the strikes and the checks are those of `make ha`.  One replica of each service and one server of the log
stand still where others are killed: they live for as long as the run, and their memory is what is measured.  Each
service has the histories that are not sealed: what these take is told apart from the rest.  Exit code 1 when anything
was lost, doubled, out of order or stale, with a line for each.
"""

import argparse
import math
import random
import statistics
import sys
import tempfile
import tracemalloc
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import uvloop

from devcluster.binaries import MissingProgram
from muster.stack import SERVICES
from shared.eventlog import Stored
from shared.job.fold import Histories
from shared.telemetry.logs import configure
from tests.bench.real.table import conditions
from tests.bench.real.world import progress
from tests.ha.figures import summary
from tests.ha.lives import Life, Sample
from tests.ha.oracles import seconds
from tests.ha.run import Course, run
from tests.ha.strikes import APISERVER, Strike, plan
from tests.kit.tables import Place

EVERY_SECONDS = 30.0
MINUTE, HOUR = 60.0, 3_600.0
SHORTEST_SECONDS, LONGEST_SECONDS = MINUTE, 24 * HOUR
"""The checks at the end hold the whole log in memory."""

COURSE = Course(
    every=EVERY_SECONDS,
    spared=(*(f"{service}-1" for service in SERVICES), "n2"),
    a_second=1.0,
    most_jobs=100_000,
    most_kept=50,
)
"""No more jobs are there at the end than after some minutes: what grows is no part of the load."""

HEAD = ["process", "lives", "longest", "MiB at its middle", "at its end", "most of any", "MiB an hour"]
HEAD += ["of that histories", "open files at its middle", "at its end"]

GOAL = 1.0
"""MiB an hour that a service may grow, but for the histories of its log."""
SETTLED_SECONDS = 10 * MINUTE
"""What a process grows over a shorter part of its life is no slope that means anything."""


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.ha.soak", usage=argparse.SUPPRESS, description=__doc__, allow_abbrev=False
    )
    given_as = parser.add_mutually_exclusive_group()
    given_as.add_argument("--hours", dest="seconds", type=_lasting(HOUR), help="how long; half an hour unless said")
    given_as.add_argument("--minutes", dest="seconds", type=_lasting(MINUTE))
    parser.add_argument("--seed", type=int, default=0, help="of the order of strikes and of the load")
    place = Place(parser, "soak")
    given = parser.parse_args(words)
    put = place.of(given)
    configure("soak", style="console", level="error")
    try:
        with tempfile.TemporaryDirectory(prefix="muster-soak-") as folder:
            lasting = given.seconds or HOUR / 2
            strikes, course = strikes_of(lasting, given.seed), msgspec.structs.replace(COURSE, lasting=lasting)
            outcome = uvloop.run(run(Path(folder), strikes, seed=given.seed, course=course, tell=progress))
    except MissingProgram as missing:
        sys.exit(str(missing))
    by_design = growth_of_histories(outcome.log)
    words = "\n\n".join([verdict(outcome.lives, by_design), summary([outcome]), conditions()])
    text = f"{table(outcome.lives, by_design)}\n\n{words}"
    print(text)
    put(text)
    if outcome.faults:
        sys.exit("\n".join(outcome.faults))


def _lasting(unit: float) -> Callable[[str], float]:
    def lasting(word: str) -> float:
        try:
            asked = float(word) * unit
        except ValueError:
            asked = math.nan
        if not SHORTEST_SECONDS <= asked <= LONGEST_SECONDS:
            raise argparse.ArgumentTypeError(f"{word!r} is no time from one minute to 24 hours")
        return asked

    return lasting


def strikes_of(seconds: float, seed: int) -> list[Strike]:
    """As many as there is time for: of ten seven kills, one pause, one stop and one pause of the API server."""
    number = int(seconds / EVERY_SECONDS)
    few = math.ceil(number / 10)
    strikes = plan(seed, max(number - 3 * few, 0), few, few) + few * [Strike("pause", APISERVER, "only")]
    random.Random(seed).shuffle(strikes)
    return strikes[:number]


def slope(samples: Sequence[Sample]) -> float | None:
    """MiB an hour, by least squares over the second half of a life; None if that is short."""
    late = second_half(samples)
    if late[-1].at - late[0].at < SETTLED_SECONDS:
        return None
    return statistics.linear_regression([one.at for one in late], [one.resident for one in late]).slope * HOUR


def second_half(samples: Sequence[Sample]) -> list[Sample]:
    middle = (samples[0].at + samples[-1].at) / 2
    return [one for one in samples if one.at >= middle]


def growth_of_histories(log: Sequence[Stored]) -> float:
    """MiB an hour that the histories of a log take in each service, over the second half of its time."""
    first, last = seconds(log[0].time), seconds(log[-1].time)
    middle = bisect_left(log, (first + last) / 2, key=lambda stored: seconds(stored.time))
    histories = Histories()
    tracemalloc.start()
    try:
        for stored in log[:middle]:
            histories.fold(stored)
        before, _ = tracemalloc.get_traced_memory()
        for stored in log[middle:]:
            histories.fold(stored)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / 2**20 / ((last - first) / 2) * HOUR


def table(lives: Sequence[Life], by_design: float) -> str:
    """A line for each name; first those that lived through."""
    rows = [HEAD, ["---"] * len(HEAD), *(_row(name, own, by_design) for name, own in _by_name(lives))]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def verdict(lives: Sequence[Life], by_design: float) -> str:
    """A line for each spared process that ended, and for each service that grew faster than the goal."""
    ended = [
        f"missed: {name} was to live through, and lived {len(own)} times"
        for name, own in _by_name(lives)
        if name in COURSE.spared and len(own) > 1
    ]
    slopes = [(name, slope) for name, own in _by_name(lives) if (slope := _slope_of(name, own)) is not None]
    if not slopes and not ended:
        return f"No process lived for {2 * SETTLED_SECONDS / MINUTE:.0f} minutes, so that no slope is told."
    missed = [
        f"missed: {name} grew by {slope:.1f} MiB an hour, {rest:.1f} without histories, and the goal is < {GOAL:.0f}"
        for name, slope in slopes
        if _is_service(name) and (rest := slope - by_design) >= GOAL
    ]
    told = [name for name, _ in slopes if _is_service(name)]
    good = f"Without their histories these grew by less than {GOAL:.0f} MiB an hour: {', '.join(told)}."
    return "\n".join([*ended, *missed]) or good


def _is_service(name: str) -> bool:
    return name.rpartition("-")[0] in SERVICES


def _by_name(lives: Sequence[Life]) -> list[tuple[str, list[Life]]]:
    names = sorted({life.name for life in lives}, key=lambda name: (name not in COURSE.spared, name))
    return [(name, [life for life in lives if life.name == name]) for name in names]


def _slope_of(name: str, lives: Sequence[Life]) -> float | None:
    # The others live for some minutes, in which they do little but start.
    return slope(lives[0].samples) if name in COURSE.spared and len(lives) == 1 else None


def _row(name: str, lives: Sequence[Life], by_design: float) -> list[str]:
    longest = max(lives, key=lambda life: life.samples[-1].at - life.samples[0].at).samples
    late, grows = second_half(longest), _slope_of(name, lives)
    # Single looks jump.
    few = len(late) // 4 + 1
    parts = (late[:few], late[-few:])
    return [
        name,
        str(len(lives)),
        f"{(longest[-1].at - longest[0].at) / MINUTE:.0f} min",
        *(f"{statistics.median(sample.resident for sample in part):.1f}" for part in parts),
        f"{max(sample.resident for life in lives for sample in life.samples):.1f}",
        "" if grows is None else f"{grows:+.1f}",
        "" if grows is None or not _is_service(name) else f"{by_design:+.1f}",
        *(f"{statistics.median(sample.files for sample in part):.0f}" for part in parts),
    ]


if __name__ == "__main__":
    main()
