"""`make perturb`: four services on a real API server, and in each run one of their calls meets trouble.

The end must be that of undisturbed runs, and the log lawful.  A plan that ends otherwise is printed as a command that
repeats it.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from devcluster.binaries import MissingProgram
from shared.telemetry.logs import configure
from tests.bench.real.world import progress
from tests.kit.tables import Place
from tests.perturbation.calls import WAYS
from tests.perturbation.run import Outcome, Plan, Rig, play_all
from tests.perturbation.scenarios import SCENARIOS
from tests.perturbation.stage import Ground

AT_ONCE = 12
"""Runs side by side: more only make each other late on two cores."""
TOLD_EVERY = 50
"""Plans between two lines of progress."""


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 0 if every plan ended as the reference."""
    parser = argparse.ArgumentParser(prog="python -m tests.perturbation", description=__doc__)
    parser.add_argument("--plans", type=int, help="so many of them; all unless said")
    parser.add_argument("--plan", type=Plan.parse, help="this one alone, as a run printed it")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no plan after so long")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="runs side by side; %(default)s unless said")
    place = Place(parser, "perturb")
    given = parser.parse_args(words)
    put = place.of(given)
    configure("perturb", style="console", level="critical")
    begun = time.monotonic()
    try:
        outcomes = asyncio.run(_run(given))
    except MissingProgram as missing:
        sys.exit(str(missing))
    diverged = [outcome for outcome in outcomes if outcome.faults]
    text = f"{_table(outcomes)}\n\n{_summary(outcomes, time.monotonic() - begun)}"
    print(text)
    put(text)
    return 1 if diverged else 0


async def _run(given: argparse.Namespace) -> list[Outcome]:
    with tempfile.TemporaryDirectory(prefix="muster-perturb-") as folder:
        async with Ground(Path(folder)) as ground:
            rig = Rig(ground, Path(folder) / "runs")
            await rig.learn([given.plan.scenario] if given.plan else [*SCENARIOS])
            plans = [given.plan] if given.plan else rig.plans()[: given.plans]
            progress(f"{len(plans)} plans; masked: {', '.join(' '.join(mask).strip() for mask in sorted(rig.masked))}")
            end = time.monotonic() + 60 * given.minutes
            done = list[Outcome]()

            def tell(outcome: Outcome) -> None:
                done.append(outcome)
                if outcome.faults:
                    print(f"make perturb PLAN='{outcome.plan}'", *outcome.faults, *outcome.told, sep="\n  ", flush=True)
                if len(done) % TOLD_EVERY == 0:
                    progress(f"{len(done)} plans, {sum(bool(outcome.faults) for outcome in done)} diverge")

            begun = (plan for plan in plans if time.monotonic() < end)
            return await play_all(rig, begun, at_once=given.at_once, tell=tell)


def _table(outcomes: Sequence[Outcome]) -> str:
    """How many plans of each scenario met trouble of each kind, and how many of them diverge."""
    struck = [outcome for outcome in outcomes if outcome.struck]
    ran = Counter((outcome.plan.strike.way, outcome.plan.scenario) for outcome in struck)
    diverged = Counter((outcome.plan.strike.way, outcome.plan.scenario) for outcome in struck if outcome.faults)
    lines = ["| a call meets | " + " | ".join(SCENARIOS) + " |", "|---" * (len(SCENARIOS) + 1) + "|"]
    for way in WAYS:
        cells = (_cell(ran[way, of], diverged[way, of]) for of in SCENARIOS)
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(ran: int, diverged: int) -> str:
    return f"{ran or ''}{f' ({diverged} diverge)' if diverged else ''}"


def _summary(outcomes: Sequence[Outcome], seconds: float) -> str:
    struck = sum(outcome.struck for outcome in outcomes)
    diverged = sum(bool(outcome.faults) for outcome in outcomes)
    missed = f"; of {len(outcomes) - struck} more the call was not made" if len(outcomes) > struck else ""
    return f"{struck} plans in {seconds / 60:.0f} minutes: {diverged} diverge{missed}."


if __name__ == "__main__":
    sys.exit(main())
