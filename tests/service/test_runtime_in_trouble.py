"""The runtime in trouble: events that cannot be folded, a log that answers late, health that comes back."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from itertools import pairwise

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from shared.errors import Conflict, Refused, Transient
from shared.eventlog import Batch, Entry, Stored, ignore_trouble
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import At
from shared.job.events.scheduler import JobRestarted
from shared.job.evolve import evolve
from shared.job.metrics import JobMetrics
from shared.job.naming import JobKey, Uid
from shared.job.state import Job
from shared.job.steps import Effect
from shared.runtime.acts import Context
from shared.runtime.appends import APPENDS_IN_FLIGHT
from shared.runtime.run import Runtime
from tests.kit.virtual_time import until
from tests.memory.eventlog import MemoryJournal
from tests.service.test_runtime import ONE, TWO, Line, Small, Stage, forbidden, restarting, wanting


class Slow(Line):
    """A log whose end is told late, or not at all at first."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.journal, user=stage.service.author)
        self.asked = 0
        self.tells_end = asyncio.Event()
        self.tells_end.set()
        self.no_end: list[Exception] = []

    async def end(self, subjects: tuple[str, ...] = ()) -> int:
        self.asked += 1
        end = await super().end(subjects)
        await self.tells_end.wait()
        if self.no_end:
            raise self.no_end.pop(0)
        return end


def with_a_slow_log(stage: Stage, *, owns: bool = True) -> Slow:
    line = Slow(stage)
    stage.line = line
    stage.runtime = Runtime(stage.service, line, owns=lambda: owns, chance=lambda: 0.5)
    return line


async def test_an_event_that_breaks_the_fold_holds_its_job_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch):
    def with_a_bug(job: Job, event: AnyEvent, at: At) -> Job:
        assert job.key != TWO, "our bug"
        return evolve(job, event, at)

    monkeypatch.setattr("shared.job.fold.evolve", with_a_bug)
    stage = Stage(Small(lambda history: restarting(1)(history) if history.job.key == ONE else []))
    async with stage.running():
        stage.see(TWO)
        stage.see(ONE)
        await until(lambda: stage.history(ONE).job.attempt.number == 1, "the other job's restart")
        assert list(stage.runtime.held()) == ["team-a/bert"]


async def test_a_new_owner_does_nothing_until_it_knows_where_the_log_ends():
    stage = Stage(Small(wanting(0)), owns=lambda: True)
    line = with_a_slow_log(stage)
    async with stage.running():
        line.tells_end.clear()
        owning = asyncio.create_task(stage.runtime.owned())
        await until(lambda: line.asked == 2, "the question")
        stage.see()
        await asyncio.sleep(10)
        assert stage.history().job.resource.generation == 1
        assert stage.service.acted == []
        line.tells_end.set()
        await owning
        await until(lambda: len(stage.service.acted) == 1, "the effect")


async def test_an_end_that_cannot_be_asked_for_now_is_asked_for_again():
    stage = Stage(Small(wanting(0)))
    line = with_a_slow_log(stage)
    line.no_end = [Transient("no answer")]
    async with stage.running():
        line.no_end = [Transient("no answer"), Transient("no answer", retry_after=3.0)]
        await stage.runtime.owned()
        stage.see()
        await until(lambda: len(stage.service.acted) == 1, "the effect")


async def test_trouble_is_over_once_a_fact_was_stored():
    stage = Stage(Small(wanting(0), forbidden))
    stage.line.trouble = [Transient("no answer")]
    async with stage.running():
        stage.see()
        await until(lambda: stage.runtime.trouble == "no answer", "the trouble")
        await until(lambda: len(stage.bodies("EffectRefused")) == 1, "the refusal")
        await until(lambda: not stage.runtime.trouble, "its end", seconds=0.1)


async def test_trouble_is_over_once_the_log_said_that_another_writer_was_quicker():
    stage = Stage(Small(restarting(1)))
    stage.line.trouble = [Transient("no answer"), Conflict("someone else")]
    async with stage.running():
        stage.see()
        await until(lambda: stage.runtime.trouble == "no answer", "the trouble")
        await until(lambda: not stage.line.trouble, "the conflict")
        await until(lambda: not stage.runtime.trouble, "its end", seconds=0.1)


async def test_trouble_is_over_once_what_was_owed_is_owed_no_more():
    stage = Stage(Small(restarting(1)))
    stage.line.trouble = [Transient("no answer")]
    async with stage.running():
        stage.see()
        await until(lambda: stage.runtime.trouble == "no answer", "the trouble")
        stage.decide_otherwise(JobRestarted(attempt=1), "scheduler")
        await until(lambda: not stage.runtime.trouble, "its end", seconds=3)
        assert len(stage.line.attempts) == 1


async def test_what_an_owner_could_not_append_is_no_trouble_of_who_is_none_any_more():
    owner = True
    stage = Stage(Small(restarting(1)), owns=lambda: owner)
    stage.line.trouble = [Transient("no answer")]
    async with stage.running():
        stage.see()
        await until(lambda: stage.runtime.trouble == "no answer", "the trouble")
        owner = False
        assert not stage.runtime.trouble


async def test_a_fact_that_the_log_refuses_is_trouble_until_it_is_stored_and_no_longer():
    permitted = False

    async def act(effect: Effect, context: Context) -> None:
        if not permitted:
            raise Refused("no permission for pods", reason="Forbidden")

    stage = Stage(Small(wanting(0), act))
    stage.line.trouble = [Refused("no permission for facts", reason="Forbidden") for _ in range(3)]
    async with stage.running():
        stage.see()
        await until(lambda: stage.runtime.trouble == "no permission for facts", "the trouble")
        permitted = True
        await until(lambda: not stage.runtime.trouble, "its end")
        assert not stage.line.trouble
        assert len(stage.bodies("EffectRefused")) == 1
        await until(lambda: len(stage.service.acted) == 2, "the effect")


async def test_a_fact_that_is_too_large_is_one_jobs_story_and_no_trouble_of_the_service():
    stage = Stage(Small(wanting(0), forbidden))
    stage.line.trouble = [Refused("too many bytes", reason="TooLarge")]
    async with stage.running():
        stage.see()
        await until(lambda: not stage.line.trouble, "the refusal")
        assert stage.runtime.trouble == ""
        await until(lambda: len(stage.bodies("EffectRefused")) == 1, "the next one's fact")


async def test_facts_of_many_jobs_wait_for_their_turn_at_the_log():
    stage = Stage(Small(wanting(0), forbidden))
    jobs = [JobKey("team-a", f"job-{number}", Uid(f"uid-{number}")) for number in range(APPENDS_IN_FLIGHT + 50)]
    async with stage.running():
        stage.line.gate.clear()
        for key in jobs:
            stage.see(key)
        await until(lambda: stage.line.under_way == APPENDS_IN_FLIGHT, "a full line")
        await asyncio.sleep(1)
        assert stage.line.most_under_way == APPENDS_IN_FLIGHT
        stage.line.gate.set()
        await until(lambda: len(stage.bodies("EffectRefused")) == len(jobs), "all facts")


class Clocked(Line):
    """A log that notes when it was asked."""

    def __init__(self, journal: MemoryJournal, *, user: str) -> None:
        super().__init__(journal, user=user)
        self.asked: list[float] = []

    async def append(self, entry: Entry, *, expect: int) -> int:
        self.asked.append(asyncio.get_running_loop().time())
        return await super().append(entry, expect=expect)


async def test_a_fact_that_cannot_be_stored_now_is_tried_ever_more_seldom_and_not_in_step_with_others():
    async def pauses(chance: float) -> list[float]:
        stage = Stage(Small(wanting(0), forbidden))
        stage.line = line = Clocked(stage.journal, user=stage.service.author)
        stage.runtime = Runtime(stage.service, line, chance=lambda: chance)
        line.trouble = [Transient("no room") for _ in range(9)]
        async with stage.running():
            stage.see()
            await until(lambda: len(stage.bodies("EffectRefused")) == 1, "the fact")
        return [round(after - before, 3) for before, after in pairwise(line.asked)]

    early, late = await pauses(0.0), await pauses(1.0)
    assert early == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.5]
    assert late == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0]


class Unreadable(Line):
    """A log that takes appends and cannot be read from some moment on."""

    tell: Callable[[str], None]

    def read(
        self, *, after: int = 0, subjects: tuple[str, ...] = (), trouble: Callable[[str], None] = ignore_trouble
    ) -> AsyncGenerator[Batch, None]:
        self.tell = trouble
        return super().read(after=after, subjects=subjects, trouble=trouble)


async def test_what_keeps_it_from_reading_is_trouble_of_an_owner_and_of_who_is_none():
    owner = True
    stage = Stage(Small(wanting()), owns=lambda: owner)
    stage.line = line = Unreadable(stage.journal, user=stage.service.author)
    stage.runtime = Runtime(stage.service, line, owns=lambda: owner)
    async with stage.running():
        line.tell("no memory for a consumer")
        assert stage.runtime.trouble == "no memory for a consumer"
        owner = False
        assert stage.runtime.trouble == "no memory for a consumer"
        line.tell("")
        assert stage.runtime.trouble == ""


class Mute(Line):
    """A log that tells the last event of a scope only at the second try."""

    unanswered = 0

    async def last(self, scope: str) -> Stored | None:
        if self.unanswered:
            self.unanswered -= 1
            raise Transient("no answer")
        return await super().last(scope)


async def test_a_fact_whose_scope_cannot_be_asked_for_now_is_stored_all_the_same():
    stage = Stage(Small(wanting(0), forbidden))
    line = Mute(stage.journal, user=stage.service.author)
    line.trouble, line.unanswered = [Conflict("someone else")], 1
    stage.line, stage.runtime = line, Runtime(stage.service, line, chance=lambda: 0.5)
    async with stage.running():
        stage.see()
        await until(lambda: len(stage.bodies("EffectRefused")) == 1, "the refusal")
        assert stage.runtime.trouble == ""


async def test_a_fact_that_another_replica_said_meanwhile_is_said_once():
    # It was the owner before, and what it saw last took a while to be stored.
    stage = Stage(Small(wanting(0), forbidden))
    stage.line.gate.clear()
    async with stage.running():
        stage.see()
        await until(lambda: bool(stage.line.attempts), "the append")
        ours, expect = stage.line.attempts[0]
        stage.journal.append(msgspec.structs.replace(ours, event_id="of-the-other-replica"), expect=expect)
        stage.line.gate.set()
        await asyncio.sleep(0.5)
        assert len(stage.line.attempts) == 1, "it was told that another writer was quicker, and what that one wrote"
        assert len(stage.bodies("EffectRefused")) == 1
        assert stage.runtime.trouble == ""


async def test_an_effect_that_met_newer_data_is_no_reason_to_look_after_the_cluster():
    outcomes: list[Exception] = [Conflict("it has changed")]

    async def act(effect: Effect, context: Context) -> None:
        if outcomes:
            raise outcomes.pop()

    stage = Stage(Small(wanting(0), act))
    async with stage.running():
        stage.see()
        await until(lambda: len(stage.service.acted) == 2, "the second try")
        assert not stage.runtime.alarm.is_set()


async def test_a_figure_that_cannot_be_counted_holds_no_job_and_is_told_once():
    class Wrong(JobMetrics):
        def folded(self, before: Job, event: AnyEvent, after: Job, time: str) -> None:
            raise AssertionError("our bug")

    stage = Stage(Small(restarting(2)))
    stage.runtime = Runtime(stage.service, stage.line, job_metrics=Wrong())
    with capture_logs() as said:
        async with stage.running():
            stage.see()
            await until(lambda: stage.history().job.attempt.number == 2, "two restarts")
            assert stage.runtime.held() == {}
    structlog.reset_defaults()
    assert [line["log_level"] for line in said if line["event"] == "not measured"] == ["error"]
