"""Trouble at every effect of create, scale-out, scale-in, restart and delete: the end is the same.

The effects are counted in an undisturbed life.  Then that life is lived once for each of them and disturbed
there: the service is killed before or after it, the call fails, is refused, meets a conflict, its answer is lost, or
the job is deleted.
"""

import asyncio
from collections import Counter
from typing import Literal, NamedTuple, get_args

import pytest

from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.errors import Conflict, Refused, Transient
from shared.job.state import Job
from tests.kit.virtual_time import VirtualLoop
from tests.kit.world import SCALEINS, SCALEOUTS, TRAININGJOBS, World, a_scale_in, a_scale_out, a_training_job
from tests.memory.cluster import Call, Calm

Trouble = Literal["killed before", "killed after", "failed", "refused", "conflict", "answer lost", "job deleted"]
EFFECTS = ("create", "patch", "delete", "execute")
LEFT = (PODS, SERVICES, CONFIGMAPS, SECRETS)

UNREACHED = 0.1
"""How many of all cells a life may pass by because it took another turn before: two patches became one."""


class Cut(NamedTuple):
    """Which effect of which service is disturbed, and how."""

    author: str
    number: int
    trouble: Trouble


ANSWERED = "answered "


def counted(author: str, trouble: Trouble) -> str:
    """What a trouble counts: the calls of a service, or those of them that succeeded."""
    return ANSWERED + author if trouble in ("killed after", "answer lost") else author


class Disturbed(Calm):
    """What one service meets: every effect counted, and trouble at one of them."""

    def __init__(self, author: str, counts: Counter[str], cut: Cut | None, reached: asyncio.Event) -> None:
        self._author = author
        self._counts = counts
        self._cut = cut
        self._reached = reached

    async def before(self, call: Call) -> None:
        await super().before(call)
        if call.verb not in EFFECTS:
            return
        self._counts[self._author] += 1
        if self._here("killed before"):
            await self._die()
        if self._here("failed"):
            raise Transient("the API server failed")
        if self._here("refused"):
            raise Refused("no rights at this moment", reason="Forbidden")
        if self._here("conflict"):
            raise Conflict("409")
        self._here("job deleted")

    async def after(self, call: Call) -> None:
        if call.verb not in EFFECTS:
            return
        self._counts[ANSWERED + self._author] += 1
        if self._here("killed after"):
            await self._die()
        if self._here("answer lost"):
            raise Transient("the connection was lost")

    def _here(self, trouble: Trouble) -> bool:
        number = self._counts[counted(self._author, trouble)]
        here = self._cut == (self._author, number, trouble) and not self._reached.is_set()
        if here:
            self._reached.set()
        return here

    async def _die(self) -> None:
        # The service that waits for the answer is killed meanwhile.
        await asyncio.Event().wait()


class Outcome(NamedTuple):
    """What has to be the same, with any number of crashes on the way."""

    attempt: int
    restarts: int
    size: int
    members: frozenset[int]
    decided: tuple[tuple[str, int], ...]


ONCE = ("JobCreated", "JobRestarting", "JobRestarted", "ScaleAccepted", "ScaleSucceeded", "WorkersReleased", "JobGone")


async def a_life(world: World) -> Job:
    """Two workers, two more, one less, a failure, another attempt, deleted; return the job as it was before that."""
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
    await nothing_left(world)
    return job


async def nothing_left(world: World) -> None:
    await world.until(lambda: world.job().gone, "the job is gone")
    await world.until(lambda: not any(world.store.find(kind) for kind in LEFT), "nothing is left")
    await world.quiet()
    assert not any(world.store.find(kind) for kind in LEFT), "nothing comes back"
    assert not world.job().scaling.open, "no request is open for ever"


async def lived(cut: Cut | None) -> tuple[Outcome | None, Counter[str], bool]:
    """The outcome of a life, the effects of each service, and whether the cut was reached.

    A life that was cut short by a deletion has no outcome.
    """
    counts: Counter[str] = Counter()
    reached = asyncio.Event()
    async with World(weather=lambda author: Disturbed(author, counts, cut, reached)) as world:
        living = asyncio.create_task(a_life(world))
        waiting = asyncio.create_task(reached.wait())
        await asyncio.wait((living, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if cut is not None and reached.is_set():
            if cut.trouble.startswith("killed"):
                await world.kill(cut.author)
                await world.start(cut.author)
            if cut.trouble == "job deleted" and not living.done():
                living.cancel()
                # What goes by the garbage collector, goes without one too.
                world.collecting = False
                if world.store.find(TRAININGJOBS):
                    world.delete(TRAININGJOBS, "resnet")
                await nothing_left(world)
                return None, counts, True
        job = await living
        types = Counter(world.types())
    decided = tuple((kind, types[kind]) for kind in ONCE)
    return (
        Outcome(job.attempt.number, job.restarts, job.scaling.size, job.listed_workers, decided),
        counts,
        reached.is_set(),
    )


def live(cut: Cut | None = None) -> tuple[Outcome | None, Counter[str], bool]:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(lived(cut))


@pytest.fixture(scope="module")
def undisturbed() -> tuple[Outcome | None, Counter[str]]:
    outcome, counts, _ = live()
    return outcome, counts


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


@pytest.mark.parametrize("trouble", get_args(Trouble))
@pytest.mark.parametrize("author", ["scheduler", "scaler", "status"])
def test_it_ends_the_same_whatever_happens_at_any_effect(
    author: str, trouble: Trouble, undisturbed: tuple[Outcome, Counter[str]]
):
    wanted, counts = undisturbed
    passed_by, calls = 0, counts[counted(author, trouble)]
    for number in range(1, calls + 1):
        cut = Cut(author, number, trouble)
        outcome, _, reached = live(cut)
        assert outcome is None or outcome == wanted, cut
        passed_by += not reached
    assert passed_by <= calls * UNREACHED, f"{passed_by} of {calls} were never reached"
