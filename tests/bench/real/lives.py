"""What one job costs until it runs, alone and in a crowd: calls to the API server, processor time of it, events."""

from collections import Counter

import msgspec

from shared.eventlog.subject import Subject
from tests.bench.real import starts
from tests.bench.real.meter import Calls, Meter, listed
from tests.bench.real.table import Figure, seconds
from tests.bench.real.world import Run, World, progress

WORKERS = 4


async def lives(run: Run) -> list[Figure]:
    """A job alone, and so many at once, each with four workers."""
    found: list[Figure] = []
    async with World() as world:
        for jobs in (1, 5) if run.quick else (1, 60, 1_000):
            progress(f"calls and events of {jobs} jobs")
            theirs = await _counted(world, starts.bare, "bare", jobs)
            ours = await _counted(world, starts.muster, "muster", jobs)
            found += _figures(f"{jobs} jobs x {WORKERS}", ours, theirs, jobs)
    return found


class Cost(msgspec.Struct, frozen=True):
    """What was counted while so many jobs began to run, and until nothing more happened."""

    calls: Calls
    events: Counter[str]
    seconds: float
    """Processor seconds of kube-apiserver."""


async def _counted(world: World, begin: starts.Side, who: str, jobs: int) -> Cost:
    namespace = f"{who}-life-{jobs}"
    await world.namespace(namespace)
    before, meter = await world.log_end(), Meter(world, namespace)
    await begin(world, namespace, jobs, WORKERS)
    await world.quiet()
    events = Counter(Subject.parse(each.subject).type for each in await world.events_since(before))
    cost = Cost(meter.calls(), events, meter.apiserver())
    await world.clear(namespace)
    return cost


def _figures(what: str, ours: Cost, theirs: Cost, jobs: int) -> list[Figure]:
    def mean(number: int) -> str:
        return f"{number / jobs:.1f}"

    patches = ours.calls[starts.STATUS]
    return [
        Figure(
            f"{what}: calls for each until Running", mean(ours.calls.total()), mean(theirs.calls.total()), "", "≤ 36"
        ),
        Figure(f"{what}: of these by verb and resource", listed(ours.calls, jobs), listed(theirs.calls, jobs)),
        Figure(f"{what}: status patches for each", mean(patches), "0.0", "", "≤ 4"),
        Figure(f"{what}: appends for each", mean(ours.events.total()), "", "", "≤ 10"),
        Figure(f"{what}: of these by type", listed(ours.events, jobs)),
        seconds(f"{what}: processor time of kube-apiserver", [ours.seconds], [theirs.seconds], "≤ 1.6x"),
    ]
