"""What the services say: one line a decision, one a refused effect, one a held job, each with what a reader needs."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from shared.errors import Conflict, Refused, Transient
from shared.eventlog import Entry
from shared.job.fold import History
from shared.job.steps import Effect, Step
from shared.runtime.acts import Context
from shared.runtime.appends import MOST_UNCERTAIN
from shared.runtime.run import Runtime
from tests.kit.services import AUTHORS
from tests.kit.virtual_time import until
from tests.kit.world import World, a_scaled_life
from tests.memory.eventlog import MemoryEventLog, MemoryJournal
from tests.service.test_runtime import Small, Stage, restarting, wanting

Line = dict[str, Any]


@pytest.fixture
def lines() -> Iterator[list[Line]]:
    """Every line that is said, whatever its level."""
    with structlog.testing.capture_logs() as said:
        yield said  # type: ignore[misc]
    structlog.reset_defaults()


def decisions_of(world: World) -> dict[int, str]:
    """What the log holds: the type of each decision by its sequence."""
    return {
        stored.sequence: stored.subject.rpartition(".")[2]
        for stored in world.journal.events
        if stored.subject.startswith("jobs.")
    }


def decisions_told(lines: list[Line]) -> list[Line]:
    return [line for line in lines if "basis" in line]


async def test_every_decision_of_a_life_is_told_once_with_what_it_was_taken_on(lines: list[Line]):
    async with World() as world:
        await a_scaled_life(world)
        await world.quiet()
        told = decisions_told(lines)
        assert {line["seq"]: line["event"] for line in told} == decisions_of(world)
        assert len(told) == len(decisions_of(world))
    for line in told:
        assert {"event", "log_level", "job", "kind", "uid", "seq", "basis", "reason"} == {*line}
        assert (line["log_level"], line["job"], line["kind"]) == ("info", "team-a/resnet", "TrainingJob")
        assert line["basis"] < line["seq"]


async def test_every_fact_is_told_once_at_debug(lines: list[Line]):
    async with World() as world:
        await a_scaled_life(world)
        await world.quiet()
        facts = [stored.sequence for stored in world.journal.events if stored.subject.startswith("facts.")]
    told = [line["seq"] for line in lines if line["log_level"] == "debug" and "uid" in line]
    # The genesis event is the set-up's.
    assert sorted(told) == facts[1:]


@pytest.mark.parametrize("author", AUTHORS)
async def test_a_life_with_kills_tells_no_decision_twice_and_leaves_out_those_that_a_kill_broke_off(
    lines: list[Line], author: str
):
    async with World() as world:
        living, kills = asyncio.create_task(a_scaled_life(world)), 0
        while not living.done():
            await asyncio.sleep(0.01)
            await world.kill(author)
            await world.start(author)
            kills += 1
        await living
        await world.quiet()
        known = decisions_of(world)
    told = [line["seq"] for line in decisions_told(lines)]
    assert len(told) == len({*told})
    assert {*told} <= {*known}
    assert len(known) - len(told) <= kills, "one job has one append in flight"


class Mute(MemoryEventLog):
    """A log that stores once and does not answer, which comes out so many seconds later."""

    def __init__(self, journal: MemoryJournal, *, user: str, after: float) -> None:
        super().__init__(journal, user=user)
        self.mute = True
        self._after = after

    async def append(self, entry: Entry, *, expect: int) -> int:
        sequence = await super().append(entry, expect=expect)
        await asyncio.sleep(self._after)
        if self.mute:
            self.mute = False
            raise Transient("append: no answer")
        return sequence


@pytest.mark.parametrize("after", [pytest.param(0.0, id="at once"), pytest.param(1.0, id="after it was read back")])
async def test_a_decision_without_an_answer_is_told_when_it_is_read_back(lines: list[Line], after: float):
    stage = Stage(Small(restarting(2)))
    stage.runtime = Runtime(stage.service, Mute(stage.journal, user="scheduler", after=after))
    async with stage.running():
        stage.see()
        await until(lambda: stage.history().job.attempt.number == 2, "two restarts")
        await asyncio.sleep(5)
    assert [(line["seq"], line["basis"]) for line in decisions_told(lines)] == [(3, 2), (4, 3)]
    assert not stage.runtime.appends.uncertain


async def test_decisions_that_never_were_stored_leave_room_for_those_that_were(lines: list[Line]):
    stage = Stage(Small(restarting(MOST_UNCERTAIN + 100)))
    stage.line.trouble = [Transient("never stored", retry_after=0.1) for _ in range(MOST_UNCERTAIN + 10)]
    mute = Mute(stage.journal, user="scheduler", after=1.0)
    async with stage.running():
        stage.see()
        await until(lambda: not stage.line.trouble, "a full memory", seconds=MOST_UNCERTAIN)
        stage.line.append = mute.append  # type: ignore[method-assign]
        await until(lambda: stage.history().job.attempt.number == 2, "two restarts")
        assert len(stage.runtime.appends.uncertain) <= MOST_UNCERTAIN
    assert [line["seq"] for line in decisions_told(lines)][:2] == [3, 4]


async def test_what_lost_to_another_or_was_refused_is_not_remembered():
    stage = Stage(Small(restarting(1)))
    stage.line.trouble = [Conflict("another one"), Refused("no permission", reason="Forbidden")]
    async with stage.running():
        stage.see()
        await until(lambda: stage.history().job.attempt.number == 1, "the restart")
        await asyncio.sleep(1)
        assert not stage.runtime.appends.uncertain


async def test_each_refused_effect_is_told_with_what_and_why(lines: list[Line]):
    async def refuse(effect: Effect, context: Context) -> None:
        raise Refused("create Pod: exceeded quota", reason="Forbidden")

    async with Stage(Small(wanting(0, 1), refuse)).running() as stage:
        stage.see()
        await until(lambda: "EffectRefused" in stage.types(), "the refusal")
    told = [line for line in lines if line["event"] == "effect refused"]
    assert [line["target"] for line in told] == ["pod/0", "pod/1"]
    assert told[0] == {
        "event": "effect refused",
        "log_level": "warning",
        "job": "team-a/resnet",
        "kind": "TrainingJob",
        "uid": "uid-1",
        "effect": "Make",
        "target": "pod/0",
        "seq": 2,
        "reason": "Forbidden",
        "why": "create Pod: exceeded quota",
    }


async def test_a_held_job_is_told_once_with_its_reason(lines: list[Line]):
    def decide(history: History) -> list[Step]:
        assert not history.job.resource.generation, "our bug"
        return []

    async with Stage(Small(decide)).running() as stage:
        stage.see()
        stage.see(generation=2)
        await until(lambda: bool(stage.runtime.held()), "the hold")
        stage.see(generation=3)
        await until(lambda: stage.history().job.resource.generation == 3, "the next event")
        await asyncio.sleep(1)
    (line,) = (line for line in lines if line["event"] == "job held")
    assert (line["reason"], line["job"], line["seq"]) == ("BrokenInvariant", "team-a/resnet", 3)
    assert "our bug" in line["why"]
