"""The budgets of a namespace: what they count, whose turn comes when, and what does not wait."""

import asyncio
from typing import Any, Literal

import msgspec
import pytest

from services.watcher.core.budgets import (
    BRIEFS,
    Budgets,
    Limits,
    Memory,
    Standing,
    allowed,
    begins,
    cost,
    is_free,
    parts_used,
    standing,
)
from services.watcher.watches import Options
from shared.eventlog.inspection import Space
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.events.catalog import AnyEvent, Fact
from shared.job.events.status import JobFailed
from shared.job.events.watcher import (
    HistoryAccepted,
    HistoryBroken,
    JobDeleting,
    JobGone,
    JobObserved,
    PodsGone,
    PodsObserved,
    ScaleRequestGone,
)
from shared.job.fold import Histories, History, Use, leave
from shared.job.naming import JobKey, Uid
from shared.job.spec import MANY_STARTING, OVER_BUDGET, Problem
from shared.job.state import Job
from shared.job.views import PodView
from tests.kit.builders import a_created_job, a_running_job, a_spec, launcher, observed, scale_out, worker
from tests.kit.histories import KEY, a_history, stored
from tests.kit.world import NAMESPACE, World, a_scale_out, a_training_job

NEW = Job(key=KEY)
LATER = (Problem(reason=OVER_BUDGET),)
IN_LINE = msgspec.structs.replace(observed(a_spec()), spec=None, problems=(Problem(reason=MANY_STARTING),))
"""The record that a job waits until others of its namespace have begun."""


def a_job(number: int, namespace: str = "team-a") -> JobKey:
    return JobKey(namespace, f"job-{number}", Uid(f"uid-{number}"))


REQUEST = scale_out(1)


def folded(*events: AnyEvent) -> Job:
    return a_history(events).job


def running() -> Job:
    return folded(*a_running_job(workers=2))


def another_worker(version: int = 11) -> PodView:
    """A second pod in the slot of the first worker, which failed."""
    return msgspec.structs.replace(worker(0, version=version, phase="Failed"), uid=Uid("another"))


@pytest.mark.parametrize(
    ("job", "fact", "pays"),
    [
        pytest.param(NEW, observed(a_spec()), "begins", id="a new job"),
        pytest.param(
            folded(msgspec.structs.replace(observed(a_spec()), spec=None, problems=LATER)),
            observed(a_spec()),
            "begins",
            id="a job whose turn comes",
        ),
        pytest.param(NEW, IN_LINE, "changes", id="a job that waits in line"),
        pytest.param(folded(IN_LINE), observed(a_spec()), "begins", id="its start"),
        pytest.param(running(), observed(a_spec(3), generation=2), "changes", id="an edit"),
        pytest.param(running(), REQUEST, "begins", id="a new request"),
        pytest.param(folded(*a_running_job(), REQUEST), REQUEST, "changes", id="a known request"),
        pytest.param(running(), PodsObserved(pods=(worker(0, ready=False),)), "changes", id="a change of a pod"),
        pytest.param(running(), PodsObserved(pods=(worker(0, phase="Failed"),)), "", id="the end of a pod is free"),
        pytest.param(
            NEW,
            PodsObserved(pods=(worker(0, phase="Failed"),)),
            "changes",
            id="but not of a pod that no slot waits for",
        ),
        pytest.param(
            folded(*a_created_job(workers=2)),
            PodsObserved(pods=(worker(0, phase="Failed"),)),
            "",
            id="the first pod of a slot, seen at its end, is free",
        ),
        pytest.param(
            folded(*a_created_job(workers=2), PodsObserved(pods=(worker(0, phase="Failed"),))),
            PodsObserved(pods=(another_worker(),)),
            "changes",
            id="but not the next one: its slot waits for none any more",
        ),
        pytest.param(
            folded(*a_created_job(workers=2), PodsObserved(pods=(worker(0, version=90),))),
            PodsObserved(pods=(another_worker(version=80),)),
            "changes",
            id="nor one whose slot has a newer pod",
        ),
        pytest.param(running(), PodsGone(uids=(Uid("pod-0"),)), "", id="a pod that is gone is free"),
        pytest.param(running(), JobDeleting(version=9), "", id="a deletion is free"),
        pytest.param(running(), JobGone(version=9), "", id="and its end"),
        pytest.param(running(), ScaleRequestGone(uid=Uid("request-1")), "", id="the end of a request is free"),
    ],
)
def test_what_pays(job: Job, fact: Fact, pays: str):
    assert pays == ("" if is_free(job, fact) else "begins" if begins(job, fact) else "changes")


def test_a_fact_costs_its_bytes_and_those_of_the_decisions_that_follow():
    edit = observed(a_spec(3), generation=2)
    own = len(msgspec.json.encode(edit))
    assert own < cost(running(), edit) < own + 1_000 < cost(NEW, edit)


class TestTurns:
    def test_a_minute_s_worth_comes_at_once_and_the_rest_in_the_order_in_which_it_came(self):
        budgets = Budgets(60)
        assert [budgets.wait(a_job(number), 1, 0.0) for number in range(62)] == [0.0] * 60 + [1.0, 2.0]

    def test_a_job_that_asks_again_keeps_its_place(self):
        budgets = Budgets(1)
        budgets.wait(a_job(0), 1, 0.0)
        assert [budgets.wait(a_job(1), 1, now) for now in (0.0, 20.0, 60.0)] == [60.0, 40.0, 0.0]
        assert not budgets.waiting

    def test_another_namespace_does_not_wait(self):
        budgets = Budgets(1)
        for number in range(100):
            budgets.wait(a_job(number), 1, 0.0)
        assert budgets.wait(a_job(0, "team-b"), 1, 0.0) == 0.0
        assert budgets.waiting == {("team-a", "log"): 99}

    def test_a_turn_that_is_given_up_goes_back_to_the_namespace(self):
        budgets = Budgets(1)
        for number in range(3):
            budgets.wait(a_job(number), 1, 0.0)
        budgets.keep(a_job(2), waits=False, pays=False, now=0.0)
        assert budgets.wait(a_job(3), 1, 0.0) == 120.0
        assert budgets.waiting == {("team-a", "log"): 2}

    def test_a_pause_fills_no_more_than_a_minute_s_worth(self):
        budgets = Budgets(2)
        budgets.wait(a_job(0), 1, 0.0)
        assert [budgets.wait(a_job(number), 1, 9_000.0) for number in range(1, 4)] == [0.0, 0.0, 30.0]

    def test_zero_sets_no_bound(self):
        budgets = Budgets(0)
        assert {budgets.wait(a_job(number), 1, 0.0) for number in range(10_000)} == {0.0}

    def test_namespaces_that_do_nothing_are_forgotten(self):
        budgets = Budgets(1)
        for number in range(100):
            budgets.wait(a_job(0, f"team-{number}"), 1, number * 60.0)
        assert len(budgets._used) == 1


EDIT, CHANGE = observed(a_spec(3), generation=2), PodsObserved(pods=(worker(0, ready=False),))
START = observed(a_spec())


def spent(fact: Fact, job: Job) -> Budgets:
    """The budgets of a namespace that has just recorded as much as this fact costs, which is a minute's worth."""
    budgets = Budgets(cost(job, fact))
    budgets.wait(a_job(0, KEY.namespace), cost(job, fact), 0.0)
    return budgets


class TestAllowed:
    def test_a_job_that_waits_is_recorded_in_brief_once(self):
        budgets = spent(START, NEW)
        found = allowed(NEW, [START], budgets, 0.0)
        (brief,) = found.facts
        assert isinstance(brief, JobObserved)
        assert (brief.spec, brief.problems[0].reason, found.seconds) == (None, OVER_BUDGET, 60.0)
        waiting = folded(brief)
        assert allowed(waiting, [START], budgets, 1.0).facts == ()
        assert allowed(waiting, [START], budgets, 60.0).facts == (START,)

    def test_a_job_that_waited_in_line_may_wait_for_its_budget_too(self):
        (brief,) = allowed(folded(IN_LINE), [START], spent(START, NEW), 0.0).facts
        assert isinstance(brief, JobObserved)
        assert brief.problems[0].reason == OVER_BUDGET

    def test_records_in_brief_have_a_part_of_a_minute_s_bytes(self):
        budgets = spent(START, NEW)
        assert budgets.may_tell(KEY.namespace, cost(NEW, START) // BRIEFS, 0.0)
        found = allowed(NEW, [START], budgets, 0.0)
        assert (found.facts, found.seconds) == ((), 60.0)

    def test_an_end_does_not_wait_behind_an_edit(self):
        end = PodsObserved(pods=(launcher(phase="Succeeded"),))
        found = allowed(running(), [EDIT, end], spent(EDIT, running()), 0.0)
        assert found.facts == (end,)

    def test_only_the_fact_that_is_recorded_is_paid_for(self):
        budgets = Budgets(2 * cost(running(), CHANGE))
        facts = [PodsObserved(pods=(worker(each, ready=False),)) for each in (0, 1)]
        assert allowed(running(), facts, budgets, 0.0, recorded=1).facts == (*facts,)
        assert allowed(running(), facts[1:], budgets, 0.0, recorded=2).facts == (facts[1],)

    def test_a_fact_whose_append_failed_is_not_paid_for_again(self):
        budgets = Budgets(cost(running(), CHANGE))
        assert [allowed(running(), [CHANGE], budgets, 0.0, recorded=1).facts for _ in range(3)] == [(CHANGE,)] * 3
        assert allowed(running(), [CHANGE], budgets, 0.0, recorded=2).seconds == 60.0, "the next one is"

    def test_what_a_fact_paid_that_is_no_longer_true_goes_back_to_the_namespace(self):
        budgets = Budgets(cost(running(), CHANGE))
        allowed(running(), [CHANGE], budgets, 0.0)
        allowed(running(), [], budgets, 0.0)
        assert budgets.wait(a_job(0, KEY.namespace), cost(running(), CHANGE), 0.0) == 0.0

    @pytest.mark.parametrize("full", ["room", "share"])
    def test_a_full_log_and_a_full_share_take_ends_and_doubts_alone(self, full: Literal["room", "share"]):
        budgets = Budgets(1)
        free: list[Fact] = [
            PodsObserved(pods=(launcher(phase="Succeeded"),)),
            HistoryBroken(log="", sequence=1, hash="", reason="OtherLog"),
            HistoryAccepted(sequence=1, hash=""),
        ]
        found = allowed(running(), [EDIT, *free], budgets, 0, met=Standing(full))
        assert found.facts == (*free,)
        assert budgets.waiting == {(KEY.namespace, full): 1}
        allowed(running(), [], budgets, 1.0)
        assert not budgets.waiting

    @pytest.mark.parametrize(
        ("job", "fact", "silent", "found"),
        [
            pytest.param(NEW, START, False, "brief", id="a new job waits, and says so"),
            pytest.param(NEW, START, True, "nothing", id="far beyond, a word would be too much"),
            pytest.param(running(), REQUEST, False, "brief", id="a new request"),
            pytest.param(running(), EDIT, True, "all", id="what is there goes on"),
        ],
    )
    def test_a_namespace_with_all_its_memory_begins_nothing(self, job: Job, fact: Fact, silent: bool, found: str):
        budgets = Budgets(0)
        facts = allowed(job, [fact], budgets, 0.0, met=Standing(None, crowded="memory", silent=silent)).facts
        assert found == ("nothing" if not facts else "all" if facts == (fact,) else "brief")
        assert budgets.waiting == ({} if found == "all" else {(KEY.namespace, "memory"): 1})
        assert [*budgets.stopped()] == ([] if found == "all" else [KEY])


@pytest.mark.parametrize(
    ("log", "memory", "room", "met"),
    [
        pytest.param(50, 99, 100, Standing("share"), id="a share that is full"),
        pytest.param(49, 100, 100, Standing(crowded="memory"), id="memory that is full"),
        pytest.param(10_000, 110, 0, Standing(crowded="memory", silent=True), id="a log without a bound has no shares"),
        pytest.param(49, 99, 100, Standing(), id="none"),
    ],
)
def test_what_a_namespace_has_met(log: int, memory: int, room: int, met: Standing):
    use = Use()
    use.log, use.memory = log, memory
    parts = parts_used(use, Limits(memory=100, share=0.5), room, Memory())
    assert standing(parts, reserved=False) == met
    assert standing(parts, reserved=True).full == "room"
    assert parts_used(use, Limits(memory=0, total=0, share=0), room, Memory()) == {}


@pytest.mark.parametrize(
    ("mine", "others", "met"),
    [
        pytest.param(80, [80, 80], Standing(), id="within"),
        pytest.param(80, [90, 90, 90], Standing(crowded="total", silent=True), id="four with less than each may have"),
        pytest.param(60, [95, 95], Standing(), id="less than an equal part goes on"),
        pytest.param(100, [80, 80], Standing(crowded="memory"), id="its own budget comes first"),
    ],
)
def test_what_all_namespaces_together_have_met(mine: int, others: list[int], met: Standing):
    uses = [Use() for _ in (mine, *others)]
    for use, memory in zip(uses, (mine, *others), strict=True):
        use.memory = memory
    parts = parts_used(uses[0], Limits(memory=100, total=250, share=0), 0, Memory.of(uses))
    assert standing(parts, reserved=False) == met


@pytest.mark.parametrize(
    ("stored", "share"),
    [
        pytest.param(30, 0.2, id="all of them left the log"),
        pytest.param(60, 0.5, id="a half of them is there"),
        pytest.param(90, 0.8, id="all of them are there"),
        pytest.param(99, 0.8, id="the log counts more than we do"),
        pytest.param(10, 0.2, id="or less"),
    ],
)
def test_what_was_sealed_counts_while_it_is_in_the_log(stored: int, share: float):
    mine, other = Use(), Use()
    mine.log, mine.sealed = 20, 60
    other.log = 10
    leave([mine, other], stored)
    parts = parts_used(mine, Limits(share=0.5), 200, Memory())
    assert parts["share"] == pytest.approx(share)


def test_what_left_the_log_counts_for_nobody_when_others_seal():
    mine, other = Use(), Use()
    mine.sealed = 1_000
    leave([mine, other], 0)
    other.sealed = 100
    leave([mine, other], 100)
    assert (mine.sealed, other.sealed) == (0, 100)


def test_a_fold_counts_the_bytes_of_each_namespace():
    history, histories, written = History(KEY), Histories(), 0
    for event in a_running_job(workers=2):
        known = stored(history, event)
        written += len(known.body)
        assert [each.fold(known) for each in (history, histories)]
    use = histories.used[KEY.namespace]
    assert written < use.log < 3 * written
    assert use.memory == histories[KEY].kept > 6_000 + 3 * 1_000


def test_a_place_takes_memory_before_its_pod_is_there_and_none_once_the_job_is_over():
    *created, assigned = a_created_job(workers=5_000)
    assert kept(*created, assigned) - kept(*created) == 5_000 * 1_000
    end = JobFailed(reason="TrainingJobFailed")
    assert kept(*created, assigned, end) == kept(*created)


def kept(*events: AnyEvent) -> int:
    history, histories = History(KEY), Histories()
    for event in events:
        known = stored(history, event)
        assert [each.fold(known) for each in (history, histories)]
    return histories[KEY].kept


class Bounded(World):
    """A world whose watcher has these budgets."""

    def __init__(self, limits: Limits, **more: Any) -> None:
        super().__init__(**more)
        self._limits = limits

    def options(self) -> Options:
        return msgspec.structs.replace(super().options(), limits=self._limits)


A_JOB = 12_000
"""Bytes that a job of one worker takes of a minute's until it runs, about."""


async def test_jobs_beyond_the_budget_say_that_they_wait_and_run_in_their_turns():
    async with Bounded(Limits(per_minute=A_JOB)) as world:
        for number in range(4):
            world.apply(TRAININGJOBS, a_training_job(f"job-{number}", workers=1))
        await asyncio.sleep(1)
        assert world.condition(TRAININGJOBS, "job-3", "Created") == ("False", "OverBudget")
        assert world.status(TRAININGJOBS, "job-3")["phase"] == "Pending"
        for number in range(4):
            await world.running(f"job-{number}")
        assert world.condition(TRAININGJOBS, "job-3", "Created") == ("True", "TrainingJobCreated")
        assert world.kubernetes_events().count(("OverBudget", "job-3")) == 1


async def test_a_namespace_with_all_its_memory_waits_until_it_has_fewer_pods():
    async with Bounded(Limits(memory=29_000)) as world:
        for number in range(2):
            world.apply(TRAININGJOBS, a_training_job(f"job-{number}", workers=6))
            await world.running(f"job-{number}")
        world.apply(TRAININGJOBS, a_training_job("late", workers=1))
        world.apply(TRAININGJOBS, a_training_job(workers=1), "team-b")
        await asyncio.sleep(5)
        assert world.condition(TRAININGJOBS, "late", "Created") == ("False", "OverBudget")
        assert world.status(TRAININGJOBS, "resnet", "team-b")["phase"] == "Running"
        for number in range(2):
            world.exit_codes[f"job-{number}-launcher"] = 0
        await world.running("late")


async def test_a_namespace_that_used_up_its_share_goes_on_once_sealed_histories_have_left_the_log():
    async with Bounded(Limits(share=0.5)) as world:
        await world.trains(workers=1)
        watcher = world._running["watcher"][0]
        watcher.histories.used[NAMESPACE].sealed = 2**30
        watcher.space = lambda: Space(2**30, 2**31)
        await asyncio.sleep(2)
        world.apply(TRAININGJOBS, a_training_job("late", workers=1))
        await asyncio.sleep(5)
        assert world.status(TRAININGJOBS, "late") == {}
        watcher.space = lambda: Space(2**30, 2**20)
        await world.running("late")


def test_deadlines_run_on_while_an_edit_waits_and_not_while_pods_do():
    assert not allowed(running(), [EDIT], Budgets(0), 0.0, met=Standing("room")).late
    assert allowed(running(), [EDIT, CHANGE], Budgets(0), 0.0, met=Standing("room")).late


async def test_a_request_beyond_the_budget_waits_for_its_turn_and_is_carried_out():
    async with Bounded(Limits(per_minute=A_JOB)) as world:
        await world.trains(workers=1)
        world.apply(SCALEOUTS, a_scale_out(1, name="first"))
        await world.phase("ScaleSucceeded", SCALEOUTS, "first")
        world.apply(SCALEOUTS, a_scale_out(1, name="second"))
        await world.phase("Pending", SCALEOUTS, "second")
        assert world.condition(SCALEOUTS, "second", "Pending") == ("True", "OverBudget")
        await asyncio.sleep(60)
        await world.phase("ScaleSucceeded", SCALEOUTS, "second")


async def test_a_job_that_is_deleted_while_it_waits_leaves_its_turn_to_the_next():
    async with Bounded(Limits(per_minute=A_JOB)) as world:
        for number in range(3):
            world.apply(TRAININGJOBS, a_training_job(f"job-{number}", workers=1))
        await world.running("job-0")
        world.delete(TRAININGJOBS, "job-1")
        await world.until(lambda: world.count("JobGone") == 1)
        world.apply(TRAININGJOBS, a_training_job("job-3", workers=1))
        await asyncio.sleep(125)
        await world.running("job-3")


async def test_a_job_whose_pods_are_recorded_late_does_not_fail_for_that():
    """The timers of a job wait with its facts: its pods were Ready in time."""
    async with Bounded(Limits(per_minute=A_JOB)) as world:
        world.apply(TRAININGJOBS, a_training_job(workers=2, schedulingTimeoutSeconds=20))
        await asyncio.sleep(1_200)
        assert world.status(TRAININGJOBS, "resnet")["phase"] == "Running"
        assert "TimePassed" not in world.types()
