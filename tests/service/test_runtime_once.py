"""Effects that must not happen twice, what they learn, and effects that may take for ever."""

import asyncio
from collections.abc import Callable
from typing import ClassVar

import pytest

from shared.errors import Conflict, Transient
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scheduler import JobRestarted
from shared.job.fold import History
from shared.job.naming import Slot
from shared.job.spec import WORKER
from shared.job.steps import Effect, Record, Step
from shared.runtime.acts import Context
from shared.runtime.run import Runtime
from tests.kit.tasks import beside
from tests.kit.virtual_time import until
from tests.service.test_lines import Mute
from tests.service.test_runtime import ONE, TWO, Line, Make, Small, Stage

AGES = 3_600.0


class Launch(Effect, frozen=True):
    """What must not happen twice."""

    decision: int

    @property
    def once(self) -> int:
        return self.decision

    @property
    def target(self) -> str:
        return "launch"


class Hang(Effect, frozen=True):
    """An effect whose duration another program decides."""

    apart: ClassVar[bool] = True
    number: int

    @property
    def target(self) -> str:
        return f"hang/{self.number}"


class Telling(Small):
    """A service whose effects learn something."""

    def __init__(self, decide: Callable[[History], list[Step]], fact: AnyEvent | Exception | None = None) -> None:
        super().__init__(decide)
        self._fact = fact

    async def act(self, effect: Effect, context: Context) -> AnyEvent | None:  # type: ignore[override]
        await super().act(effect, context)
        if isinstance(effect, Hang):
            await asyncio.Event().wait()
        if isinstance(self._fact, Exception):
            raise self._fact
        return self._fact


def launching(history: History) -> list[Step]:
    """Decide it, and want it for ever."""
    if not history.job.resource.generation:
        return []
    return [Launch(history.last_decision)] if history.job.attempt.number else [Record(JobRestarted(attempt=1))]


async def test_what_must_not_happen_twice_happens_once_however_long_it_is_wanted():
    async with Stage(Telling(launching)).running() as stage:
        stage.see()
        await until(lambda: bool(stage.service.acted), "the launch")
        stage.see(generation=2)
        await asyncio.sleep(AGES)
        assert len(stage.service.acted) == 1


async def test_a_decision_of_another_process_is_not_carried_out():
    owner = False
    async with Stage(Telling(launching), owns=lambda: owner).running() as stage:
        stage.see()
        await until(lambda: stage.history().job.resource.generation == 1, "the job")
        stage.decide_otherwise(JobRestarted(attempt=1), "scheduler")
        await until(lambda: stage.history().job.attempt.number == 1, "the decision")
        owner = True
        await stage.runtime.owned()
        await asyncio.sleep(AGES)
        assert stage.service.acted == []


async def test_after_a_restart_no_process_carries_it_out():
    async with Stage(Telling(launching)).running() as stage:
        stage.see()
        await until(lambda: bool(stage.service.acted), "the launch")
        again = Telling(launching)
        runtime = Runtime(again, Line(stage.journal, user="scheduler"))
        async with beside(runtime.run()):
            await asyncio.sleep(AGES)
        assert again.decided, "it looked at the job"
        assert again.acted == []


async def test_a_decision_that_is_read_before_its_append_is_answered_is_carried_out():
    async with Stage(Telling(launching)).running() as stage:
        stage.line.answers.clear()
        stage.see()
        await until(lambda: stage.history().job.attempt.number == 1, "read back")
        await until(lambda: len(stage.service.acted) == 1, "the launch: its id says whose it is")
        stage.line.answers.set()
        await asyncio.sleep(AGES)
        assert len(stage.service.acted) == 1


@pytest.mark.parametrize("after", [pytest.param(0.0, id="at once"), pytest.param(1.0, id="after it was read back")])
async def test_a_decision_that_is_stored_without_an_answer_is_carried_out(after: float):
    stage = Stage(Telling(launching))
    stage.runtime = Runtime(stage.service, Mute(stage.journal, user="scheduler", after=after))
    async with stage.running():
        stage.see()
        await until(lambda: bool(stage.service.acted), "the launch")
        await asyncio.sleep(AGES)
        assert stage.types().count("JobRestarted") == 1
        assert len(stage.service.acted) == 1


async def test_a_decision_that_lost_to_another_is_not_carried_out():
    async with Stage(Telling(launching)).running() as stage:
        stage.line.gate.clear()
        stage.see()
        await until(lambda: bool(stage.line.attempts), "its own")
        stage.decide_otherwise(JobRestarted(attempt=1), "scheduler")
        stage.line.gate.set()
        await asyncio.sleep(AGES)
        assert stage.types().count("JobRestarted") == 1
        assert stage.service.acted == []


@pytest.mark.parametrize(
    "trouble", [Transient("a lost answer"), Conflict("another one")], ids=lambda t: type(t).__name__
)
async def test_it_is_not_tried_again_whatever_went_wrong(trouble: Exception):
    async with Stage(Telling(launching, trouble)).running() as stage:
        stage.see()
        await until(lambda: bool(stage.service.acted), "the launch")
        await asyncio.sleep(AGES)
        assert len(stage.service.acted) == 1


async def test_what_an_effect_learned_is_recorded_until_it_is_stored():
    learned = EffectRefused(effect="Launch", reason="Learned")
    async with Stage(Telling(launching, learned)).running() as stage:
        stage.see()
        await until(lambda: stage.history().job.attempt.number == 1, "the decision")
        stage.line.trouble = [Transient("no answer"), Conflict("another fact"), Transient("still none")]
        await until(lambda: "EffectRefused" in stage.types(), "the fact")
        await asyncio.sleep(AGES)
        assert [body["reason"] for body in stage.bodies("EffectRefused")] == ["Learned"]


async def test_what_hangs_takes_no_room_from_anything_else():
    def decide(history: History) -> list[Step]:
        if not history.job.resource.generation:
            return []
        return [*(Hang(number) for number in range(300)), Make(Slot(0, WORKER, 0))]

    async with Stage(Telling(decide)).running() as stage:
        for key in (ONE, TWO):
            stage.see(key)
        await until(lambda: sum(isinstance(effect, Make) for effect, _ in stage.service.acted) == 2, "both", seconds=1)


async def test_a_refusal_is_recorded_while_something_else_hangs():
    class Refusing(Telling):
        async def act(self, effect: Effect, context: Context) -> AnyEvent | None:  # type: ignore[override]
            if isinstance(effect, Make):
                return EffectRefused(effect="Make", reason="QuotaExceeded")
            return await super().act(effect, context)

    def decide(history: History) -> list[Step]:
        return [Hang(0), Make(Slot(0, WORKER, 0))] if history.job.resource.generation else []

    async with Stage(Refusing(decide)).running() as stage:
        stage.see()
        await until(lambda: bool(stage.bodies("EffectRefused")), "the refusal", seconds=1)
