"""`python -m tests.bench.real [figure ...] [--quick] [--turns N] [--peer ADAPTER]`: the table, and progress besides."""

import argparse
import sys
import time
from pathlib import Path

import msgspec
import uvloop

from devcluster.binaries import MissingProgram
from shared.telemetry.logs import configure
from tests.bench.real import footprint, lives, long_log, reactions, scaling, services, starts, ten_thousand
from tests.bench.real.peers import AdapterError, load
from tests.bench.real.table import Figure, beside, judged, markdown
from tests.bench.real.world import Run, progress
from tests.kit.tables import Place

FIGURES = {
    "start": starts.one_job,
    "lives": lives.lives,
    "jobs": footprint.many_jobs,
    "thousand": footprint.a_thousand_jobs,
    "reaction": reactions.reactions,
    "crowd": reactions.in_a_crowd,
    "scale": scaling.scaling,
    "fold": long_log.folding,
    "services": services.each_service,
    "log": long_log.starts_over_a_long_log,
    "ten-thousand": ten_thousand.ten_thousand_jobs,
}


BESIDE_OTHERS = {"start", "jobs", "thousand", "reaction"}
"""Measured twice: in a cluster of our own, and in one whose API server others keep busy."""

WRITERS = 32
"""Those others."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.real", description=__doc__)
    parser.add_argument("figures", nargs="*", metavar="|".join(FIGURES), help="which ones; all of them without any")
    parser.add_argument(
        "--peer",
        type=Path,
        action="append",
        default=[],
        metavar="ADAPTER",
        help="an operator beside Muster, see peers.md",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all?")
    parser.add_argument(
        "--turns", type=int, default=1, metavar="N", help="measure many jobs and reactions so many times, in turn"
    )
    place = Place(parser, "bench")
    given = parser.parse_args()
    put = place.of(given)
    if unknown := set(given.figures) - set(FIGURES):
        parser.error(f"{', '.join(sorted(unknown))}: none of {', '.join(FIGURES)}")
    if given.turns < 1:
        parser.error("--turns: at least 1")
    try:
        run = Run(quick=given.quick, turns=given.turns, peers=[load(path) for path in given.peer])
    except AdapterError as error:
        parser.error(str(error))
    configure("bench", style="console", level="error")
    began, lines = time.monotonic(), list[Figure]()
    try:
        for name in given.figures or FIGURES:
            # Each in clusters of its own: what one leaves behind would be in the next one's way.
            quiet = uvloop.run(FIGURES[name](run))
            busy = msgspec.structs.replace(run, writers=WRITERS)
            lines += beside(quiet, uvloop.run(FIGURES[name](busy)) if name in BESIDE_OTHERS else [])
    except MissingProgram as missing:
        sys.exit(str(missing))
    progress(f"done in {time.monotonic() - began:.0f} s")
    print(markdown(lines))
    put(markdown(judged(lines)))


if __name__ == "__main__":
    main()
