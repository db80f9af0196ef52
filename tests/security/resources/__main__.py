"""`python -m tests.security.resources`: what each process holds while somebody attacks, and how others fare.

Each kind of attack takes so many minutes, of which each of its ways has an equal share.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from functools import partial, reduce
from pathlib import Path
from typing import NamedTuple

from devcluster.cluster import Devcluster
from devcluster.controlplane import ControlPlane
from shared.telemetry.logs import configure
from tests.bench.real.world import progress
from tests.kit.tables import Place
from tests.security.resources.attacks import TENANTS, Attack, Family, families
from tests.security.resources.rig import NATS, PATIENCE_SECONDS, Figures, Rig, faults, told

QUIET_SECONDS = 5.0
REAL = partial(ControlPlane, accounts=True)
"""Where tenants write: the embedded API server is one process, which they keep busy, and no wall of ours."""


class Outcome(NamedTuple):
    """Of one family."""

    family: Family
    ways: int
    quiet: Figures
    worst: Figures
    reached: list[str]
    """What its attacks achieved, a sentence each."""


async def run(names: list[str], seconds: float, ways: int) -> list[Outcome]:
    """Of each family what was measured quiet and at the worst, and what its attacks achieved."""
    found = list[Outcome]()
    for name in names:
        family = families()[name]
        attacks = list(enumerate(family.attacks[: ways or None]))
        # What a tenant makes stays: each of these attacks has an installation of its own.
        tenants = family.attacker == TENANTS
        groups = [[attack] for attack in attacks] if tenants else [attacks]
        outcomes = [await _attacked(name, group, seconds / len(attacks), tenants) for group in groups]
        quiet, worst = (reduce(Figures.worst, figures) for figures in list(zip(*outcomes, strict=True))[:2])
        found.append(
            Outcome(family, len(attacks), quiet, worst, [words for outcome in outcomes for words in outcome[2]])
        )
    return found


async def _attacked(
    name: str, attacks: list[tuple[int, Attack]], each: float, real: bool
) -> tuple[Figures, Figures, list[str]]:
    """What one installation held quiet and at the worst, and what these attacks achieved."""
    reached = list[str]()
    with tempfile.TemporaryDirectory(prefix="muster-attacked-") as folder:
        async with Rig(Path(folder), REAL if real else Devcluster) as rig:
            quiet = worst = await rig.measure(QUIET_SECONDS)
            progress("quiet: " + ", ".join(f"{who} {peak:.0f} MiB" for who, peak in quiet.peaks.items()))
            for number, attack in attacks:
                figures = await rig.attacked([(name, number)], each)
                progress(told(f"{name}: {attack.name}", each, quiet, figures))
                for words in faults(quiet, figures):
                    progress(f"  {words}")
                    reached.append(f"{attack.name}: {words}")
                worst = worst.worst(figures)
                await rig.recover(quiet)
    return quiet, worst, reached


def markdown(found: list[Outcome]) -> str:
    """The table: of each family the worst that any of its attacks achieved."""
    lines = [
        "| who | reaches for | ways | that succeeded | service that grew most | NATS of the services | not ready "
        "| another's first pod, alone | under attack |",
        "| --- | --- | ---: | ---: | --- | --- | ---: | ---: | ---: |",
    ]
    for family, ways, quiet, worst, reached in found:
        services = [name for name in worst.peaks if name != NATS]
        grown = max(services, key=lambda name: worst.peaks[name] / quiet.peaks[name])
        cells = (
            family.attacker,
            family.asset,
            str(ways),
            str(len({words.partition(": ")[0] for words in reached})),
            f"{grown}: {quiet.peaks[grown]:.0f} → {worst.peaks[grown]:.0f} MiB",
            f"{quiet.peaks[NATS]:.0f} → {worst.peaks[NATS]:.0f} MiB",
            str(max(worst.unready.values())),
            _seconds(quiet.job),
            _seconds(worst.job),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _seconds(taken: float) -> str:
    return f"{taken:.2f} s" if taken < PATIENCE_SECONDS else f"more than {PATIENCE_SECONDS:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.security.resources", description=__doc__)
    known = families()
    parser.add_argument("families", nargs="*", metavar="|".join(known), help="which ones; all of them without any")
    parser.add_argument("--minutes", type=float, default=10.0, help="of each")
    parser.add_argument("--ways", type=int, default=0, help="only the first so many of each; all without")
    place = Place(parser, "under-attack")
    given = parser.parse_args()
    put = place.of(given)
    if unknown := set(given.families) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: none of {', '.join(known)}")
    configure("attack", style="console", level="error")
    # NATS collects garbage as in a cluster, whatever speeds up the tests here.
    os.environ.pop("GOGC", None)
    found = asyncio.run(run(given.families or [*known], given.minutes * 60, given.ways))
    table = markdown(found)
    print(table)
    put(table)
    if any(outcome.reached for outcome in found):
        sys.exit("an attack succeeded")


if __name__ == "__main__":
    main()
