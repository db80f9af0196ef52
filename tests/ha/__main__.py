"""`python -m tests.ha [--kills N] [--over N] [--quick]`: the table on standard output, progress on standard error.

Exit code 1 when anything was lost, doubled, out of order or stale, with a line for each.  A goal of the table
that was missed is a line too, and no fault: how long it takes is the machine's as well.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import uvloop

from devcluster.binaries import MissingProgram
from shared.telemetry.logs import configure
from tests.bench.real.table import conditions
from tests.bench.real.world import progress
from tests.ha.figures import figures, slow, summary, table
from tests.ha.run import Course, Outcome, run
from tests.ha.strikes import plan
from tests.kit.tables import Place

A_RUN = 40
"""Kills; each run has a cluster of its own, so that no history grows for ever."""
PAUSES, STOPS = 5, 5
"""Of one run."""
QUICK = 4


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.ha", description=__doc__)
    parser.add_argument("--kills", type=int, default=3 * A_RUN, help="in all; %(default)s unless said")
    parser.add_argument("--seed", type=int, default=0, help="of the order of strikes and of the load")
    parser.add_argument("--over", type=int, default=0, help="jobs in log and archive that were over before")
    parser.add_argument("--quick", action="store_true", help="a few strikes: does it work at all?")
    place = Place(parser, "ha")
    given = parser.parse_args()
    put = place.of(given)
    configure("ha", style="console", level="error")
    kills = QUICK if given.quick else given.kills
    try:
        outcomes = _runs(kills, given.seed, Course(over=given.over), quick=given.quick)
    except MissingProgram as missing:
        sys.exit(str(missing))
    lines = figures(outcomes)
    # A busy machine misses a goal; only what is wrong is a fault.
    missed = [line.missed for line in lines if line.missed] or ["Every goal was met."]
    words = "\n".join([*missed, *slow(outcomes)])
    text = f"{table(lines)}\n\n{words}\n\n{summary(outcomes, given.over)}\n\n{conditions()}"
    print(text)
    put(text)
    if faults := [fault for outcome in outcomes for fault in outcome.faults]:
        sys.exit("\n".join(faults))


def _runs(kills: int, seed: int, course: Course, *, quick: bool) -> list[Outcome]:
    pauses, stops = (1, 1) if quick else (PAUSES, STOPS)
    outcomes = []
    for first in range(0, kills, A_RUN):
        strikes = plan(seed + first, min(A_RUN, kills - first), pauses, stops)
        with tempfile.TemporaryDirectory(prefix="muster-ha-") as folder:
            outcomes.append(uvloop.run(run(Path(folder), strikes, seed=seed + first, course=course, tell=progress)))
        progress(f"{len(outcomes[-1].faults)} faults")
    return outcomes


if __name__ == "__main__":
    main()
