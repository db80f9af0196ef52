"""What status says of jobs without a launcher whose workers come and go."""

import msgspec
import pytest

from services.status.core.effects import Announce
from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobFailed, JobRunning, JobSucceeded
from shared.job.events.watcher import JobObserved, PodsGone, TimePassed
from shared.job.naming import Uid
from shared.job.spec import Problem
from shared.job.steps import Record
from tests.kit.builders import exited, pods, worker, workers
from tests.kit.groups import a_running_group, a_starting_group, growing, shrinking
from tests.kit.stories import given, status


def gone(*indices: int) -> PodsGone:
    return PodsGone(uids=tuple(Uid(f"pod-{index}") for index in indices))


def phases(*events: AnyEvent) -> list[AnyEvent]:
    return [step.event for step in given(*events).steps(status) if isinstance(step, Record)]


def after_its_time(*events: AnyEvent) -> list[AnyEvent]:
    since = given(*events).job.attempt.below_minimum
    assert since
    return [*events, TimePassed(anchor=since, timer="BelowMinimum")]


def test_a_group_that_lost_too_many_ends_when_no_worker_comes_in_time():
    story = [*a_running_group(3, least=2), gone(1, 2)]
    assert phases(*story) == []
    (failed,) = phases(*after_its_time(*story))
    assert isinstance(failed, JobFailed)
    assert failed.reason == "BelowMinimum"


def test_it_goes_on_when_enough_came_back():
    story = [*a_running_group(3, least=2), gone(1, 2)]
    again = SlotsAssigned(slots=(workers(1, 2),), replaces=(workers(1, 2),), reason="PodsReplaced")
    back = pods(msgspec.structs.replace(worker(1), uid=Uid("pod-1b")))
    assert given(*story, again).job.attempt.below_minimum
    assert not given(*story, again, back).job.attempt.below_minimum


def test_above_its_minimum_it_waits_for_the_others_as_long_as_it_takes():
    assert not given(*a_running_group(3, least=2), gone(2)).job.attempt.below_minimum


def test_workers_that_never_came_are_not_lost():
    """A queue, or an autoscaler of nodes, may take its time before there are enough for the first time."""
    story = [*a_starting_group(3, least=2), pods(worker(0)), JobRunning(reason="TrainingJobRunning")]
    assert not given(*story).job.attempt.below_minimum
    assert not given(*story, gone(0)).job.attempt.below_minimum
    assert given(*story, pods(worker(1)), gone(0)).job.attempt.below_minimum


@pytest.mark.parametrize("index", [0, 2], ids=["the first", "the last"])
def test_a_group_ends_well_with_the_first_worker_that_does(index: int):
    done = pods(worker(index, version=50, phase="Succeeded", exits=exited(0)))
    assert phases(*a_running_group(3), done) == [JobSucceeded(reason="TrainingJobSucceeded")]


def test_a_running_job_tells_why_an_edit_of_it_is_not_followed():
    wrong = Problem(reason="AboveMaximum", field="spec.worker.replicas", message="write at most maxReplicas")
    edit = JobObserved(
        kind="TrainingJob",
        api_version="kai.alibabacloud.com/v1alpha1",
        generation=2,
        version=2,
        spec=None,
        problems=(wrong,),
    )
    (told,) = [
        step
        for step in given(*a_running_group(3), edit).steps(status)
        if isinstance(step, Announce) and step.reason == "AboveMaximum"
    ]
    assert told.warning
    assert told.message == "spec.worker.replicas: write at most maxReplicas"
    assert given(*a_running_group(3), edit).job.scaling.size == 3


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(growing(2, backoff_limit=0), id="one that it brings"),
        pytest.param(shrinking(2, backoff_limit=0), id="one that it takes"),
    ],
)
def test_a_worker_of_an_open_request_that_fails_for_good_is_not_the_end_of_the_job(story: list[AnyEvent]):
    assert phases(*story, pods(worker(2, version=50, phase="Failed", exits=exited(1)))) == []
