"""Phases in path order, and the verdicts behind the last one."""

import msgspec
import pytest

from services.status.core import decide
from services.status.core.announce import announcements
from services.status.core.effects import Announce
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import ScaleSucceeded
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobCreated, JobRunning, JobScaling, JobSucceeded
from shared.job.events.watcher import JobObserved, ScaleRequested
from shared.job.naming import Uid
from shared.job.spec import LAUNCHER, Problem
from shared.job.state import Job
from shared.job.views import Actor, Slots
from tests.kit.builders import (
    a_ready_job,
    a_running_job,
    a_spec,
    exited,
    hosts_file,
    launcher,
    observed,
    pods,
    published,
    scaling_out,
)
from tests.kit.stories import given

LAUNCHED: list[AnyEvent] = [
    *a_ready_job(),
    published(1, 0, 1),
    hosts_file(1),
    SlotsAssigned(slots=(Slots(0, LAUNCHER, ((0, 0),)),)),
]

replace = msgspec.structs.replace


def next_phase(job: Job) -> AnyEvent | None:
    step = decide.next_phase(job)
    return step.event if step is not None else None


def test_a_valid_job_is_taken_on():
    assert next_phase(given(observed(a_spec())).job) == JobCreated(reason="TrainingJobCreated")


def test_a_job_with_problems_is_not_taken_on_until_it_is_corrected():
    problem = Problem(reason="NoContainers", field="spec", message="add a container")
    bad = JobObserved(kind="TrainingJob", api_version="v1", generation=1, version=1, problems=(problem,))
    assert next_phase(given(bad).job) is None
    assert next_phase(given(bad, observed(a_spec(), generation=2)).job) == JobCreated(reason="TrainingJobCreated")


def test_it_runs_when_the_launcher_runs():
    assert next_phase(given(*LAUNCHED, pods(launcher(phase="Pending"))).job) is None
    assert next_phase(given(*LAUNCHED, pods(launcher())).job) == JobRunning(reason="TrainingJobRunning")


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_a_launcher_whose_slot_the_log_has_not_assigned_makes_no_job_run(phase: str):
    *before, assigned = LAUNCHED
    assert next_phase(given(*before, pods(launcher(phase=phase))).job) is None
    assert next_phase(given(*before, pods(launcher(phase=phase)), assigned).job) == JobRunning(
        reason="TrainingJobRunning"
    )


def test_running_is_recorded_even_when_the_end_is_already_there():
    done = [*LAUNCHED, pods(launcher(phase="Succeeded", exits=exited(0)))]
    assert next_phase(given(*done).job) == JobRunning(reason="TrainingJobRunning")
    end = next_phase(given(*done, JobRunning(reason="TrainingJobRunning")).job)
    assert end == JobSucceeded(reason="TrainingJobSucceeded")


def test_scaling_is_a_phase_of_its_own_and_ends_in_running():
    scaling = [*a_running_job(workers=2), *scaling_out(2)]
    assert next_phase(given(*scaling[:-1]).job) == JobScaling(reason="ScalingStart", message="2 -> 3 workers")
    assert next_phase(given(*scaling).job) is None
    done = ScaleSucceeded(request=Uid("request-1"), reason="ScalingOutSucceeded")
    assert next_phase(given(*scaling, done).job) == JobRunning(reason="TrainingJobRunning")


def test_scaling_names_the_clients_that_asked_for_it_if_they_are_known():
    wish, accepted, begins = scaling_out(2)
    assert isinstance(wish, ScaleRequested)
    asked = replace(wish, by=(Actor("kubectl-create"), Actor("robot")))
    now = next_phase(given(*a_running_job(workers=2), asked, accepted).job)
    assert isinstance(now, JobScaling)
    assert now == JobScaling(reason="ScalingStart", message="2 -> 3 workers, by kubectl-create and robot")
    assert isinstance(begins, JobScaling)
    done = given(
        *a_running_job(workers=2),
        asked,
        accepted,
        replace(begins, message=now.message),
        ScaleSucceeded(request=Uid("request-1"), reason="ScalingOutSucceeded"),
        JobRunning(reason="TrainingJobRunning"),
    ).job
    told = [step for step in announcements(done) if isinstance(step, Announce) and step.message == now.message]
    assert {step.kind for step in told} == {"ScaleOut", "TrainingJob"}
    edit = replace(observed(a_spec(3), generation=2), by=(Actor("kubectl", "Update", "scale"),))
    (request,) = given(*a_running_job(workers=2), edit).job.scaling.requests.values()
    assert [*map(str, request.by)] == ["kubectl (scale)"]
