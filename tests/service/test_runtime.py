"""The runtime: fold, decide, record, act; what it does when the log or the cluster says no.

Services here are a few lines each, written for one behaviour, on the real runtime and the log in memory.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import cycle, pairwise
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from shared.errors import Conflict, Refused, Transient
from shared.eventlog import Entry, Stored
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import Author
from shared.job.events.scheduler import JobExpired, JobRestarted, SlotsAssigned
from shared.job.events.status import JobCreated, JobSealed
from shared.job.fold import History
from shared.job.naming import JobKey, Slot, Uid, subject_of
from shared.job.reasons import NAME_HELD
from shared.job.spec import WORKER
from shared.job.steps import Effect, Record, Step
from shared.job.views import Slots
from shared.runtime.acts import EFFECTS_PER_JOB, Context
from shared.runtime.run import STOP_SECONDS, Runtime
from tests.kit.builders import a_spec, observed
from tests.kit.tasks import beside
from tests.kit.virtual_time import until
from tests.memory.eventlog import MemoryEventLog, MemoryJournal

ONE = JobKey("team-a", "resnet", Uid("uid-1"))
TWO = JobKey("team-a", "bert", Uid("uid-2"))
Decide = Callable[[History], list[Step]]
Act = Callable[[Effect, Context], Awaitable[None]]


class Make(Effect, frozen=True):
    """An effect on one slot."""

    slot: Slot

    @property
    def target(self) -> str:
        return f"pod/{self.slot.index}"


def make(*indices: int) -> list[Step]:
    return [Make(Slot(0, WORKER, index)) for index in indices]


async def do_nothing(effect: Effect, context: Context) -> None:
    """An effect that works at once."""


async def forbidden(effect: Effect, context: Context) -> None:
    """An effect that the API server refuses."""
    raise Refused("no permission", reason="Forbidden")


class Small:
    """A service made of two functions."""

    author: Author = "scheduler"

    def __init__(self, decide: Decide, act: Act = do_nothing, known: Iterable[JobKey] = ()) -> None:
        self._decide = decide
        self._act = act
        self._known = known
        self.decided: list[tuple[JobKey, int]] = []
        self.acted: list[tuple[Effect, float]] = []

    def decide(self, history: History) -> list[Step]:
        self.decided.append((history.job.key, history.sequence))
        return self._decide(history)

    async def act(self, effect: Effect, context: Context) -> None:
        self.acted.append((effect, asyncio.get_running_loop().time()))
        await self._act(effect, context)

    async def attend(self, runtime: Runtime) -> None:
        await asyncio.Event().wait()

    def known(self) -> Iterable[JobKey]:
        return self._known

    def forget(self, key: JobKey) -> None:
        pass


class Line(MemoryEventLog):
    """The log over a line that a test can hold up: appends wait at the gate, and fail when told to."""

    def __init__(self, journal: MemoryJournal, *, user: str) -> None:
        super().__init__(journal, user=user)
        self.gate = asyncio.Event()
        self.gate.set()
        self.answers = asyncio.Event()
        self.answers.set()
        self.under_way = 0
        self.most_under_way = 0
        self.attempts: list[tuple[Entry, int]] = []
        self.trouble: list[Exception] = []

    async def append(self, entry: Entry, *, expect: int) -> int:
        self.attempts.append((entry, expect))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self.gate.wait()
            if self.trouble:
                raise self.trouble.pop(0)
            sequence = await super().append(entry, expect=expect)
            await self.answers.wait()
            return sequence
        finally:
            self.under_way -= 1


class Stage:
    """A log, one runtime on it, and others who write."""

    def __init__(self, service: Small, *, owns: Callable[[], bool] = lambda: True) -> None:
        self.journal = MemoryJournal()
        self.service = service
        self.line = Line(self.journal, user=service.author)
        self.runtime = Runtime(service, self.line, release="0.1.0 MUSTER_DRAIN=5", owns=owns, chance=lambda: 0.5)
        self._ids = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Stage"]:
        async with beside(self.runtime.run()) as task:
            await until(lambda: self.runtime.current or task.done(), "the fold")
            yield self

    def see(self, key: JobKey = ONE, generation: int = 1) -> None:
        """The watcher's word: a job, or a new generation of it."""
        subject = subject_of(key, "facts", "watcher", "JobObserved")
        body = msgspec.json.encode(observed(a_spec(), generation=generation))
        self._append(Entry(subject=subject, event_id=self._id(), time="2030-01-01T00:00:00.000Z", body=body))

    def decide_otherwise(self, event: AnyEvent, author: str, key: JobKey = ONE) -> None:
        """Another service's decision, on everything so far."""
        history = History(key)
        for stored in self.journal.events:
            if f".{key.uid}." in stored.subject:
                history.fold(stored)
        subject = f"jobs.{key.namespace}.{key.name}.{key.uid}.{author}.{type(event).__name__}"
        self._append(
            Entry(
                subject=subject,
                event_id=self._id(),
                time="2030-01-01T00:00:00.000Z",
                body=msgspec.json.encode(event),
                basis=history.basis,
            )
        )

    def types(self) -> list[str]:
        return [stored.subject.rpartition(".")[2] for stored in self.journal.events[1:]]

    def bodies(self, kind: str) -> list[dict[str, Any]]:
        return [msgspec.json.decode(s.body) for s in self.journal.events if s.subject.endswith(f".{kind}")]

    def history(self, key: JobKey = ONE) -> History:
        return self.runtime.histories[key]

    def _append(self, entry: Entry) -> None:
        scope = entry.subject.rpartition(".")[0] + ".>"
        if entry.subject.startswith("jobs."):
            scope = ".".join(entry.subject.split(".")[:4]) + ".>"
        last = self.journal.last(scope)
        self.journal.append(entry, expect=last.sequence if last is not None else 0)

    def _id(self) -> str:
        self._ids += 1
        return f"other-{self._ids}"


def restarting(times: int) -> Decide:
    """Record so many restarts, one after the other."""

    def decide(history: History) -> list[Step]:
        attempt = history.job.attempt.number
        return (
            [Record(JobRestarted(attempt=attempt + 1))] if history.job.resource.generation and attempt < times else []
        )

    return decide


def wanting(*indices: int) -> Decide:
    """These effects, for every job there is."""
    return lambda history: make(*indices) if history.job.resource.generation else []


class TestDeciding:
    async def test_a_decision_is_recorded_read_back_and_followed_by_the_next(self):
        async with Stage(Small(restarting(3))).running() as stage:
            stage.see()
            await until(lambda: stage.history().job.attempt.number == 3, "three restarts")
            assert stage.types() == ["JobObserved", *["JobRestarted"] * 3]
            assert not stage.history().held
            bases = [stored.basis.partition(":")[0] for stored in stage.journal.events[2:]]
            assert bases == ["2", "3", "4"], "each on the one before"
            assert {body["release"] for body in stage.bodies("JobRestarted")} == {"0.1.0 MUSTER_DRAIN=5"}

    async def test_of_several_records_only_the_first_is_appended(self):
        def decide(history: History) -> list[Step]:
            done = history.job.attempt.number
            return (
                [Record(JobRestarted(attempt=n)) for n in (1, 2, 3) if n > done]
                if history.job.resource.generation
                else []
            )

        async with Stage(Small(decide)).running() as stage:
            stage.see()
            await until(lambda: stage.history().job.attempt.number == 3, "three restarts")
            assert [body["attempt"] for body in stage.bodies("JobRestarted")] == [1, 2, 3]

    async def test_a_job_is_decided_once_per_batch_of_events(self):
        stage = Stage(Small(lambda _: []))
        async with stage.running():
            stage.service.decided.clear()
            for generation in range(1, 200):
                stage.see(generation=generation)
            await until(lambda: stage.history().sequence == 200, "the fold")
            assert stage.service.decided == [(ONE, 200)]

    async def test_nothing_is_decided_before_the_whole_log_is_folded(self):
        stage = Stage(Small(lambda _: []))
        for generation in range(1, 3_000):
            stage.see(generation=generation)
        async with stage.running():
            assert (ONE, 3_000) in stage.service.decided
            assert {sequence for key, sequence in stage.service.decided if key == ONE} == {3_000}

    async def test_jobs_that_only_the_service_knows_are_decided_too(self):
        async with Stage(Small(lambda _: [], known=[TWO])).running() as stage:
            assert (TWO, 0) in stage.service.decided

    async def test_a_broken_invariant_holds_only_that_job(self):
        def decide(history: History) -> list[Step]:
            assert history.job.key != ONE, "cannot be"
            return restarting(1)(history)

        async with Stage(Small(decide)).running() as stage:
            stage.see(ONE)
            stage.see(TWO)
            await until(lambda: stage.history(TWO).job.attempt.number == 1, "the other one's restart")
            assert "cannot be" in stage.runtime.held()["team-a/resnet"]
            assert "team-a/bert" not in stage.runtime.held()
            stage.see(ONE, generation=2)
            await until(lambda: stage.history(ONE).job.resource.generation == 2, "the fold goes on")

    async def test_a_held_job_is_neither_decided_nor_acted_upon(self):
        async with Stage(Small(wanting(0))).running() as stage:
            stage.see()
            await until(lambda: len(stage.service.acted) == 1, "the effect")
            stage.history().hold("TooLarge", "for a test")
            before = len(stage.service.decided)
            stage.see(generation=2)
            await until(lambda: stage.history().job.resource.generation == 2, "the fold")
            await asyncio.sleep(60)
            assert len(stage.service.decided) == before
            assert len(stage.service.acted) == 1


class TestAppending:
    async def test_one_append_at_a_time_for_a_job_and_many_for_many(self):
        keys = [JobKey("team-a", f"job-{number}", Uid(f"uid-{number}")) for number in range(20)]
        async with Stage(Small(restarting(3))).running() as stage:
            stage.line.gate.clear()
            for key in keys:
                stage.see(key)
                stage.see(key, generation=2)
            await until(lambda: stage.line.under_way == 20, "an append for each")
            for key in keys:
                stage.see(key, generation=3)
            await asyncio.sleep(1)
            assert stage.line.most_under_way == 20
            stage.line.gate.set()
            await until(lambda: all(stage.history(key).job.attempt.number == 3 for key in keys), "all restarts")
            assert stage.line.most_under_way == 20
            assert len(stage.bodies("JobRestarted")) == 60

    async def test_nothing_more_is_recorded_until_the_last_one_was_read_back(self):
        async with Stage(Small(restarting(2))).running() as stage:
            stage.line.answers.clear()
            stage.see()
            await until(lambda: stage.history().job.attempt.number == 1, "the first one read back before its answer")
            await asyncio.sleep(1)
            assert len(stage.line.attempts) == 1
            stage.line.answers.set()
            await until(lambda: stage.history().job.attempt.number == 2, "the second one")

    async def test_after_a_conflict_it_is_decided_again_on_what_is_newer(self):
        def decide(history: History) -> list[Step]:
            job = history.job
            return (
                [Record(JobRestarted(attempt=1))]
                if job.resource.generation and not job.attempt.number and not job.status.phase
                else []
            )

        async with Stage(Small(decide)).running() as stage:
            stage.line.gate.clear()
            stage.see()
            await until(lambda: stage.line.under_way == 1, "the append")
            stage.decide_otherwise(JobCreated(reason="TrainingJobCreated"), "status")
            stage.line.gate.set()
            await until(lambda: stage.history().job.status.phase == "Created", "the other's decision")
            await asyncio.sleep(5)
            assert stage.types() == ["JobObserved", "JobCreated"], "what no longer holds is not recorded"

    async def test_a_conflict_with_what_was_read_meanwhile_costs_no_time(self):
        async with Stage(Small(restarting(1))).running() as stage:
            stage.line.gate.clear()
            stage.see()
            await until(lambda: stage.line.under_way == 1, "the append")
            stage.decide_otherwise(JobCreated(reason="TrainingJobCreated"), "status")
            await until(lambda: stage.history().job.status.phase == "Created", "the other's decision")
            stage.line.gate.set()
            await until(lambda: stage.history().job.attempt.number == 1, "the restart", seconds=0.1)
            assert [expect for _, expect in stage.line.attempts] == [0, 3]

    @pytest.mark.parametrize("left", [0, 1], ids=["nothing", "an earlier event"])
    async def test_a_log_that_no_longer_has_what_was_read_ends_the_process(self, left: int):
        stage = Stage(Small(restarting(2)))
        running = asyncio.create_task(stage.runtime.run())
        await until(lambda: stage.runtime.current, "the fold")
        stage.see()
        await until(lambda: stage.history().job.attempt.number == 2, "the restarts")
        stage.line.trouble = [Conflict("append: the last event of the scope is another one")] * 20
        stage.service.decide = restarting(3)  # type: ignore[method-assign]
        stage.runtime.wake(ONE)
        last, lacks = stage.journal.last, cycle([True, True, False])
        rest = stage.journal.events[0] if left else None
        stage.journal.last = lambda scope, behind=0: rest if next(lacks) else last(scope)  # type: ignore[method-assign]
        await asyncio.sleep(12)
        assert not running.done(), "the log has it, a leader that lags answers, and others may be writing"
        stage.journal.last = lambda scope, behind=0: rest  # type: ignore[method-assign]
        await until(running.done, "the end")
        with pytest.raises(Refused, match=r"no longer has the event \d+, which this service has read") as ended:
            await running
        assert ended.value.reason == "LogTruncated"

    async def test_an_append_that_may_work_later_is_tried_later_and_told_meanwhile(self):
        stage = Stage(Small(restarting(1)))
        stage.line.trouble = [Transient("no answer from the log"), Transient("still none", retry_after=3.0)]
        async with stage.running():
            stage.see()
            await until(lambda: stage.runtime.trouble == "no answer from the log", "the trouble")
            await until(lambda: stage.history().job.attempt.number == 1, "the restart", seconds=6)
            assert stage.runtime.trouble == ""
            assert len(stage.line.attempts) == 3

    async def test_what_is_too_large_holds_the_job(self):
        huge = SlotsAssigned(slots=tuple(Slots(0, WORKER, ((n, n),)) for n in range(9_000)))
        async with Stage(Small(lambda history: [Record(huge)] if history.job.key == ONE else [])).running() as stage:
            stage.see()
            await until(lambda: bool(stage.history().held), "the hold")
            assert "too large" in stage.history().held
            await asyncio.sleep(60)
            assert len(stage.line.attempts) == 1
            assert stage.runtime.trouble == "", "one job's story, and the log is well"

    async def test_a_refused_append_is_tried_again_without_haste(self):
        stage = Stage(Small(restarting(1)))
        stage.line.trouble = [Refused("no permission", reason="Forbidden")]
        async with stage.running():
            stage.see()
            await until(lambda: stage.runtime.trouble == "no permission", "the trouble")
            assert not stage.history().held
            await until(lambda: stage.history().job.attempt.number == 1, "the restart", seconds=6)

    async def test_nothing_is_recorded_of_a_sealed_job_whose_resource_came_back(self):
        def decide(history: History) -> list[Step]:
            return [Record(JobRestarted(attempt=1))] if history.job.key == ONE else []

        async with Stage(Small(decide)).running() as stage:
            seal = JobSealed(first=2, last=9, count=8, hash="0" * 64, outcome="Succeeded", reason="Deleted")
            stage.decide_otherwise(seal, "status")
            await until(lambda: stage.runtime.histories.sealed(ONE) > 0, "the seal")
            stage.runtime.wake(ONE)
            await until(lambda: stage.history().held_for == "Sealed", "the hold")
            await asyncio.sleep(60)
            assert stage.types() == ["JobSealed"]


class TestActing:
    async def test_a_transient_failure_is_retried_with_growing_waits(self):
        async def act(effect: Effect, context: Context) -> None:
            raise Transient("timeout")

        async with Stage(Small(wanting(0), act)).running() as stage:
            stage.see()
            await until(lambda: len(stage.service.acted) == 8, "retries")
            times = [time for _, time in stage.service.acted]
            waits = [later - sooner for sooner, later in pairwise(times)]
            assert all(later > sooner for sooner, later in pairwise(waits)), waits
            assert stage.types() == ["JobObserved"], "no event for what may work later"

    @pytest.mark.parametrize(("reason", "outcome"), [("", "Retried"), (NAME_HELD, "Refused")])
    async def test_an_answer_about_one_object_alone_is_counted_as_its_refusal(self, reason: str, outcome: str):
        async def act(effect: Effect, context: Context) -> None:
            raise Transient("not now", reason=reason)

        stage = Stage(Small(wanting(0), act))
        async with stage.running():
            stage.see()
            await until(lambda: len(stage.service.acted) == 3, "retries")
            assert {key[2] for key in stage.runtime.metrics.series[0].values} == {outcome}

    async def test_refusals_are_recorded_once_per_round_and_reason_with_their_slots(self):
        async def act(effect: Effect, context: Context) -> None:
            assert isinstance(effect, Make)
            if effect.slot.index < 60:
                raise Refused("too many pods", reason="QuotaExceeded")
            if effect.slot.index < 62:
                raise Refused("no such image", reason="Invalid", field="spec.containers[0].image")

        async with Stage(Small(wanting(*range(100)), act)).running() as stage:
            stage.see()
            await until(lambda: len(stage.bodies("EffectRefused")) == 2, "the refusals")
            assert len(stage.service.acted) == 100
            quota, invalid = sorted(stage.bodies("EffectRefused"), key=lambda body: body["permanent"])
            assert (quota["effect"], quota["reason"], quota["permanent"]) == ("Make", "QuotaExceeded", False)
            assert quota["slots"] == [{"attempt": 0, "role": WORKER, "ranges": [[0, 59]]}]
            assert (invalid["reason"], invalid["field"], invalid["permanent"]) == (
                "Invalid",
                "spec.containers[0].image",
                True,
            )
            assert invalid["slots"] == [{"attempt": 0, "role": WORKER, "ranges": [[60, 61]]}]

    async def test_a_slow_call_delays_the_record_of_no_other_refusal(self):
        async def act(effect: Effect, context: Context) -> None:
            assert isinstance(effect, Make)
            if effect.slot.index == 0:
                await asyncio.sleep(30)
            raise Refused("too many pods", reason="QuotaExceeded")

        async with Stage(Small(wanting(*range(5)), act)).running() as stage:
            stage.see()
            await until(lambda: bool(stage.bodies("EffectRefused")), "the refusals", seconds=1)
            (told,) = stage.bodies("EffectRefused")
            assert told["slots"][0]["ranges"] == [[1, 4]]
            await until(lambda: "[0,0]" in str(stage.journal.events[-1].body), "the slow one's", seconds=40)

    async def test_refusals_that_come_one_after_the_other_are_few_events(self):
        async def act(effect: Effect, context: Context) -> None:
            assert isinstance(effect, Make)
            await asyncio.sleep(effect.slot.index * 0.01)
            raise Refused("too many pods", reason="QuotaExceeded")

        async with Stage(Small(wanting(*range(60)), act)).running() as stage:
            stage.see()
            await asyncio.sleep(0.9)
            assert 2 <= len(stage.bodies("EffectRefused")) <= 4

    async def test_a_refusal_that_cannot_be_recorded_now_is_recorded_later(self):
        stage = Stage(Small(wanting(0), forbidden))
        stage.line.trouble = [Transient("no answer"), Conflict("someone else")]
        async with stage.running():
            stage.see()
            await until(lambda: len(stage.bodies("EffectRefused")) == 1, "the refusal")
            assert len({entry.event_id for entry, _ in stage.line.attempts[:3]}) == 1, "one fact, however often sent"

    async def test_an_error_of_ours_in_one_effect_holds_only_that_job(self):
        async def act(effect: Effect, context: Context) -> None:
            if context.job.key == ONE:
                raise ZeroDivisionError("our bug")

        async with Stage(Small(wanting(0), act)).running() as stage:
            stage.see(ONE)
            stage.see(TWO)
            await until(lambda: bool(stage.history(ONE).held), "the hold")
            await until(lambda: len(stage.service.acted) == 3, "the other one goes on")
            assert "our bug" in stage.runtime.held()["team-a/resnet"]
            assert not stage.history(TWO).held

    async def test_one_hung_call_delays_no_other_job(self):
        async def act(effect: Effect, context: Context) -> None:
            if context.job.key == ONE:
                await asyncio.Event().wait()

        async with Stage(Small(wanting(*range(300)), act)).running() as stage:
            stage.see(ONE)
            await until(lambda: len(stage.service.acted) == 64, "as many as one job may have")
            stage.see(TWO)
            await until(lambda: len(stage.service.acted) == 64 + 300, "all of the other's", seconds=1)

    async def test_an_effect_knows_what_it_was_decided_on(self):
        contexts: list[Context] = []

        async def act(effect: Effect, context: Context) -> None:
            contexts.append(context)

        async with Stage(Small(wanting(0), act)).running() as stage:
            stage.see()
            await until(lambda: bool(contexts), "the effect")
            assert contexts[0].head == stage.history().head
            assert contexts[0].job == stage.history().job
            assert contexts[0].time == "2030-01-01T00:00:00.000Z"


class TestOwnership:
    async def test_who_does_not_own_folds_along_and_does_nothing(self):
        stage = Stage(Small(lambda history: [Record(JobExpired()), *wanting(0)(history)]), owns=lambda: False)
        async with stage.running():
            stage.see()
            await until(lambda: stage.history().sequence == 2, "the fold")
            await asyncio.sleep(60)
            assert stage.service.decided == []
            assert stage.service.acted == []
            assert stage.line.attempts == []

    async def test_a_new_owner_acts_on_everything_that_the_log_held_then(self):
        owner = False
        stage = Stage(Small(restarting(1)), owns=lambda: owner)
        async with stage.running():
            stage.see()
            await until(lambda: stage.history().sequence == 2, "the fold")
            owner = True
            stage.see(generation=2)
            await stage.runtime.owned()
            await until(lambda: stage.history().job.attempt.number == 1, "the restart")
            assert min(sequence for key, sequence in stage.service.decided if key == ONE) >= 3

    async def test_who_lost_its_lease_starts_nothing_more(self):
        owner = True

        async def act(effect: Effect, context: Context) -> None:
            raise Transient("timeout")

        stage = Stage(Small(wanting(0), act), owns=lambda: owner)
        async with stage.running():
            stage.see()
            await until(lambda: len(stage.service.acted) == 2, "a retry")
            owner = False
            await asyncio.sleep(60)
            assert len(stage.service.acted) == 2

    async def test_what_waited_for_its_turn_while_the_lease_was_lost_is_left_to_the_new_owner(self):
        owner, go_on = True, asyncio.Event()

        async def act(effect: Effect, context: Context) -> None:
            await go_on.wait()

        stage = Stage(Small(wanting(*range(EFFECTS_PER_JOB + 5)), act), owns=lambda: owner)
        async with stage.running():
            stage.see()
            await until(lambda: len(stage.service.acted) == EFFECTS_PER_JOB, "a full lane")
            owner = False
            go_on.set()
            with capture_logs() as said:
                await asyncio.sleep(60)
            # Thousands may wait, and the lease itself said that it is lost.
            assert said == []
            assert not stage.runtime.alarm.is_set()
            assert len(stage.service.acted) == EFFECTS_PER_JOB
            owner = True
            await stage.runtime.owned()
            await until(lambda: len(stage.service.acted) >= EFFECTS_PER_JOB + 5, "the rest")

    async def test_what_was_not_sent_in_a_gap_of_the_lease_is_no_success_and_is_tried_again(self):
        owner, go_on = True, asyncio.Event()

        async def act(effect: Effect, context: Context) -> None:
            await go_on.wait()

        stage = Stage(Small(wanting(*range(EFFECTS_PER_JOB + 1)), act), owns=lambda: owner)
        async with stage.running():
            stage.see()
            await until(lambda: len(stage.service.acted) == EFFECTS_PER_JOB, "a full lane")
            owner = False
            go_on.set()
            await asyncio.sleep(0.05)
            owner = True
            await until(lambda: len(stage.service.acted) > EFFECTS_PER_JOB, "the last one")
            outcomes = {key[2]: count for key, count in stage.runtime.metrics.series[0].values.items()}
            assert outcomes == {"Succeeded": EFFECTS_PER_JOB + 1, "Retried": 1}

    async def test_of_two_that_both_believe_to_own_one_decision_stands(self):
        journal = MemoryJournal()
        stages = [Stage(Small(restarting(3))) for _ in range(2)]
        for stage in stages:
            stage.journal = journal
            stage.line = Line(journal, user="scheduler")
            stage.runtime = Runtime(stage.service, stage.line, chance=lambda: 0.5)
        async with stages[0].running(), stages[1].running():
            stages[0].see()
            await until(lambda: all(stage.history().job.attempt.number == 3 for stage in stages), "both know")
            assert [body["attempt"] for body in stages[0].bodies("JobRestarted")] == [1, 2, 3]
            assert not any(stage.history().held for stage in stages)


class TestStopping:
    async def test_a_stop_waits_for_what_is_in_hand(self):
        done = []

        async def act(effect: Effect, context: Context) -> None:
            await asyncio.sleep(STOP_SECONDS / 2)
            done.append(effect)

        stage = Stage(Small(wanting(0, 1), act))
        async with stage.running():
            stage.see()
            await until(lambda: len(stage.service.acted) == 2, "the effects")
        assert len(done) == 2

    async def test_an_append_in_hand_is_not_cut_off(self):
        stage = Stage(Small(restarting(1)))
        async with stage.running():
            stage.line.gate.clear()
            stage.see()
            await until(lambda: stage.line.under_way == 1, "the append")
            asyncio.get_running_loop().call_later(1.0, stage.line.gate.set)
        assert stage.types() == ["JobObserved", "JobRestarted"]

    async def test_a_stop_does_not_wait_for_ever(self):
        async def act(effect: Effect, context: Context) -> None:
            await asyncio.Event().wait()

        loop = asyncio.get_running_loop()
        stage = Stage(Small(wanting(0), act))
        async with stage.running():
            stage.see()
            await until(lambda: len(stage.service.acted) == 1, "the effect")
            before = loop.time()
        assert loop.time() - before == pytest.approx(STOP_SECONDS, abs=0.1)

    async def test_nothing_new_is_begun_while_it_stops(self):
        async def act(effect: Effect, context: Context) -> None:
            await asyncio.sleep(1)
            raise Refused("no", reason="Forbidden")

        def decide(history: History) -> list[Step]:
            """One effect after the other, each as soon as the one before it ended."""
            return make(len(stage.service.acted)) if history.job.resource.generation else []

        stage = Stage(Small(decide, act))
        async with stage.running():
            stage.see()
            await until(lambda: len(stage.service.acted) == 1, "the effect")
        assert len(stage.service.acted) == 1
        assert len(stage.bodies("EffectRefused")) == 1, "what only we can know is still said"


class TestStrangeLogs:
    async def test_an_event_of_another_program_stops_no_job(self):
        stage = Stage(Small(restarting(1)))
        for subject in ("facts.a.b.c.d.watcher.X", "facts", "jobs.team-a.bert.uid-2.status"):
            # Of a writer who is bound by nothing, such as an administrator.
            stage.journal.events.append(Stored(len(stage.journal.events) + 1, subject, "strange", "", b"{}"))
        malformed = "facts.team-a.bert.uid-2.watcher.JobGone"
        stage.journal.append(Entry(subject=malformed, event_id="malformed", time="", body=b"\xff"), expect=0)
        async with stage.running():
            stage.see()
            await until(lambda: stage.history().job.attempt.number == 1, "the restart")
            assert list(stage.runtime.held()) == ["team-a/bert"]

    async def test_a_log_in_the_old_ones_place_ends_the_process(self):
        stage = Stage(Small(lambda _: []))
        stage.runtime.histories.position = 9
        with pytest.raises(Refused) as refusal:
            await stage.runtime.run()
        assert refusal.value.reason == "LogTruncated"


async def test_effects_that_end_together_wake_their_job_together():
    stage = Stage(Small(wanting(*range(500))))
    async with stage.running():
        stage.see()
        await until(lambda: len(stage.service.acted) == 500, "the effects")
        before = len(stage.service.decided)
        await asyncio.sleep(5.5)
        assert len(stage.service.acted) == 1_000, "the outcome of none was seen: each is repeated"
        assert len(stage.service.decided) - before < 25


async def test_what_was_made_and_seen_is_looked_at_once_in_a_while_not_once_each():
    """A hundred effects end one after the other, and are seen soon after."""
    made: set[str] = set()

    async def act(effect: Effect, context: Context) -> None:
        assert isinstance(effect, Make)
        await asyncio.sleep(0.1 * effect.slot.index)
        made.add(effect.target)

    def decide(history: History) -> list[Step]:
        wanted = wanting(*range(100))(history)
        return [effect for effect in wanted if isinstance(effect, Effect) and effect.target not in made]

    stage = Stage(Small(decide, act))
    async with stage.running():
        for _ in range(30):
            stage.see()
            await asyncio.sleep(1)
        assert len(made) == len(stage.service.acted) == 100
    assert len(stage.service.decided) <= 2 * 30


async def test_a_wake_up_never_comes_too_early():
    stage = Stage(Small(wanting(0)))
    async with stage.running():
        stage.see()
        await asyncio.sleep(60)
        times = [time for _, time in stage.service.acted]
        waits = [later - earlier for earlier, later in pairwise(times)]
        assert len(waits) > 9
        assert all(5.0 <= wait < 5.2 for wait in waits)
