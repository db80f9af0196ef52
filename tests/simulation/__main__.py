"""`make sim`: run seeds, and print each failing one as the shortest test that fails as it does."""

import argparse
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.plan import plan_of
from tests.simulation.run import Outcome, simulate
from tests.simulation.shrink import as_test, shrunk

CHUNK = 8
"""Seeds that a process runs before it reports."""

PROGRESS_SECONDS = 5.0
MOST_SHOWN = 5


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 0 if every seed holds."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds to run (1,000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--seed", type=int, help="run this one alone, and shrink it if it fails")
    parser.add_argument("--traces", action="store_true", help="print the hash of each run's trace")
    given = parser.parse_args(words)
    first, number = (given.first, given.seeds) if given.seed is None else (given.seed, 1)
    begun, outcomes = time.perf_counter(), dict[int, Outcome]()
    told = begun
    for seed, outcome in _all(range(first, first + number)):
        outcomes[seed] = outcome
        if outcome.faults:
            print(f"seed {seed}: {outcome.faults[0]}", file=sys.stderr)
        if time.perf_counter() - told > PROGRESS_SECONDS:
            told = time.perf_counter()
            failing = sum(bool(each.faults) for each in outcomes.values())
            print(f"{len(outcomes)} of {number} seeds, {failing} fail", file=sys.stderr)
    if given.traces:
        for seed in sorted(outcomes):
            print(seed, outcomes[seed].trace)
    return _report(outcomes, time.perf_counter() - begun)


def _all(seeds: range) -> Iterator[tuple[int, Outcome]]:
    if len(seeds) <= CHUNK:
        yield from _run(seeds)
        return
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for done in pool.map(_run, chunks):
            yield from done


def _run(seeds: range) -> list[tuple[int, Outcome]]:
    return [(seed, simulate(plan_of(seed))) for seed in seeds]


def _report(outcomes: dict[int, Outcome], seconds: float) -> int:
    events = statistics.median(outcome.events for outcome in outcomes.values())
    failing = [seed for seed in sorted(outcomes) if outcomes[seed].faults]
    print(
        f"{len(outcomes)} seeds in {seconds:.1f} s ({seconds / len(outcomes) * 1_000:.0f} ms each), "
        f"{events:.0f} events on the median: {len(failing)} fail"
    )
    kinds = Counter(_rule(outcomes[seed].faults[0]) for seed in failing)
    if kinds:
        print("first faults: " + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    for seed in failing[:MOST_SHOWN]:
        rule = _rule(outcomes[seed].faults[0])
        smaller = shrunk(plan_of(seed), lambda plan, rule=rule: any(_rule(f) == rule for f in simulate(plan).faults))
        print(as_test(smaller, simulate(smaller).faults))
    return 1 if failing else 0


def _rule(fault: str) -> str:
    """The number of the rule that a fault breaks, such as I15."""
    return fault.partition(" ")[0]


if __name__ == "__main__":
    sys.exit(main())
