"""Conditions and verdicts repeat the words of kube-scheduler, kubelet, API server and failed container."""

import pytest

from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scaler import ScaleFailed, ScaleSucceeded
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobRunning, JobScaling
from shared.job.events.watcher import TimePassed
from shared.job.policies.verdict import verdict
from shared.job.spec import LAUNCHER
from shared.job.text import MOST_MESSAGE
from shared.job.views import Exit, Slots
from shared.job.waiting import conditions
from tests.kit.builders import (
    R1,
    a_created_job,
    a_ready_job,
    a_running_job,
    launcher,
    pods,
    scale_out,
    scaling_out,
    worker,
    workers,
)
from tests.kit.stories import given

NO_GPU = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
QUOTA = 'pods "resnet-worker-0" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3'


def condition(kind: str, *events: AnyEvent) -> str:
    found = conditions(given(*events).job, milestones=True)
    return next(known.message for known in found if known.type == kind)


def end(*events: AnyEvent) -> str:
    found = verdict(given(*events).job)
    assert found is not None
    return found.message


def waiting(index: int = 0, message: str = NO_GPU) -> AnyEvent:
    return pods(worker(index, phase="Pending", reason="Unschedulable", message=message))


def refused(effect: str = "CreatePod", message: str = QUOTA, **more: object) -> EffectRefused:
    return EffectRefused(effect=effect, reason="QuotaExceeded", message=message, **more)  # type: ignore[arg-type]


def test_a_worker_that_waits_is_explained_by_the_kube_scheduler():
    assert condition("WorkersReady", *a_created_job(), waiting()) == f"resnet-worker-0: Unschedulable: {NO_GPU}"


def test_a_launcher_that_waits_is_explained_by_the_kubelet():
    assigned = SlotsAssigned(slots=(Slots(0, LAUNCHER, ((0, 0),)),))
    pulls = launcher(phase="Pending", reason="ErrImagePull", message="not found")
    job = [*a_ready_job(), assigned, pods(pulls)]
    assert condition("LauncherCreated", *job) == "resnet-launcher: ErrImagePull: not found"


def test_a_job_whose_pods_are_refused_until_its_time_is_over_says_what_the_api_server_said():
    job = [*a_created_job(scheduling_timeout_seconds=60), refused(), TimePassed(anchor=3, timer="Scheduling")]
    assert end(*job).endswith(f"QuotaExceeded: CreatePod was refused: {QUOTA}")


def test_an_evicted_launcher_is_explained_by_the_kubelet():
    gone = launcher(version=90, phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
    assert end(*a_running_job(), pods(gone)) == "the launcher failed: Evicted: The node was low on resource: memory."


def test_a_worker_that_ended_too_early_is_explained_by_its_last_words():
    crashed = worker(0, phase="Failed", exits=(Exit("main", 128, "StartError", 'exec: "/no/such/program"'),))
    said = 'resnet-worker-0 ended with 128 before the launcher was made: exec: "/no/such/program"'
    assert end(*a_created_job(workers=2, least=2), pods(crashed)) == said


@pytest.mark.parametrize("length", [500, 2_000, 100_000])
def test_no_message_of_a_condition_is_longer_than_a_kibibyte(length: int):
    long = "\u00fc" * length
    assert len(condition("WorkersReady", *a_created_job(), waiting(message=long)).encode()) <= MOST_MESSAGE
    assert len(condition("WorkersCreated", *a_created_job(), refused(message=long)).encode()) <= MOST_MESSAGE
    crash = (Exit("main", 1, "Error", long + "the end"),)
    said = end(*a_running_job(), pods(launcher(version=90, phase="Failed", exits=crash)))
    assert said.endswith("the end")
    assert len(said.encode()) <= MOST_MESSAGE


def scaled(*more: AnyEvent) -> list[AnyEvent]:
    """A job of two that a request takes to four, in the phase Scaling."""
    begins = JobScaling(reason="ScalingStart", message="2 -> 4 workers")
    out = [event for event in scaling_out(2, 3) if not isinstance(event, JobScaling)]
    return [*a_running_job(workers=2), *out, begins, *more]


def request_says(kind: str, *events: AnyEvent) -> str:
    (request,) = given(*events).job.scaling.requests.values()
    return next(known.message for known in request.conditions if known.type == kind)


def test_a_scaling_says_from_which_size_to_which():
    assert condition("Scaling", *scaled()) == "2 -> 4 workers"
    assert request_says("Scaling", *scaled()) == "2 -> 4 workers"


def test_the_end_of_a_scaling_says_it_too():
    done = scaled(ScaleSucceeded(request=R1, reason="ScalingOutSucceeded"), JobRunning(reason="TrainingJobRunning"))
    assert condition("ScaleSucceeded", *done) == "2 -> 4 workers"
    assert request_says("ScaleSucceeded", *done) == "2 -> 4 workers"


def test_a_scaling_whose_pods_are_refused_says_what_the_api_server_said():
    failed = ScaleFailed(request=R1, reason="QuotaExceeded", released=(workers(2, 3),))
    assert request_says("ScaleFailed", *scaled(refused(), failed)) == QUOTA


def test_a_request_that_waits_for_its_turn_has_no_sizes_yet():
    (request,) = given(*a_running_job(), scale_out(1)).job.scaling.requests.values()
    assert request.sizes == ""


TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    loss.backward()\n'
OUT = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        pytest.param("step 1\n" * 300 + TRACEBACK + OUT, OUT, id="the end"),
        pytest.param(TRACEBACK + OUT + " and so on" * 60, OUT, id="an exception longer than all that is shown"),
        pytest.param(TRACEBACK + OUT + "\n" + "[W] not destroyed: " * 60, OUT, id="more words after the exception"),
        pytest.param(
            "".join(f"[rank0]: {line}\n" for line in (TRACEBACK + OUT).splitlines()) + "[W] so on " * 200,
            OUT,
            id="a rank before each line",
        ),
        pytest.param(
            TRACEBACK + OUT + "\n\nDuring handling of it:\n\n" + TRACEBACK + "  deeper\n" * 100 + "KeyError: 'x'",
            OUT,
            id="an exception while another was handled",
        ),
    ],
)
def test_the_exception_of_a_failed_container_survives_every_cut(said: str, cause: str):
    crash = (Exit("main", 1, "Error", said),)
    told = end(*a_running_job(), pods(launcher(version=90, phase="Failed", exits=crash)))
    assert told.startswith("the launcher exited with 1 (Error): ")
    assert cause in told
    assert len(told.encode()) <= MOST_MESSAGE


def test_lines_that_only_underline_others_are_left_out():
    crash = (Exit("main", 1, "Error", "=====\ntrain.py FAILED\n-----\nRoot cause\n    ~~~^^^"),)
    told = end(*a_running_job(), pods(launcher(version=90, phase="Failed", exits=crash)))
    assert told.endswith(": train.py FAILED | Root cause")


def test_a_long_message_of_the_api_server_keeps_its_beginning_and_its_end():
    told = condition("WorkersCreated", *a_created_job(), refused(message="the webhook " + "x" * 3_000 + " says no"))
    assert told.startswith("CreatePod was refused: the webhook")
    assert told.endswith("says no")
