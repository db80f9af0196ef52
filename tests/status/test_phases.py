"""Phases in path order, and the verdicts behind the last one."""

import msgspec
import pytest

from services.status.core import decide
from services.status.core.announce import announcements
from services.status.core.effects import Announce
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scaler import ScaleSucceeded
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobCreated, JobFailed, JobRunning, JobScaling, JobSucceeded
from shared.job.events.watcher import JobObserved, LauncherLost, PodsGone, ScaleRequested, TimePassed
from shared.job.naming import Uid
from shared.job.spec import LAUNCHER, Problem
from shared.job.state import Job
from shared.job.views import Actor, Exit, Slots
from tests.kit.builders import (
    a_created_job,
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
    service,
    worker,
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


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        pytest.param([pods(launcher(version=30, phase="Failed", exits=exited(3)))], "TrainingJobFailed", id="exit 3"),
        pytest.param(
            [pods(launcher(version=30, phase="Failed", reason="Evicted"))], "TrainingJobEvicted", id="evicted"
        ),
        pytest.param([LauncherLost(uid=Uid("pod-launcher"))], "LauncherLost", id="vanished"),
        pytest.param(
            [pods(launcher(version=30, phase="Succeeded", exits=exited(0), deleting=True))],
            "LauncherLost",
            id="deleted before its end",
        ),
    ],
)
def test_a_failed_or_lost_launcher_ends_the_job_failed(events: list[AnyEvent], reason: str):
    end = next_phase(given(*a_running_job(), *events).job)
    assert isinstance(end, JobFailed)
    assert end.reason == reason


def test_the_exit_of_the_training_container_is_enough():
    # The kubelet sets the pod's phase up to two seconds after the container's exit.
    end = next_phase(given(*a_running_job(), pods(launcher(version=30, phase="Running", exits=exited(0)))).job)
    assert end == JobSucceeded(reason="TrainingJobSucceeded")


def test_a_side_container_does_not_judge():
    side = pods(launcher(version=30, exits=(Exit("sidecar", 1, "Error"),)))
    assert next_phase(given(*a_running_job(), side).job) is None


def test_a_command_that_cannot_start_fails_the_job():
    job = [*a_created_job(workers=2, least=2), service()]
    failed = worker(0, phase="Failed", exits=exited(128, "StartError"))
    end = next_phase(given(*job, pods(failed, worker(1))).job)
    assert end == JobFailed(reason="StartError", message="resnet-worker-0 ended with 128 before the launcher was made")


def test_a_pod_that_can_never_be_made_fails_the_job():
    refused = EffectRefused(effect="CreatePod", reason="Invalid", field="spec.containers[0].image", permanent=True)
    end = next_phase(given(*a_created_job(), refused).job)
    assert end == JobFailed(reason="Invalid", message="CreatePod was refused for good (spec.containers[0].image)")


def test_a_job_goes_on_without_a_worker_as_long_as_it_has_enough():
    assert next_phase(given(*a_running_job(workers=2), PodsGone(uids=(Uid("pod-1"),))).job) is None


def test_below_its_minimum_a_job_fails_after_a_while():
    short = [*a_running_job(workers=2, least=2), PodsGone(uids=(Uid("pod-1"),))]
    assert next_phase(given(*short).job) is None
    end = next_phase(given(*short, TimePassed(anchor=len(short), timer="BelowMinimum")).job)
    assert end == JobFailed(reason="BelowMinimum", message="1 worker runs, 2 are needed")
