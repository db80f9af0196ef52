"""An API server that says no at any effect of create, scale-out, scale-in, restart and delete: the end is the same.

The effects are counted in an undisturbed life.  Then that life is lived once for each number: of each service that
effect fails, is refused, or meets a conflict.  Crashes, lost answers and deletions are the crash matrix's.
"""

import asyncio
from collections import Counter
from typing import NamedTuple

import pytest

from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.errors import Conflict, Refused, Transient, Trouble
from tests.kit.virtual_time import VirtualLoop
from tests.kit.world import SCALEINS, SCALEOUTS, TRAININGJOBS, World, a_scale_in, a_scale_out, a_training_job
from tests.memory.cluster import Call, Calm

TROUBLES: dict[str, Trouble] = {
    "failed": Transient("the API server failed"),
    "refused": Refused("no rights at this moment", reason="Forbidden"),
    "conflict": Conflict("409"),
}
EFFECTS = ("create", "patch", "delete", "execute")
LEFT = (PODS, SERVICES, CONFIGMAPS, SECRETS)

UNREACHED = 0.1
"""How many of all cells a life may pass by because it took another turn before: two patches became one."""


class Cut(NamedTuple):
    """Which effect of each service is disturbed, and how."""

    number: int
    trouble: str


class Disturbed(Calm):
    """What one service meets: every effect counted, and trouble at one of them."""

    def __init__(self, author: str, counts: Counter[str], cut: Cut | None) -> None:
        self._author = author
        self._counts = counts
        self._cut = cut

    async def before(self, call: Call) -> None:
        await super().before(call)
        if call.verb not in EFFECTS:
            return
        self._counts[self._author] += 1
        if self._cut and self._cut.number == self._counts[self._author]:
            raise TROUBLES[self._cut.trouble]


class Outcome(NamedTuple):
    """What has to be the same, with any trouble on the way."""

    attempt: int
    restarts: int
    size: int
    members: frozenset[int]
    decided: tuple[tuple[str, int], ...]


ONCE = ("JobCreated", "JobRestarting", "JobRestarted", "ScaleAccepted", "ScaleSucceeded", "WorkersReleased", "JobGone")


async def lived(cut: Cut | None) -> tuple[Outcome, Counter[str]]:
    """Two workers, two more, one less, a failure, another attempt, deleted: the outcome, and the effects of each."""
    counts: Counter[str] = Counter()
    async with World(weather=lambda author: Disturbed(author, counts, cut)) as world:
        world.apply(TRAININGJOBS, a_training_job(workers=2, restartPolicy="OnFailure"))
        await world.running()
        world.apply(SCALEOUTS, a_scale_out(2))
        await world.phase("ScaleSucceeded", SCALEOUTS, "out")
        world.apply(SCALEINS, a_scale_in(1))
        await world.phase("ScaleSucceeded", SCALEINS, "in")
        await world.running()
        world.exit_codes["resnet-launcher"] = 1
        await world.phase("Restarting")
        await world.running()
        await world.quiet()
        job = world.job()
        world.delete(TRAININGJOBS, "resnet")
        await world.until(lambda: world.job().resource.gone, "the job is gone")
        await world.until(lambda: not any(world.store.find(kind) for kind in LEFT), "nothing is left")
        await world.quiet()
        assert not any(world.store.find(kind) for kind in LEFT), "nothing comes back"
        assert not world.job().scaling.open, "no request is open for ever"
        types = Counter(world.types())
    decided = tuple((kind, types[kind]) for kind in ONCE)
    return Outcome(job.attempt.number, job.retries.restarts, job.scaling.size, job.listed_workers, decided), counts


def live(cut: Cut | None = None) -> tuple[Outcome, Counter[str]]:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(lived(cut))


@pytest.fixture(scope="module")
def undisturbed() -> tuple[Outcome, Counter[str]]:
    return live()


def test_the_undisturbed_life(undisturbed: tuple[Outcome, Counter[str]]):
    outcome, counts = undisturbed
    assert outcome == Outcome(
        attempt=1,
        restarts=1,
        size=3,
        members=frozenset({0, 1, 2}),
        decided=tuple((kind, 2 if kind in ("ScaleAccepted", "ScaleSucceeded") else 1) for kind in ONCE),
    )
    assert counts["watcher"] == 0
    assert min(counts[author] for author in ("scheduler", "scaler", "status")) > 5


@pytest.mark.parametrize("trouble", TROUBLES)
def test_it_ends_the_same_whatever_the_api_server_says_at_any_effect(
    trouble: str, undisturbed: tuple[Outcome, Counter[str]]
):
    expected, counts = undisturbed
    passed_by: Counter[str] = Counter()
    for number in range(1, max(counts.values()) + 1):
        cut = Cut(number, trouble)
        outcome, made = live(cut)
        assert outcome == expected, cut
        passed_by.update(author for author, count in counts.items() if made[author] < number <= count)
    assert all(number <= counts[author] * UNREACHED for author, number in passed_by.items()), passed_by
