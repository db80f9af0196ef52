"""Slots, and the pods that fill them."""

from typing import Any

import pytest
from msgspec.structs import replace

from services.scheduler.core.effects import CreatePod, CreateSecret, CreateService, DeletePod
from shared.job.events.event import EffectRefused
from shared.job.events.scaler import ScaleFailed, WorkersReleased
from shared.job.events.scheduler import SlotsAssigned, SlotsReleased
from shared.job.events.status import JobCreated, JobSuspended
from shared.job.events.watcher import HistoryBroken, JobDeleting, JobObserved, PodsGone, TimePassed
from shared.job.naming import Slot, Uid, secret_name
from shared.job.spec import LAUNCHED, LAUNCHER, WORKER, Problem
from shared.job.steps import Record
from shared.job.views import Slots
from tests.kit.builders import (
    R1,
    a_created_job,
    a_ready_job,
    a_running_job,
    a_spec,
    hosts_file,
    launcher,
    observed,
    pods,
    published,
    scaling_in,
    scaling_out,
    secret,
    service,
    worker,
    workers,
)
from tests.kit.histories import KEY
from tests.kit.stories import given, scheduler

LAUNCHED_WITHOUT_FILES = replace(LAUNCHED, hosts_files=False)
LAUNCHER_SLOT = Slots(0, LAUNCHER, ((0, 0),))
CREATE_SECRET = CreateSecret(0, secret_name(KEY, 0))


def pod(index: int, scaleout: str = "") -> CreatePod:
    return CreatePod(Slot(0, WORKER, index), scaleout)


@pytest.mark.parametrize(
    ("reason", "drained", "spec"),
    [
        pytest.param("Drained", True, {}, id="the launcher stopped using it"),
        pytest.param("DrainTimed", True, {}, id="nobody could look, and its time passed"),
        pytest.param("DrainForced", False, {}, id="it may still be in use"),
        pytest.param("HostsWrittenLate", False, {}, id="the launcher just learnt of it"),
        pytest.param(
            "Drained", False, {"handling": LAUNCHED_WITHOUT_FILES}, id="without hosts files SIGTERM is what it learns"
        ),
    ],
)
def test_a_worker_that_nothing_uses_is_deleted_with_a_short_grace_period(
    reason: str, drained: bool, spec: dict[str, Any]
):
    story = [*a_running_job(workers=3, **spec), *scaling_in(2), published(2, 0, 1, request=R1)]
    gone = WorkersReleased(request=R1, slots=(workers(2),), reason=reason)
    given(*story, gone).then(scheduler, DeletePod("resnet-worker-2", Uid("pod-2"), drained=drained))


def test_nothing_is_made_before_status_took_the_job_on():
    given(observed(a_spec(2))).then_nothing(scheduler)


def test_a_job_begins_with_its_worker_slots():
    given(observed(a_spec(2)), JobCreated(reason="TrainingJobCreated")).then(
        scheduler, Record(SlotsAssigned(slots=(workers(0, 1),), reason="JobCreated")), CREATE_SECRET
    )


class TestPodsOfADecisionThatTheLogHasLost:
    CREATED = (observed(a_spec(2)), JobCreated(reason="TrainingJobCreated"), secret())
    BEGIN = Record(SlotsAssigned(slots=(workers(0, 1),), reason="JobCreated"))

    def test_stay_until_their_slots_are_assigned_and_after_that(self):
        story = [*self.CREATED, pods(worker(0), worker(1), launcher()), service()]
        given(*story).then(scheduler, self.BEGIN)
        given(*story, self.BEGIN.event).then_nothing(scheduler)

    def test_are_deleted_if_they_get_no_slot(self):
        story = [*self.CREATED, pods(worker(0), worker(1), worker(2)), service(), self.BEGIN.event]
        given(*story).then(scheduler, DeletePod("resnet-worker-2", Uid("pod-2")))

    def test_are_deleted_before_the_job_begins_if_they_are_of_another_attempt(self):
        later = [*self.CREATED, pods(replace(worker(0), attempt=1)), service()]
        given(*later).then(scheduler, DeletePod("resnet-worker-0", Uid("pod-0")))
        given(*later, PodsGone(uids=(Uid("pod-0"),))).then(scheduler, self.BEGIN)

    def test_are_deleted_before_others_are_made_if_they_are_of_a_later_attempt(self):
        story = [*a_created_job(), service(), secret(), pods(replace(worker(0), attempt=2))]
        given(*story).then(scheduler, DeletePod("resnet-worker-0", Uid("pod-0")))
        given(*story, PodsGone(uids=(Uid("pod-0"),))).then(scheduler, pod(0), pod(1))

    def test_keep_a_running_job_from_no_other_pod(self):
        wild = replace(worker(7, version=90, deleting=True), attempt=7)
        story = [*a_running_job(workers=2), *scaling_out(2), pods(wild)]
        given(*story).then(scheduler, pod(2, "scaleout-request-1"))

    def test_are_awaited_while_they_are_being_deleted(self):
        given(*self.CREATED, pods(worker(0, deleting=True)), service()).then_nothing(scheduler)

    def test_are_deleted_if_the_job_is_suspended(self):
        suspended = [observed(a_spec(2, suspend=True)), JobCreated(reason=""), secret(), JobSuspended(reason="")]
        given(*suspended, pods(worker(0))).then(scheduler, DeletePod("resnet-worker-0", Uid("pod-0")))


def test_a_job_gets_a_service_and_each_slot_a_pod():
    given(*a_created_job(workers=2), secret()).then(scheduler, CreateService(), pod(0), pod(1))


def test_of_a_resource_that_became_invalid_nothing_is_made():
    wrong = Problem(reason="NoWorker", field="spec", message="it has no worker role")
    invalid = JobObserved(kind="TrainingJob", api_version="v1", generation=2, version=9, problems=(wrong,))
    given(*a_created_job(workers=2), secret(), invalid).then_nothing(scheduler)


def test_a_job_that_is_suspended_from_the_start_has_no_slots():
    given(observed(a_spec(2, suspend=True)), JobCreated(reason="TrainingJobCreated")).then(scheduler, CREATE_SECRET)


def test_only_what_was_not_seen_is_made():
    given(*a_created_job(workers=2), service(), secret(), pods(worker(0))).then(scheduler, pod(1))


def test_the_launcher_waits_for_the_hosts_files():
    given(*a_ready_job(), service(), published(1, 0, 1)).then_nothing(scheduler)


def test_the_launcher_comes_when_the_hosts_files_are_seen():
    given(*a_ready_job(), service(), published(1, 0, 1), hosts_file(1)).then(
        scheduler, Record(SlotsAssigned(slots=(LAUNCHER_SLOT,), reason="WorkersReady"))
    )


def test_the_launcher_waits_for_a_worker_that_is_about_to_be_replaced():
    dead = pods(worker(1, version=40, phase="Failed"))
    story = [*a_ready_job(of_workers="Always"), service(), published(1, 0, 1), hosts_file(1), dead]
    steps = given(*story, published(2, 0), hosts_file(2)).steps(scheduler)
    assert Record(SlotsAssigned(slots=(LAUNCHER_SLOT,), reason="WorkersReady")) not in steps


def test_an_edit_that_came_between_decision_and_append_waits_its_turn():
    edited = [observed(a_spec(2)), JobCreated(reason="TrainingJobCreated"), observed(a_spec(3), generation=2)]
    job = given(*edited, SlotsAssigned(slots=(workers(0, 1),), reason="JobCreated")).job
    assert (job.scaling.size, [request.resize for request in job.scaling.requests.values()]) == (2, [3])


def test_accepted_workers_are_made_under_the_name_of_their_request():
    given(*a_running_job(workers=2), *scaling_out(2, 3)).then(
        scheduler, pod(2, "scaleout-request-1"), pod(3, "scaleout-request-1")
    )


def test_workers_given_back_are_deleted_by_uid():
    failed = ScaleFailed(request=Uid("request-1"), reason="DeadlineExceeded", released=(workers(2, 3),))
    given(*a_running_job(workers=2), *scaling_out(2, 3), pods(worker(2)), failed).then(
        scheduler, DeletePod("resnet-worker-2", Uid("pod-2"))
    )


def test_a_worker_that_vanished_is_not_made_again_under_never():
    given(*a_running_job(workers=2), PodsGone(uids=(Uid("pod-1"),))).then_nothing(scheduler)


def test_a_refusal_is_waited_out_and_then_probed_with_one_pod():
    refused = [
        *a_created_job(workers=3),
        service(),
        secret(),
        EffectRefused(effect="CreatePod", reason="QuotaExceeded"),
    ]
    given(*refused).then_nothing(scheduler)
    due = [*refused, TimePassed(anchor=len(refused), timer="BackOff:CreatePod")]
    given(*due).then(scheduler, pod(0))
    given(*due, pods(worker(0))).then(scheduler, pod(1), pod(2))


def test_a_name_that_is_held_keeps_no_other_pod_waiting_and_of_many_such_names_one_probes():
    held = EffectRefused(effect="CreatePod", reason="NameHeld", slots=(workers(0, 1),), message="resnet-worker-0 waits")
    story = [*a_created_job(workers=4), service(), secret(), held]
    given(*story).then(scheduler, pod(2), pod(3), pod(0))
    given(*story, pods(worker(2), worker(3), worker(0))).then(scheduler, pod(1))


def test_what_is_refused_for_good_is_not_tried_again():
    refused = EffectRefused(effect="CreatePod", reason="Invalid", permanent=True)
    given(*a_created_job(workers=2), service(), secret(), refused).then_nothing(scheduler)


def test_of_a_job_that_runs_what_was_refused_for_good_is_tried_again():
    refused = EffectRefused(effect="CreatePod", reason="Invalid", permanent=True)
    again = SlotsAssigned(slots=(workers(2),), replaces=(workers(1),), reason="WorkersReplaced")
    story = [*a_running_job(workers=2), PodsGone(uids=(Uid("pod-1"),)), again, refused]
    given(*story).then_nothing(scheduler)
    given(*story, TimePassed(anchor=len(story), timer="BackOff:CreatePod")).then(scheduler, pod(2))


def test_nothing_is_made_for_a_job_that_is_being_deleted():
    given(*a_created_job(workers=2), JobDeleting(version=9)).then_nothing(scheduler)


def test_nothing_is_done_while_the_history_cannot_be_trusted():
    broken = HistoryBroken(log="log-1", sequence=99, hash="ab", reason="BeyondTheEnd")
    given(*a_created_job(workers=2), broken).then_nothing(scheduler)


def test_a_place_that_is_given_up_ends_no_back_off_while_another_pod_is_missing():
    refused = [
        *a_created_job(workers=3),
        service(),
        secret(),
        EffectRefused(effect="CreatePod", reason="QuotaExceeded"),
    ]
    released = SlotsReleased(slots=(workers(2),), reason="Test")
    given(*refused, released).then_nothing(scheduler)
