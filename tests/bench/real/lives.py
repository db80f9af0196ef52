"""What one job costs until it runs, alone and in a crowd: calls to the API server, processor time of it, events."""

from collections import Counter
from typing import Any

from shared.eventlog.subject import Subject
from tests.bench.real import starts
from tests.bench.real.table import Figure
from tests.bench.real.world import World, progress
from tests.kit.operator import audited

WORKERS = 4


async def lives(*, quick: bool) -> list[Figure]:
    """A job alone, and so many at once, each with four workers."""
    found: list[Figure] = []
    async with World(audits=True) as world:
        for jobs in (1, 5) if quick else (1, 60, 300):
            progress(f"calls and events of {jobs} jobs")
            theirs = await _counted(world, starts.bare, jobs)
            ours = await _counted(world, starts.muster, jobs)
            found += _figures(f"{jobs} jobs x {WORKERS}", ours, theirs, jobs)
    return found


class Cost:
    """What was counted while so many jobs began to run."""

    def __init__(self, calls: list[dict[str, Any]], events: Counter[str], seconds: float) -> None:
        self.calls = calls
        self.events = events
        self.seconds = seconds
        """Processor seconds of kube-apiserver."""

    @property
    def by_resource(self) -> Counter[str]:
        return Counter(f"{call['verb']} {'/'.join(filter(None, _object(call)))}" for call in self.calls)

    def of(self, verb: str, resource: str, subresource: str = "") -> int:
        wanted = (verb, resource, subresource)
        return sum((call["verb"], *_object(call)) == wanted for call in self.calls)


async def _counted(world: World, begin: Any, jobs: int) -> Cost:
    namespace = f"{begin.__name__}-life-{jobs}"
    await world.namespace(namespace)
    before, used = await world.log_end(), world.apiserver_used()
    await begin(world, namespace, jobs, WORKERS)
    await world.quiet()
    seconds = world.apiserver_used() - used
    events = Counter(Subject.parse(each.subject).type for each in await world.events_since(before))
    calls = [call for call in audited(world.audit) if _is_of(call, namespace)]
    await world.clear(namespace)
    return Cost(calls, events, seconds)


def _is_of(call: dict[str, Any], namespace: str) -> bool:
    """True for a call about an object in the namespace, without watches and what each namespace has."""
    of = call.get("objectRef", {})
    return (
        call["verb"] not in ("watch", "list")
        and of.get("namespace") == namespace
        and of.get("name") not in ("default", "kube-root-ca.crt")
    )


def _object(call: dict[str, Any]) -> tuple[str, str]:
    return call["objectRef"]["resource"], call["objectRef"].get("subresource", "")


def _figures(what: str, ours: Cost, theirs: Cost, jobs: int) -> list[Figure]:
    def mean(number: int) -> str:
        return f"{number / jobs:.1f}"

    def listed(found: Counter[str]) -> str:
        return ", ".join(f"{name} {mean(number)}" for name, number in sorted(found.items()))

    return [
        Figure(f"{what}: calls for each until Running", mean(len(ours.calls)), mean(len(theirs.calls)), "", "≤ 36"),
        Figure(f"{what}: of these by verb and resource", listed(ours.by_resource), listed(theirs.by_resource)),
        Figure(f"{what}: status patches for each", mean(ours.of("patch", "trainingjobs", "status")), "0.0", "", "≤ 4"),
        Figure(f"{what}: appends for each", mean(sum(ours.events.values())), "", "", "≤ 10"),
        Figure(f"{what}: of these by type", listed(ours.events)),
        Figure(
            f"{what}: processor time of kube-apiserver",
            f"{ours.seconds:.1f} s",
            f"{theirs.seconds:.1f} s",
            f"{ours.seconds / theirs.seconds:.2f}",
            "≤ 1.6x",
        ),
    ]
