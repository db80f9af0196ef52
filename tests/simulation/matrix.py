"""`make crash-matrix`: each protocol, broken at each of its events in every way (FAULTS, section 5).

A crash of each service, lost answers, the deletion of the job, and a second replica that acts: with the event just
stored, one run for each.  With `--pairs` also at two events of one scaling.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import combinations

import msgspec

from shared.job.naming import RESTART_IN_PLACE
from tests.kit.services import AUTHORS
from tests.kit.tables import Place
from tests.simulation.plan import AnyStep, Apply, Delete, End, Node, Plan, Preempt, Scale, Strike
from tests.simulation.platform import Workload
from tests.simulation.run import Outcome, simulate
from tests.simulation.shrink import as_test

JOB = "resnet"
STEADY = Workload(hang=100, fail=0, unready=0, slow_scripts=0)
"""Containers run until something ends them."""

SCALED_SECONDS = 3.0
"""When a running job is scaled, broken or deleted; it has run for a second by then."""


def _job(**more: object) -> Apply:
    return Apply(at=0.2, job=JOB, kind="TrainingJob", workers=2, more=dict(more))


def _script(by: int) -> Scale:
    return Scale(at=SCALED_SECONDS, name="request", job=JOB, by=by, more={"script": "request", "timeout": 20})


PLACES = 4
"""The launcher and three workers."""
CROWDED: tuple[AnyStep, ...] = (
    Apply(
        at=0.2,
        job=JOB,
        kind="TrainingJob",
        workers=4,
        least=2,
        more={"elasticity": {"size": "Capacity", "settleSeconds": 1, "growSeconds": 1}},
    ),
    Preempt(at=6.0, job=JOB, count=2),
)
"""It makes room for its launcher, trains with what is left, and gives all back below its minimum."""

PARTIAL = Scale(
    at=SCALED_SECONDS, name="request", job=JOB, by=3, more={"toAdd": {"count": 3, "partial": True}, "timeout": 6}
)
"""There is a place for one of them."""
AGAIN = Apply(at=0.2, job=JOB, kind="TFJob", workers=2, policy="OnFailure", annotations={RESTART_IN_PLACE: "true"})

PROTOCOLS: dict[str, tuple[AnyStep, ...]] = {
    "create": (_job(),),
    "scale-out": (_job(), _script(1)),
    "scale-in": (_job(), _script(-1)),
    "restart": (_job(restartPolicy="OnFailure"), End(at=SCALED_SECONDS, pod=f"{JOB}-launcher", code=1)),
    "delete": (_job(), Delete(at=SCALED_SECONDS, job=JOB)),
    "seal": (_job(), Delete(at=SCALED_SECONDS, job=JOB)),
    "capacity": CROWDED,
    "gang": (_job(), Scale(at=SCALED_SECONDS, name="request", job=JOB, by=2)),
    "partial": (_job(), PARTIAL),
    "notice": (_job(), Node(at=SCALED_SECONDS, node="node-1", how="announced")),
    "in place": (AGAIN, *(End(at=SCALED_SECONDS + after, pod=f"{JOB}-worker-1", code=1) for after in (0, 2, 4))),
}

SCALINGS = ("scale-out", "scale-in")


class Cell(msgspec.Struct, frozen=True):
    """One run: a protocol and what breaks in it."""

    protocol: str
    strikes: tuple[Strike, ...]

    @property
    def plan(self) -> Plan:
        return plan_of(self.protocol, self.strikes)

    @property
    def how(self) -> str:
        return " + ".join(sorted(strike.how for strike in self.strikes))


def plan_of(protocol: str, strikes: tuple[Strike, ...] = ()) -> Plan:
    # The protocol is given time: the weather clears after its last step.
    last = Delete(at=SCALED_SECONDS + 12.0, job="none")
    seal_after = 1 if protocol == "seal" else None
    places = PLACES if protocol in ("capacity", "partial") else 0
    world = {"seal_after": seal_after, "places": places, "gangs": protocol == "gang"}
    return Plan(seed=1, steps=(*PROTOCOLS[protocol], last), strikes=strikes, workload=STEADY, **world)


def cells() -> Iterator[Cell]:
    """Every event of each protocol with every strike; the events of a job's creation count once."""
    begun = 0
    for protocol in PROTOCOLS:
        events = _events(protocol)
        for event in range(begun + 1, events + 1):
            yield from (Cell(protocol, (strike,)) for strike in _strikes(event))
        begun = begun or events


def pairs() -> Iterator[Cell]:
    """Every two events of a scaling with every two ways to break them."""
    begun = _events("create")
    for protocol in SCALINGS:
        for first, second in combinations(range(begun + 1, _events(protocol) + 1), 2):
            for one in _strikes(first):
                yield from (Cell(protocol, (one, another)) for another in _strikes(second))


@cache
def _events(protocol: str) -> int:
    """The number of events of the protocol in quiet weather, before its containers end."""
    return simulate(plan_of(protocol)).settled


def _strikes(event: int) -> Iterator[Strike]:
    for author in AUTHORS:
        yield Strike(event=event, how="crash", author=author)
        yield Strike(event=event, how="lose", author=author)
        yield Strike(event=event, how="pause", author=author)
    yield Strike(event=event, how="delete", job=JOB)


def _run(cell: Cell) -> tuple[Cell, Outcome]:
    return cell, simulate(cell.plan)


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 0 if every cell holds."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.matrix", description=__doc__)
    parser.add_argument("--pairs", action="store_true", help="also two events of one scaling")
    place = Place(parser, "crash-matrix")
    given = parser.parse_args(words)
    put = place.of(given)
    begun = time.perf_counter()
    wanted = [*cells(), *(pairs() if given.pairs else ())]
    ran, failing = Counter[tuple[str, str]](), list[tuple[Cell, Outcome]]()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for cell, outcome in pool.map(_run, wanted, chunksize=8):
            ran[cell.protocol, cell.how] += 1
            if outcome.faults:
                failing.append((cell, outcome))
    seconds = time.perf_counter() - begun
    text = f"{_table(ran, failing)}\n\n{sum(ran.values())} cells in {seconds:.0f} s: {len(failing)} fail."
    print(text)
    put(text)
    for cell, outcome in failing[:5]:
        print(as_test(cell.plan, outcome.faults))
    return 1 if failing else 0


def _fail(number: int) -> str:
    return f" ({number} fail)" if number else ""


def _table(ran: Mapping[tuple[str, str], int], failing: Sequence[tuple[Cell, Outcome]]) -> str:
    """How many cells of each protocol were broken in each way, and how many of them fail."""
    broken = Counter((cell.protocol, cell.how) for cell, _ in failing)
    ways = sorted({how for _, how in ran}, key=lambda how: (how.count("+"), how))
    lines = ["| broken by | " + " | ".join(PROTOCOLS) + " |", "|---" * (len(PROTOCOLS) + 1) + "|"]
    for how in ways:
        cells = (f"{ran.get((of, how)) or ''}{_fail(broken[of, how])}" for of in PROTOCOLS)
        lines.append(f"| {how} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
