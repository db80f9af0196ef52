"""How many jobs begin at once."""

import msgspec
import pytest

from services.watcher.core.pace import (
    LONGEST_START_SECONDS,
    LONGEST_TURN_SECONDS,
    MOST,
    SETTLING_SECONDS,
    TOLD_AFTER_SECONDS,
    TOLD_AT_ONCE,
    Starts,
)
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.naming import JobKey, Uid
from shared.job.state import Job
from tests.kit.builders import a_created_job, a_running_job, pods, worker
from tests.kit.stories import given
from tests.kit.world import NAMESPACE, World, a_scale_out, a_training_job

replace = msgspec.structs.replace

JOBS = 3 * MOST
RUNNING = given(*a_running_job(workers=2)).job
CREATED = given(*a_created_job(workers=2)).job
STARTING = given(*a_created_job(workers=2), pods(worker(0, phase="Pending"), worker(1, phase="Pending"))).job


def a_key(number: int, namespace: str = "team-a") -> JobKey:
    return JobKey(namespace, f"job-{number}", Uid(f"uid-{number}"))


def with_key(job: Job, number: int) -> Job:
    return replace(job, key=a_key(number))


def apply_jobs(world: World, *numbers: int) -> None:
    """Jobs of one worker, with the numbers of this `range`."""
    for number in range(*numbers):
        world.apply(TRAININGJOBS, a_training_job(f"job-{number}", workers=1))


@pytest.fixture
def starts() -> Starts:
    """All of one namespace's turns are taken, and two jobs wait."""
    starts = Starts()
    assert [starts.may_begin(a_key(number), 0.0) for number in range(MOST + 2)] == [True] * MOST + [False] * 2
    return starts


def test_turns_are_those_of_a_namespace(starts: Starts):
    assert starts.may_begin(a_key(0, "team-b"), 0.0)
    assert starts.waiting == {"team-a": 2}


def begun(starts: Starts, namespace: str, jobs: int = MOST) -> int:
    """How many of a namespace's jobs may begin."""
    return sum(starts.may_begin(a_key(number, namespace), 1.0) for number in range(jobs))


def test_no_more_begin_of_all_namespaces_than_there_are_turns_but_each_may_have_one(starts: Starts):
    others = [f"team-{number}" for number in range(MOST)]
    assert [begun(starts, other) for other in others] == [1] * MOST
    assert starts.frees(with_key(RUNNING, 0), 1.0) == 0
    assert starts.due(1.0) == (), "there are more than enough"


def test_what_some_namespaces_leave_is_for_those_with_many_jobs():
    starts = Starts()
    for number in range(10):
        assert begun(starts, f"team-{number}", 1) == 1
    assert begun(starts, "crowd", 2 * MOST) == MOST - 10


def test_who_has_the_fewest_under_way_is_next(starts: Starts):
    assert begun(starts, "team-b", 3) == 1
    assert begun(starts, "team-c", 3) == 1
    for number in range(5):
        starts.frees(with_key(RUNNING, number), 1.0)
    assert starts.due(1.0) == (a_key(1, "team-b"), a_key(1, "team-c"), a_key(2, "team-b"))


def test_no_newcomer_overtakes_who_waits(starts: Starts):
    starts.frees(with_key(RUNNING, 0), 1.0)
    assert not starts.may_begin(a_key(99), 1.0)
    assert starts.may_begin(a_key(MOST), 1.0)


def test_a_turn_is_kept_however_often_it_is_asked_for(starts: Starts):
    assert starts.may_begin(a_key(0), 1.0)
    assert not starts.may_begin(a_key(MOST), 1.0)


def test_who_waits_follows_those_that_started_in_the_order_of_coming(starts: Starts):
    assert starts.due(1.0) == ()
    assert starts.frees(with_key(RUNNING, 3), 1.0) == 0
    assert starts.due(1.0) == (a_key(MOST),)
    assert [starts.frees(with_key(RUNNING, number), 1.0) for number in (4, 5)] == [0, 0]
    assert starts.due(1.0) == (a_key(MOST), a_key(MOST + 1)), "as many as there are turns and jobs"
    assert all(starts.may_begin(key, 1.0) for key in starts.due(1.0))
    assert not starts.waiting


def test_a_job_with_all_its_pods_gives_its_turn_back_soon(starts: Starts):
    assert starts.frees(with_key(CREATED, 0), 0.5) is None
    assert [starts.frees(with_key(STARTING, 0), at) for at in (1.0, 1.5)] == [SETTLING_SECONDS, None]
    assert starts.due(1.0) == ()
    assert starts.due(1.0 + SETTLING_SECONDS) == (a_key(MOST),)
    assert starts.may_begin(a_key(MOST), 1.0 + SETTLING_SECONDS)


def test_a_job_that_never_gets_its_pods_gives_its_turn_back_at_last(starts: Starts):
    assert not starts.may_begin(a_key(MOST), LONGEST_TURN_SECONDS - 1)
    assert starts.may_begin(a_key(MOST), LONGEST_TURN_SECONDS)


def test_who_came_last_is_told_first_and_each_once():
    starts = Starts()
    for number in range(MOST + TOLD_AT_ONCE + 2):
        starts.may_begin(a_key(number), 0.0)
    assert starts.tell(TOLD_AFTER_SECONDS - 1) == (), "a short wait is no news"
    assert not starts.may_begin(a_key(MOST), 2.0, told=True), "an earlier watcher told it"
    last = MOST + TOLD_AT_ONCE + 1
    assert starts.tell(TOLD_AFTER_SECONDS) == tuple(a_key(last - place) for place in range(TOLD_AT_ONCE))
    assert starts.tell(TOLD_AFTER_SECONDS) == (a_key(MOST + 1),)
    assert starts.tell(TOLD_AFTER_SECONDS) == ()


def test_namespaces_take_turns_at_being_told():
    starts, spaces = Starts(), [f"team-{number}" for number in range(TOLD_AT_ONCE + 1)]
    for space in spaces:
        for number in range(MOST + 2):
            starts.may_begin(a_key(number, space), 0.0)
    told = [starts.tell(TOLD_AFTER_SECONDS) for _ in spaces]
    assert [len(each) for each in told] == [TOLD_AT_ONCE] * len(spaces)
    assert [key.namespace for each in told for key in each] == spaces * TOLD_AT_ONCE


def test_one_that_is_gone_waits_no_more(starts: Starts):
    assert starts.frees(with_key(Job(key=a_key(MOST)), MOST), 1.0) == 0, "its turn may have been free"
    assert starts.waiting == {"team-a": 1}
    assert starts.frees(with_key(RUNNING, 99), 1.0) is None, "it stands nowhere"


async def test_a_crowd_of_one_namespace_holds_up_no_other(world: World):
    apply_jobs(world, JOBS)
    world.apply(TRAININGJOBS, a_training_job("other", workers=1), "team-b")
    await world.phase("Running", name="other", namespace="team-b")
    for number in range(JOBS):
        await world.phase("Running", name=f"job-{number}")


async def test_a_job_whose_turn_has_not_come_is_recorded_in_brief_at_most(world: World):
    await world.kill("scheduler")
    apply_jobs(world, JOBS)
    await world.pass_seconds(LONGEST_TURN_SECONDS / 2)
    assert world.count("JobCreated") == MOST
    world.delete(TRAININGJOBS, f"job-{JOBS - 1}")
    await world.pass_seconds(LONGEST_TURN_SECONDS)
    assert world.count("JobCreated") == 2 * MOST, "turns end while the scheduler is away"
    await world.start("scheduler")
    for number in range(JOBS - 1):
        await world.phase("Running", name=f"job-{number}")


async def test_turns_that_end_by_time_are_passed_on_though_nothing_happens(world: World):
    await world.kill("scheduler")
    apply_jobs(world, MOST)
    await world.pass_seconds(LONGEST_TURN_SECONDS / 2)
    world.apply(TRAININGJOBS, a_training_job("last", workers=1))
    await world.pass_seconds(LONGEST_TURN_SECONDS / 2 + 2)
    assert world.condition(TRAININGJOBS, "last", "Created") == ("True", "TrainingJobCreated")


async def test_who_waits_longer_than_a_moment_is_told_and_begins_in_turn(world: World):
    await world.kill("scheduler")
    apply_jobs(world, MOST)
    await world.until(lambda: world.count("JobObserved") == MOST)
    for name in ("next", last := "last"):
        world.apply(TRAININGJOBS, a_training_job(name, workers=1))
    await world.pass_seconds(TOLD_AFTER_SECONDS / 2)
    assert world.count("JobObserved") == MOST, "nothing is written of a short wait"
    await world.pass_seconds(TOLD_AFTER_SECONDS)
    assert world.condition(TRAININGJOBS, last, "Created") == ("False", "ManyStarting")
    world.apply(SCALEOUTS, a_scale_out(job=last))
    await world.phase("Pending", SCALEOUTS, "out")
    assert world.condition(SCALEOUTS, "out", "Pending") == ("True", "JobNotRunning"), "so is its request"
    await world.pass_seconds(2 * TOLD_AFTER_SECONDS)
    assert world.count("JobObserved") == MOST + 2, "told once"
    await world.restart("watcher")
    await world.start("scheduler")
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    assert world.condition(TRAININGJOBS, last, "Created") == ("True", "TrainingJobCreated")
    assert world.kubernetes_events().count(("ManyStarting", last)) == 1


async def test_one_that_was_told_may_go(world: World):
    await world.kill("scheduler")
    apply_jobs(world, MOST)
    await world.until(lambda: world.count("JobObserved") == MOST)
    world.apply(TRAININGJOBS, a_training_job("last", workers=1))
    await world.until(lambda: world.condition(TRAININGJOBS, "last", "Created") == ("False", "ManyStarting"))
    world.delete(TRAININGJOBS, "last")
    await world.until(lambda: world.count("JobGone") == 1)


async def test_a_flood_of_jobs_that_wait_is_a_few_writes_a_second(world: World):
    await world.kill("scheduler")
    apply_jobs(world, 200)
    await world.pass_seconds(TOLD_AFTER_SECONDS + 10)
    conditions = [world.condition(TRAININGJOBS, f"job-{number}", "Created") for number in range(200)]
    told = conditions.count(("False", "ManyStarting"))
    assert 9 * TOLD_AT_ONCE <= told <= 11 * TOLD_AT_ONCE
    assert conditions.count(None) == 200 - MOST - told


async def test_a_replica_that_leads_again_tells_a_few_at_a_time(world: World):
    await world.kill("scheduler")
    apply_jobs(world, 200)
    await world.until(lambda: world.count("JobObserved") == MOST)
    world.standby.add("watcher")
    await world.pass_seconds(10 * TOLD_AFTER_SECONDS)
    await world.lead("watcher")
    await world.pass_seconds(TOLD_AFTER_SECONDS - 1)
    assert world.count("JobObserved") == 2 * MOST, "it knows neither turns nor waiting times of before"
    await world.pass_seconds(5)
    assert 2 * MOST < world.count("JobObserved") <= 2 * MOST + 5 * TOLD_AT_ONCE


async def test_a_log_that_has_room_again_is_told_a_few_at_a_time(world: World):
    await world.kill("scheduler")
    apply_jobs(world, 200)
    await world.until(lambda: world.count("JobObserved") == MOST)
    world.full = True
    await world.pass_seconds(3 * TOLD_AFTER_SECONDS)
    assert world.count("JobObserved") == MOST
    world.full = False
    await world.pass_seconds(5)
    assert MOST < world.count("JobObserved") <= MOST + 6 * TOLD_AT_ONCE


async def test_slow_images_and_refused_pods_hold_up_no_other_job(world: World):
    world.stuck |= {f"job-{number}-worker-0" for number in range(MOST)}
    apply_jobs(world, 2 * MOST)
    for number in range(MOST, 2 * MOST):
        await world.phase("Running", name=f"job-{number}")
    world.store.pod_quota[NAMESPACE] = 1
    apply_jobs(world, 2 * MOST, 3 * MOST + 1)
    await world.shows("WorkersCreated", "QuotaExceeded", name=f"job-{3 * MOST}")


async def test_as_many_follow_at_once_as_settled_at_once(world: World):
    world.stuck |= {f"job-{number}-worker-0" for number in range(6 * MOST)}
    apply_jobs(world, 6 * MOST)
    await world.pass_seconds(6 * (SETTLING_SECONDS + LONGEST_START_SECONDS))
    assert world.count("JobCreated") == 6 * MOST


@pytest.mark.parametrize("first", [True, False], ids=["before its job", "after its job"])
async def test_a_request_waits_with_its_job_beyond_its_own_timeout(world: World, first: bool):
    await world.kill("scheduler")
    apply_jobs(world, MOST)
    await world.until(lambda: world.count("JobObserved") == MOST)
    wishes = [
        (TRAININGJOBS, a_training_job("last", workers=1)),
        (SCALEOUTS, a_scale_out(job="last", timeoutSeconds=20)),
    ]
    for kind, wish in wishes[::-1] if first else wishes:
        world.apply(kind, wish)
        await world.pass_seconds(5)
    await world.pass_seconds(LONGEST_TURN_SECONDS - 20)
    assert world.count("JobCreated") == MOST
    await world.start("scheduler")
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
