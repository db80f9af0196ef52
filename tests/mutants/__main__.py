"""`make mutants`: plant each known-bad behaviour into a copy of the tree, and see which tests reject it."""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.mutants.generated import POLICIES, STORIES, mutants_of
from tests.mutants.patches import NOT_PLANTED, PATCHES, changed
from tests.mutants.tree import Tree

SEEDS = 60
SIMULATION_SECONDS = 600
"""A bound for all seeds together; `first_fault.py` has one for each."""
STORIES_SECONDS = 600
INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended."""
LONGEST_FAULT = 90
"""Characters of a fault in the table."""


class Mutant(NamedTuple):
    """One changed tree."""

    name: str
    texts: Mapping[str, str]
    """The new text of each changed file."""
    stories: tuple[str, ...]


class Seen(NamedTuple):
    """Which check rejected a mutant, and what it said."""

    by: str
    what: str = ""


LIVES = Seen("LIVES")


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 0 if no mutant lives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", metavar="WORD", default="", help="only the mutants whose name has this word")
    parser.add_argument("--generated", action="store_true", help="mutants made from the policies instead of the list")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many seeds the simulation runs ({SEEDS})")
    given = parser.parse_args(words)
    begun, table = time.perf_counter(), list[tuple[str, Seen]]()
    try:
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            tree = Tree(Path(folder).resolve())
            mutants = [each for each in _mutants(tree, generated=given.generated) if given.only in each.name]
            stories = dict.fromkeys(story for mutant in mutants for story in mutant.stories)
            seen = _look(tree, Mutant("the tree as it is", {}, (*stories,)), given.seeds)
            print(f"the tree as it is: {_told(seen) if seen != LIVES else 'holds'}", flush=True)
            if seen != LIVES:
                print("a test that fails without a mutant sees nothing")
                return 2
            for mutant in mutants:
                table.append((mutant.name, _look(tree, mutant, given.seeds)))
                print(f"{mutant.name}: {_told(table[-1][1])}", flush=True)
    except KeyboardInterrupt:
        print("interrupted")
        _report(table, time.perf_counter() - begun)
        return INTERRUPTED
    return _report(table, time.perf_counter() - begun)


def _mutants(tree: Tree, *, generated: bool) -> Iterator[Mutant]:
    if not generated:
        for patch in PATCHES:
            yield Mutant(patch.name, changed(patch, tree.read), patch.stories)
        return
    for policy in POLICIES:
        for name, text in mutants_of(policy, tree.read(policy)):
            yield Mutant(name, {policy: text}, STORIES[policy])


def _look(tree: Tree, mutant: Mutant, seeds: int) -> Seen:
    """First the simulation looks; the stories only if that sees nothing."""
    with tree.planted(mutant.texts):
        return _simulated(tree, seeds) or _read(tree, mutant.stories) or LIVES


def _simulated(tree: Tree, seeds: int) -> Seen | None:
    if not seeds:
        return None
    ended = tree.run("-m", "tests.mutants.first_fault", str(seeds), seconds=SIMULATION_SECONDS)
    if ended is None:
        return Seen("simulation", "hangs")
    if not ended.code:
        return None
    told = next((line for line in ended.lines if line.startswith("seeds ")), "")
    if not told:
        return Seen("simulation", f"exception: {ended.lines[-1] if ended.lines else ended.code}")
    number, _, fault = told.removeprefix("seeds ").partition(": ")
    return Seen(f"simulation after {number} seed{'s' if number != '1' else ''}", fault)


def _read(tree: Tree, stories: tuple[str, ...]) -> Seen | None:
    if not stories:
        return None
    ended = tree.run("-m", "pytest", "-x", "-p", "no:cacheprovider", *stories, seconds=STORIES_SECONDS)
    if ended is None:
        return Seen(stories[0], "hangs")
    if not ended.code:
        return None
    for line in ended.lines:
        verb, _, rest = line.partition(" ")
        if verb in ("FAILED", "ERROR") and rest.startswith("tests/"):
            story, _, why = rest.partition(" - ")
            return Seen(story, why if verb == "FAILED" else f"exception: {why}")
    # The code 4 stands for tests that do not exist, 5 for none at all.
    assert ended.code not in (4, 5), "\n".join(ended.lines)
    return Seen(stories[0], f"exception: {ended.lines[-1] if ended.lines else ended.code}")


def _told(seen: Seen) -> str:
    if seen == LIVES:
        return seen.by
    return f"seen by {seen.by}" + (f": {_short(seen.what)}" if seen.what else "")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_FAULT else f"{text[: LONGEST_FAULT - 3]}..."


def _report(table: list[tuple[str, Seen]], seconds: float) -> int:
    print("\n| mutant | seen by | which says |\n|---|---|---|")
    for name, seen in table:
        what = _short(seen.what).replace("|", "\\|")
        print(f"| {name} | {seen.by} | {what} |")
    living = [name for name, seen in table if seen == LIVES]
    simulated = sum(seen.by.startswith("simulation") for _, seen in table)
    print(
        f"\nMutants: {len(table)} in {seconds:.0f} s, {simulated} seen by the simulation, "
        f"{len(table) - simulated - len(living)} by other tests, {len(living)} live; {len(NOT_PLANTED)} are not planted"
    )
    return 1 if living else 0


if __name__ == "__main__":
    sys.exit(main())
