"""Between attempts: slots released, pods gone, the next attempt begun after the back-off."""

import msgspec
import pytest

from services.scheduler.core.effects import DeletePod, DeleteSecret
from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import JobRestarted, SlotsAssigned, SlotsReleased
from shared.job.events.status import JobCreated, JobRestarting, JobSuspended, JobSuspending
from shared.job.events.watcher import PodsGone, TimePassed
from shared.job.naming import Uid, secret_name
from shared.job.spec import LAUNCHER, WORKER
from shared.job.state import Job
from shared.job.steps import Record
from shared.job.timing import next_due
from shared.job.views import Slots
from tests.kit.builders import (
    a_created_job,
    a_running_job,
    a_spec,
    exited,
    hosts_file,
    launcher,
    observed,
    pods,
    published,
    scaling_out,
    worker,
    workers,
)
from tests.kit.histories import KEY
from tests.kit.stories import given, scheduler

replace = msgspec.structs.replace

FAILED = pods(launcher(version=30, phase="Failed", exits=exited(1)))
RESTARTING = JobRestarting(reason="TrainingJobFailed")
ALL = (Slots(0, LAUNCHER, ((0, 0),)), workers(0, 1))
RELEASED = SlotsReleased(slots=ALL, reason="JobRestarting")
GONE = PodsGone(uids=(Uid("pod-0"), Uid("pod-1"), Uid("pod-launcher")))
GIVEN_UP = [*a_running_job(workers=2, restart="OnFailure"), FAILED, RESTARTING]
AGAIN = JobRestarted(attempt=1, counted=True, reason="TrainingJobFailed")

KEYS_GO = DeleteSecret(0, secret_name(KEY, 0), Uid("keys-0"))


def waited(story: list[AnyEvent]) -> list[AnyEvent]:
    """The story, and the back-off of the restart that it leads to."""
    timer = next(timer for timer in next_due(given(*story).job) if timer.name == "Restart")
    return [*story, TimePassed(anchor=timer.anchor, timer="Restart")]


def seconds_before_the_next(job: Job) -> int:
    return next(timer.seconds for timer in next_due(job) if timer.name == "Restart")


def test_the_old_attempt_is_released_first():
    given(*GIVEN_UP).then(scheduler, Record(RELEASED))


def test_released_pods_go_and_the_back_off_is_waited_for():
    given(*GIVEN_UP, RELEASED).then(
        scheduler,
        DeletePod("resnet-launcher", Uid("pod-launcher")),
        DeletePod("resnet-worker-0", Uid("pod-0")),
        DeletePod("resnet-worker-1", Uid("pod-1")),
    )


def test_then_the_next_attempt_begins():
    given(*waited([*GIVEN_UP, RELEASED, GONE])).then(scheduler, Record(AGAIN), KEYS_GO)


def test_it_has_a_number_above_those_of_attempts_that_a_restored_log_lost():
    lost = pods(replace(launcher(version=40, phase="Succeeded"), attempt=1, uid=Uid("lost")))
    again = replace(AGAIN, attempt=2)
    given(*waited([*GIVEN_UP, RELEASED, GONE, lost])).then_among_others(scheduler, Record(again))


def test_a_number_that_no_log_can_have_lost_is_not_gone_beyond():
    wild = pods(replace(launcher(version=40, phase="Succeeded"), attempt=999_999_999, uid=Uid("wild")))
    given(*waited([*GIVEN_UP, RELEASED, GONE, wild])).then_among_others(scheduler, Record(AGAIN))


def test_it_begins_with_no_slot_before_the_old_pods_are_gone():
    going = pods(worker(1, version=40, deleting=True))
    story = given(*waited([*GIVEN_UP, RELEASED, PodsGone(uids=(Uid("pod-0"), Uid("pod-launcher"))), going]), AGAIN)
    assert not any(isinstance(step, Record) for step in story.steps(scheduler))


def test_a_pod_that_was_asked_for_and_not_seen_may_still_come():
    given_up = [*a_created_job(workers=2), pods(worker(0)), JobRestarting(reason="RestartRequested")]
    released = SlotsReleased(slots=(workers(0, 1),), reason="JobRestarting")
    again = JobRestarted(attempt=1, counted=False)
    story = [*given_up, released, PodsGone(uids=(Uid("pod-0"),)), again]
    first = Record(SlotsAssigned(slots=(Slots(1, WORKER, ((0, 1),)),), reason="JobRestarted"))
    assert first not in given(*story).steps(scheduler)
    given(*story, TimePassed(anchor=len(given_up) + 1, timer="Unseen")).then_among_others(scheduler, first)
    came = [*story, pods(worker(1))]
    assert first not in given(*came).steps(scheduler)
    given(*came, PodsGone(uids=(Uid("pod-1"),))).then_among_others(scheduler, first)


GROWN = [
    *a_running_job(workers=2, restart="OnFailure"),
    *scaling_out(2),
    pods(worker(2)),
    published(2, 0, 1, 2, request=Uid("request-1")),
]
THREE_GO = [
    SlotsReleased(slots=(Slots(0, LAUNCHER, ((0, 0),)), workers(0, 1, 2))),
    PodsGone(uids=(*GONE.uids, Uid("pod-2"))),
]


def test_12_it_begins_with_the_size_that_it_had():
    again = [*waited([*GROWN, FAILED, RESTARTING, *THREE_GO]), AGAIN]
    first = SlotsAssigned(slots=(Slots(1, WORKER, ((0, 2),)),), reason="JobRestarted")
    given(*again).then_among_others(scheduler, Record(first))
    assert [condition.type for condition in given(*again).job.status.conditions if condition.type == "Restarting"]


def test_a_job_whose_workers_role_was_removed_begins_again_with_its_launcher_alone():
    spec = a_spec(2, restart="OnFailure")
    alone = replace(spec, roles=(spec.role(LAUNCHER),))
    removed = [*a_running_job(workers=2, restart="OnFailure"), observed(alone, generation=2)]
    again = [*waited([*removed, FAILED, RESTARTING, RELEASED, GONE]), AGAIN, published(2), hosts_file(2)]
    first = SlotsAssigned(slots=(Slots(1, LAUNCHER, ((0, 0),)),), reason="JobRestarted")
    given(*again).then_among_others(scheduler, Record(first))
    # The launcher is there: nothing is left of the workers.
    assert not given(*again, first).job.scaling.size


@pytest.mark.parametrize(
    ("restarts", "seconds"),
    [(0, 10), (1, 20), (2, 40), (5, 300), (1000, 300)],
    ids=["the first", "twice that", "and again", "five minutes", "never more"],
)
def test_each_restart_waits_longer(restarts: int, seconds: int):
    before = [JobRestarted(attempt=number + 1, reason="x") for number in range(restarts)]
    assert seconds_before_the_next(given(*a_running_job(), *before, RESTARTING).job) == seconds


def test_a_restart_that_a_person_asked_for_waits_for_nothing_and_counts_for_nothing():
    asked = JobRestarting(reason="RestartRequested")
    again = JobRestarted(attempt=1, counted=False, reason="RestartRequested")
    given(*a_running_job(), asked, RELEASED, GONE).then(scheduler, Record(again), KEYS_GO)
    assert given(*a_running_job(), asked, RELEASED, GONE, again).job.retries.restarts == 0


def test_asked_for_by_a_person_meanwhile_it_waits_no_longer_and_counts_all_the_same():
    asked = observed(a_spec(2, restart="OnFailure", word="now"))
    given(*GIVEN_UP, RELEASED, GONE, asked).then(scheduler, Record(AGAIN), KEYS_GO)
    assert not given(*GIVEN_UP, RELEASED, GONE, asked, AGAIN).job.retries.restart_wanted


SUSPENDING, SUSPENDED = JobSuspending(reason="TrainingJobSuspending"), JobSuspended(reason="TrainingJobSuspended")


def test_a_suspended_job_keeps_no_pod():
    let_go = SlotsReleased(slots=ALL, reason="JobSuspending")
    given(*a_running_job(), SUSPENDING).then(scheduler, Record(let_go))
    given(*a_running_job(), SUSPENDING, let_go, GONE).then(scheduler, KEYS_GO)


def test_a_job_that_is_resumed_while_its_pods_are_going_begins_again_once_they_are_gone():
    let_go = SlotsReleased(slots=ALL, reason="JobSuspending")
    resumed = [*a_running_job(), SUSPENDING, let_go, JobCreated(reason="TrainingJobResumed")]
    again = JobRestarted(attempt=1, counted=False, reason="Resumed")
    given(*resumed).then_among_others(scheduler, Record(again))
    first = SlotsAssigned(slots=(Slots(1, WORKER, ((0, 1),)),), reason="JobRestarted")
    assert Record(first) not in given(*resumed, again).steps(scheduler)
    given(*resumed, again, GONE).then_among_others(scheduler, Record(first))


def test_a_job_that_is_resumed_before_its_slots_were_released_says_so():
    running = a_running_job()
    pause = [observed(a_spec(suspend=True), generation=2), JobSuspending(reason="TrainingJobSuspending")]
    story = given(*running, *pause, observed(a_spec(), generation=3), JobCreated(reason="TrainingJobResumed"))
    (step, *_) = story.steps(scheduler)
    assert isinstance(step, Record)
    assert isinstance(step.event, SlotsReleased)
    assert step.event.reason == "Resumed"
    assert step.because.sequence == len(running) + 4


def test_25_a_resumed_job_begins_again_with_its_size():
    resumed = [*GROWN, SUSPENDING, *THREE_GO, SUSPENDED, JobCreated(reason="TrainingJobResumed")]
    again = JobRestarted(attempt=1, counted=False, reason="Resumed")
    given(*resumed).then_among_others(scheduler, Record(again))
    first = SlotsAssigned(slots=(Slots(1, WORKER, ((0, 2),)),), reason="JobRestarted")
    given(*resumed, again).then_among_others(scheduler, Record(first))
