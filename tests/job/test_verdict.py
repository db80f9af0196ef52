"""Is it over: by the launcher, by too few workers, or because it can never start."""

import msgspec
import pytest
from msgspec.structs import replace

from shared.job.attempt import Verdict
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scheduler import JobRestarted, SlotsAssigned, SlotsReleased
from shared.job.events.status import JobRestarting, JobRunning
from shared.job.events.watcher import JobAdopted, LauncherLost, PodsGone, TimePassed
from shared.job.naming import Uid
from shared.job.spec import LAUNCHER, WORKER
from shared.job.views import Exit, Slots
from tests.kit.builders import a_created_job, a_running_job, exited, launcher, pods, scaling_out, worker, workers
from tests.kit.replicas import (
    a_created_replicated_job,
    a_replicated_spec,
    a_running_replicated_job,
    ended,
    led_by_workers,
)
from tests.kit.stories import judged

DONE = Verdict(True, "TrainingJobSucceeded")


def reason(*events: AnyEvent) -> str:
    end = judged(*events)
    return end.reason if end is not None else ""


def test_nothing_is_over_before_it_began():
    assert judged() is None
    assert judged(*a_created_job()) is None
    assert judged(*a_running_job()) is None


@pytest.mark.parametrize(
    ("view", "end"),
    [
        pytest.param(
            launcher(version=30, phase="Succeeded", exits=exited(0)), DONE, id="the training container ended well"
        ),
        pytest.param(launcher(version=30, exits=exited(0)), DONE, id="before the pod's phase says so"),
        pytest.param(launcher(version=30, phase="Succeeded"), DONE, id="a pod that says nothing of its containers"),
        pytest.param(
            launcher(version=30, phase="Failed", exits=exited(3)),
            Verdict(False, "TrainingJobFailed", "the launcher exited with 3 (Error)"),
            id="exit 3",
        ),
        pytest.param(
            launcher(version=30, phase="Failed", exits=exited(137, "OOMKilled")),
            Verdict(False, "OOMKilled", "the launcher exited with 137 (OOMKilled)"),
            id="out of memory",
        ),
        pytest.param(
            launcher(version=30, phase="Failed", reason="Evicted", exits=exited(137)),
            Verdict(False, "TrainingJobEvicted", "the launcher exited with 137 (Error)"),
            id="evicted with an exit",
        ),
        pytest.param(
            launcher(version=30, phase="Failed", reason="NodeLost"),
            Verdict(False, "NodeLost", "the launcher failed: NodeLost"),
            id="lost with its node",
        ),
        pytest.param(
            launcher(version=30, phase="Failed", exits=(Exit("sidecar", 0), Exit("main", 2))),
            Verdict(False, "TrainingJobFailed", "the launcher exited with 2 (Error)"),
            id="a side container that ended well changes nothing",
        ),
        pytest.param(
            launcher(version=30, phase="Succeeded", exits=exited(0), disruption="TerminationByKubelet"),
            Verdict(False, "Disrupted", "the launcher was disrupted: TerminationByKubelet", disrupted=True),
            id="a kubelet ends it for its own sake, and it exits with 0 when it is told to",
        ),
        pytest.param(launcher(version=30, exits=(Exit("sidecar", 1),)), None, id="a side container alone"),
        pytest.param(launcher(version=30, deleting=True), None, id="asked to go and still running"),
        pytest.param(launcher(version=30, phase="Unknown"), None, id="its node is not heard of"),
    ],
)
def test_the_launcher_judges(view: object, end: Verdict | None):
    assert judged(*a_running_job(), pods(view)) == end  # type: ignore[arg-type]


def test_a_launcher_that_was_deleted_before_its_end_did_not_succeed():
    ended = launcher(version=30, phase="Succeeded", exits=exited(0), deleting=True)
    assert reason(*a_running_job(), pods(ended)) == "LauncherLost"


def test_16_a_launcher_that_vanished_ends_the_job():
    assert reason(*a_running_job(), LauncherLost(uid=Uid("pod-launcher"))) == "LauncherLost"


def test_a_launcher_whose_slot_was_released_does_not_judge():
    released = SlotsReleased(slots=(Slots(0, LAUNCHER, ((0, 0),)),))
    failed = pods(launcher(version=30, phase="Failed", exits=exited(1)))
    assert judged(*a_running_job(), released, failed) is None


def test_a_pod_of_an_earlier_attempt_does_not_judge():
    failed = pods(launcher(version=30, phase="Failed", exits=exited(1)))
    assert judged(*a_running_job(), JobRestarted(attempt=1), failed) is None


def test_a_launcher_of_an_earlier_attempt_that_vanishes_does_not_judge():
    assert judged(*a_running_job(), JobRestarted(attempt=1), LauncherLost(uid=Uid("pod-launcher"))) is None


def test_a_launcher_that_vanished_before_its_job_was_taken_on_ends_the_job():
    lost = (Slots(0, LAUNCHER, ((0, 0),)),)
    adopted = JobAdopted(source="AcceptedLoss", attempt=0, slots=(workers(0, 1),), lost=lost)
    taken_on = [*a_running_job()[:2], pods(worker(0), worker(1)), adopted, JobRunning(reason="TrainingJobRunning")]
    assert reason(*taken_on) == "LauncherLost"


def test_workers_that_end_do_not_judge_a_job_that_was_launched():
    failed = pods(worker(0, version=30, phase="Failed", exits=exited(1)), worker(1, version=30, phase="Failed"))
    assert judged(*a_running_job(workers=2), failed) is None


SHORT: list[AnyEvent] = [*a_running_job(workers=3, least=2), PodsGone(uids=(Uid("pod-1"), Uid("pod-2")))]
TIME_OUT = TimePassed(anchor=len(SHORT), timer="BelowMinimum")


def test_too_few_workers_for_too_long_end_the_job():
    assert judged(*SHORT) is None
    assert judged(*SHORT, TIME_OUT) == Verdict(False, "BelowMinimum", "1 worker runs, 2 are needed")


def test_success_comes_before_too_few_workers():
    assert judged(*SHORT, TIME_OUT, pods(launcher(version=30, phase="Succeeded", exits=exited(0)))) == DONE


def test_new_workers_in_time_save_the_job():
    more = [*SHORT, *scaling_out(3), pods(worker(3))]
    assert judged(*more, TIME_OUT) is None


def test_a_scale_in_to_fewer_is_not_a_loss():
    assert judged(*a_running_job(workers=3), SlotsReleased(slots=(workers(2),))) is None


@pytest.mark.parametrize("effect", ["CreatePod", "CreateService", "CreateSecret", "WriteHosts"])
def test_what_can_never_be_made_ends_a_job_that_has_not_started(effect: str):
    refused = EffectRefused(effect=effect, reason="Invalid", field="spec.x", permanent=True)
    end = Verdict(False, "Invalid", f"{effect} was refused for good (spec.x)", permanent=True)
    assert judged(*a_created_job(), refused) == end
    assert judged(*a_created_job(), replace(refused, permanent=False)) is None
    assert judged(*a_running_job(), refused) is None, "what runs goes on"


def test_a_launcher_that_can_never_be_made_ends_it_too():
    assigned = SlotsAssigned(slots=(Slots(0, LAUNCHER, ((0, 0),)),), reason="WorkersReady")
    refused = EffectRefused(effect="CreatePod", reason="Invalid", slots=assigned.slots, permanent=True)
    end = Verdict(False, "Invalid", "CreatePod was refused for good", permanent=True)
    assert judged(*a_created_job(), pods(worker(0), worker(1)), assigned, refused) == end


@pytest.mark.parametrize("effect", ["PatchStatus", "Announce", "OwnRequest", "DeletePod"])
def test_what_training_can_do_without_ends_no_job(effect: str):
    refused = EffectRefused(effect=effect, reason="Invalid", permanent=True)
    assert judged(*a_created_job(), refused) is None


@pytest.mark.parametrize(
    ("view", "end"),
    [
        pytest.param(
            worker(0, phase="Failed", exits=exited(128, "StartError")),
            Verdict(False, "StartError", "resnet-worker-0 ended with 128 before the launcher was made"),
            id="a command that cannot start",
        ),
        pytest.param(
            worker(0, phase="Failed", reason="Evicted"),
            Verdict(False, "TrainingJobEvicted", "resnet-worker-0 ended before the launcher was made"),
            id="evicted",
        ),
        pytest.param(
            worker(0, phase="Succeeded", exits=exited(0)),
            Verdict(False, "WorkerExited", "a worker ended before the launcher was made"),
            id="ended well and too early",
        ),
    ],
)
def test_too_few_workers_to_begin_with_end_the_job(view: object, end: Verdict):
    assert judged(*a_created_job(workers=2, least=2), pods(view)) == end  # type: ignore[arg-type]
    assert judged(*a_created_job(workers=2, least=1), pods(view)) is None  # type: ignore[arg-type]


def test_a_failure_of_an_earlier_attempt_is_not_told_again():
    first = pods(worker(0, phase="Failed", exits=exited(7)))
    again = [JobRestarting(reason="Error"), JobRestarted(attempt=1, reason="Error")]
    assigned = SlotsAssigned(slots=(Slots(1, WORKER, ((0, 1),)),))
    second = pods(msgspec.structs.replace(worker(0, phase="Succeeded", exits=exited(0)), attempt=1, uid=Uid("pod-0-1")))
    end = judged(*a_created_job(workers=2, least=2), first, *again, assigned, second)
    assert end == Verdict(False, "WorkerExited", "a worker ended before the launcher was made")


def test_between_its_assignment_and_its_pod_the_launcher_is_waited_for():
    assigned = SlotsAssigned(slots=(Slots(0, LAUNCHER, ((0, 0),)),))
    lost = pods(worker(0, version=30, phase="Failed", exits=exited(1)))
    assert judged(*a_created_job(workers=2, least=2), assigned, lost) is None


ASSIGNED = SlotsAssigned(slots=(Slots(0, LAUNCHER, ((0, 0),)),), reason="WorkersReady")
WELL = pods(launcher(version=30, phase="Succeeded", exits=exited(0)))
REFUSED = EffectRefused(effect="CreatePod", reason="Invalid", permanent=True)
NOT_SCHEDULED = TimePassed(anchor=3, timer="Scheduling")
TIMED = replace(a_replicated_spec(), scheduling_timeout_seconds=30)
BY_WORKERS = led_by_workers("First")
WHOLE = replace(BY_WORKERS, handling=replace(BY_WORKERS.handling, restarts="Job"))


@pytest.mark.parametrize(
    ("story", "told"),
    [
        pytest.param(
            [*a_running_job(active_deadline_seconds=60), TimePassed(anchor=2, timer="ActiveDeadline"), WELL],
            "TrainingJobSucceeded",
            id="the launcher's end, not activeDeadlineSeconds",
        ),
        pytest.param(
            [*a_created_job(scheduling_timeout_seconds=30), ASSIGNED, NOT_SCHEDULED, WELL],
            "TrainingJobSucceeded",
            id="the launcher's end, not schedulingTimeoutSeconds",
        ),
        pytest.param(
            [
                *a_created_job(scheduling_timeout_seconds=30),
                ASSIGNED,
                NOT_SCHEDULED,
                pods(launcher(phase="Pending")),
                LauncherLost(uid=Uid("pod-launcher")),
            ],
            "LauncherLost",
            id="the launcher's loss, not schedulingTimeoutSeconds",
        ),
        pytest.param(
            [*a_running_replicated_job(WHOLE), ended("worker", 1, 3), ended("worker", 0, 0)],
            "TrainingJobSucceeded",
            id="the leader's success, not the failure of another one",
        ),
        pytest.param(
            [*a_created_replicated_job(TIMED), REFUSED, ended("chief", 0, 0)],
            "TrainingJobSucceeded",
            id="the leader's success, not a refusal",
        ),
        pytest.param(
            [*a_created_replicated_job(TIMED), NOT_SCHEDULED, ended("worker", 0, 3)],
            "SchedulingTimeout",
            id="schedulingTimeoutSeconds, not a pod that the others need",
        ),
        pytest.param(
            [*a_created_replicated_job(TIMED), REFUSED, ended("worker", 0, 3)],
            "TrainingJobFailed",
            id="a pod that the others need, not a refusal",
        ),
        pytest.param(
            [*a_created_job(workers=2, least=2), REFUSED, pods(worker(0, phase="Failed", exits=exited(3)))],
            "Invalid",
            id="a refusal for good, not too few workers: another attempt would be refused too",
        ),
    ],
)
def test_of_two_ends_the_first_in_the_order_counts(story: list[AnyEvent], told: str):
    assert reason(*story) == told
