"""Pods whose training ended and whose other containers run on: no slot that was given up has a running pod."""

import pytest

from services.scheduler.core.effects import CreatePod, DeletePod
from shared.job.events.scheduler import SlotsAssigned, SlotsReleased
from shared.job.events.status import JobSucceeded
from shared.job.naming import Slot, Uid
from shared.job.spec import WORKER, CleanPodPolicy
from shared.job.steps import Record
from shared.job.views import Slots
from tests.kit.builders import a_running_job, exited, hosts_file, launcher, pods, published, worker, workers
from tests.kit.stories import given, scheduler

DELETED = DeletePod("resnet-worker-1", Uid("pod-1"))
LINGERS = worker(1, version=30, phase="Failed", exits=exited(1), lingers=True)
UNLISTED = (published(2, 0), hosts_file(2), pods(launcher(version=29, hosts=2)))
"""The hosts files without worker 1 are in place."""
REPLACED = SlotsAssigned(slots=(workers(2),), replaces=(workers(1),), reason="WorkersReplaced")


def test_a_worker_whose_training_failed_is_deleted_with_what_runs_on_beside_it():
    story = [*a_running_job(workers=2, of_workers="OnFailure"), pods(LINGERS)]
    given(*story).then(scheduler, Record(REPLACED))
    story += UNLISTED
    given(*story).then(scheduler, Record(REPLACED), DELETED)
    ends = pods(worker(1, version=31, phase="Failed", exits=exited(1), lingers=True, deleting=True))
    given(*story, REPLACED, ends).then(scheduler, CreatePod(Slot(0, WORKER, 2)))


def test_a_worker_that_succeeded_is_deleted_with_what_runs_on_beside_it():
    done = worker(1, version=30, phase="Succeeded", exits=exited(0), lingers=True)
    given(*a_running_job(workers=2), pods(done)).then_nothing(scheduler)
    given(*a_running_job(workers=2), pods(done), *UNLISTED).then(scheduler, DELETED)


def test_a_pod_that_the_kubelet_begins_again_after_its_slot_was_given_up_is_deleted():
    ended, again = worker(1, version=30, phase="Failed", exits=exited(1)), worker(1, version=31)
    given(*a_running_job(workers=2), pods(ended)).then_nothing(scheduler)
    given(*a_running_job(workers=2), pods(ended), *UNLISTED, pods(again)).then(scheduler, DELETED)


def test_a_failed_worker_whose_pod_has_ended_keeps_its_log():
    given(*a_running_job(workers=2), pods(worker(1, version=30, phase="Failed", exits=exited(1)))).then_nothing(
        scheduler
    )


@pytest.mark.parametrize(
    ("policy", "released"),
    [
        pytest.param("Running", (Slots(0, "launcher", ((0, 0),)), workers(0, 1)), id="Running ends what runs on"),
        pytest.param("None", (), id="None leaves it"),
    ],
)
def test_with_the_end_of_the_job_its_clean_pod_policy_decides(policy: CleanPodPolicy, released: tuple[Slots, ...]):
    done = launcher(version=40, phase="Succeeded", exits=exited(0), lingers=True)
    story = [*a_running_job(workers=2, clean=policy), pods(done)]
    given(*story).then_nothing(scheduler)
    over = given(*story, JobSucceeded(reason="TrainingJobSucceeded"))
    if released:
        over.then(scheduler, Record(SlotsReleased(slots=released, reason="CleanPodPolicyRunning")))
    else:
        over.then_nothing(scheduler)
