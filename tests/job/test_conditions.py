"""Conditions: in the order in which they became what they are, with the times of what caused them."""

from shared.job.conditions import Condition, holds, with_condition
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import At
from shared.job.events.scaler import ScaleFailed, ScaleSucceeded
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobFailed, JobRunning, JobScaling, JobSucceeded
from shared.job.events.watcher import JobObserved
from shared.job.spec import LAUNCHER, Problem
from shared.job.state import Job
from shared.job.views import Slots
from tests.kit.builders import (
    R1,
    R2,
    a_created_job,
    a_ready_job,
    a_running_job,
    a_spec,
    launcher,
    observed,
    pods,
    scaling_in,
    scaling_out,
    worker,
)
from tests.kit.stories import Story, given

ONE, TWO, THREE = (At(second, f"2030-01-01T00:00:0{second}.000Z") for second in (1, 2, 3))


def kinds(story: Story) -> list[tuple[str, bool]]:
    return [(condition.type, condition.status) for condition in story.job.status.conditions]


def test_a_new_one_comes_last():
    first = with_condition((), "Created", ONE, reason="A")
    assert with_condition(first, "Running", TWO, reason="B") == (
        Condition("Created", True, "A", "", ONE, ONE),
        Condition("Running", True, "B", "", TWO, TWO),
    )


def test_the_same_again_changes_nothing_not_even_a_time():
    known = with_condition((), "Created", ONE, reason="A", message="m")
    assert with_condition(known, "Created", TWO, reason="A", message="m") is known


def test_another_reason_is_an_update_and_no_transition():
    known = with_condition((), "Created", ONE, reason="A")
    (changed,) = with_condition(known, "Created", TWO, reason="B")
    assert (changed.since, changed.updated) == (ONE, TWO)


def test_what_ends_stays_in_its_place_and_what_becomes_true_again_comes_last():
    known = with_condition(with_condition((), "Running", ONE, reason="A"), "Scaling", ONE, reason="A")
    ended = with_condition(known, "Running", TWO, status=False, reason="B")
    assert [condition.type for condition in ended] == ["Running", "Scaling"]
    assert ended[0].since == TWO
    again = with_condition(ended, "Running", THREE, reason="A")
    assert [condition.type for condition in again] == ["Scaling", "Running"]
    assert again[1].since == THREE


def test_one_holds_when_it_is_there_and_true():
    known = with_condition((), "Running", ONE, reason="A")
    assert holds(known, "Running")
    assert not holds(known, "Scaling")
    assert not holds(with_condition(known, "Running", TWO, status=False, reason="B"), "Running")


def test_workers_count_as_created_when_all_were_seen_and_as_ready_when_all_are():
    job = a_created_job(workers=2)
    assert kinds(given(*job, pods(worker(0)))) == [("Created", True)]
    both = given(*job, pods(worker(0), worker(1, phase="Pending")))
    assert kinds(both) == [("Created", True), ("WorkersCreated", True)]
    ready = given(*job, pods(worker(0), worker(1, phase="Pending")), pods(worker(1, version=11)))
    assert kinds(ready)[-1] == ("WorkersReady", True)


def test_a_milestone_keeps_the_time_of_the_event_that_brought_it():
    story = given(*a_ready_job(), pods(worker(0, version=99, ready=False)), pods(worker(0, version=100)))
    ready = next(condition for condition in story.job.status.conditions if condition.type == "WorkersReady")
    assert ready.since.sequence == len(a_ready_job())


def test_a_launcher_that_was_only_assigned_is_not_created():
    assigned = SlotsAssigned(slots=(Slots(0, LAUNCHER, ((0, 0),)),))
    story = given(*a_ready_job(), assigned)
    assert not holds(story.job.status.conditions, "LauncherCreated")
    assert holds(
        given(*a_ready_job(), assigned, pods(launcher(phase="Pending"))).job.status.conditions, "LauncherCreated"
    )


def test_each_scaling_ends_at_a_time_of_its_own():
    running = JobRunning(reason="TrainingJobRunning")
    first = [*a_running_job(), *scaling_out(2), ScaleSucceeded(request=R1, reason="ScalingOutSucceeded"), running]
    second = [*first, *scaling_out(3, request=R2)]
    assert ("ScaleSucceeded", False) in kinds(given(*second))
    end = given(*second, ScaleSucceeded(request=R2, reason="ScalingOutSucceeded")).job.status.conditions[-1]
    assert (end.type, end.since.sequence) == ("ScaleSucceeded", len(second) + 1)


def test_success_after_a_failure_leaves_no_failure_standing():
    running = JobRunning(reason="TrainingJobRunning")
    failed = ScaleFailed(request=R1, reason="DeadlineExceeded")
    story = given(*a_running_job(workers=3), *scaling_out(3), failed, running, *scaling_in(2, request=R2))
    assert ("ScaleFailed", False) in kinds(story)


def test_the_end_of_a_job_ends_what_was_running():
    story = given(*a_running_job(), *scaling_out(2), JobFailed(reason="LauncherLost", message="gone"))
    assert ("Running", False) in kinds(story)
    assert ("Scaling", False) in kinds(story)
    end = story.job.status.conditions[-1]
    assert (end.type, end.reason, end.message) == ("Failed", "LauncherLost", "gone")
    assert story.job.status.completion_time == end.since.time


def test_success_is_not_also_a_failure():
    story = given(*a_running_job(), JobScaling(reason="ScalingStart"), JobSucceeded(reason="TrainingJobSucceeded"))
    assert [kind for kind, status in kinds(story) if status][-1] == "Succeeded"
    assert "Failed" not in dict(kinds(story))


PROBLEM = Problem(reason="InvalidValue", field="spec.backoffLimit", message="set at least 0")
WRONG = JobObserved(kind="TrainingJob", api_version="v1", generation=1, version=2, problems=(PROBLEM,))


def created(*more: AnyEvent) -> Condition:
    job: Job = given(*a_running_job(), *more).job
    return next(condition for condition in job.status.conditions if condition.type == "Created")


def test_a_running_job_shows_what_is_wrong_with_its_newest_spec_and_runs_on():
    assert (created(WRONG).status, created(WRONG).reason) == (True, "InvalidValue")


def test_once_it_is_corrected_nothing_is_shown_any_more():
    before, after = created(), created(WRONG, observed(a_spec(), generation=2))
    assert (after.status, after.reason, after.message) == (True, before.reason, before.message)
    assert after.since == before.since
