"""Carrying a scale-in on: hosts files first, then release, then the pods."""

import msgspec
import pytest

from services.scaler.core.effects import CheckDrain, WriteHosts
from shared.frameworks.scale_requests import waiting_for
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import (
    DrainChecked,
    ScaleAccepted,
    ScaleCancelled,
    ScaleFailed,
    ScaleRejected,
    ScaleSucceeded,
    WorkersReleased,
)
from shared.job.events.scheduler import JobRestarted, SlotsAssigned
from shared.job.events.status import JobCreated, JobRestarting, JobRunning
from shared.job.events.watcher import JobAdopted, PodsGone, ScaleRequestGone, TimePassed
from shared.job.evolve_attempts import ANOTHER_OPERATOR
from shared.job.naming import Uid
from shared.job.spec import LAUNCHER, WORKER, Elasticity
from shared.job.steps import Record
from shared.job.views import Member, PodView, Slots
from tests.kit.builders import (
    R1,
    R2,
    a_created_job,
    a_running_job,
    a_spec,
    exited,
    hosts_file,
    launcher,
    observed,
    pods,
    published,
    scale_in,
    scale_out,
    scaling_in,
    worker,
    workers,
)
from tests.kit.stories import given, scaler

replace = msgspec.structs.replace

BEFORE = [*a_running_job(workers=3), *scaling_in(2)]
ACCEPTED_AT = len(BEFORE) - 1
PUBLISHED = [*BEFORE, published(2, 0, 1, request=R1)]
SEEN = [*PUBLISHED, hosts_file(2), pods(launcher(version=30, hosts=2))]
RELEASED = [*SEEN, WorkersReleased(request=R1, slots=(workers(2),), reason="Drained")]
DEADLINE = TimePassed(anchor=ACCEPTED_AT, timer="ScalingDeadline")


def test_the_hosts_files_change_before_anything_else():
    given(*BEFORE).then(scaler, Record(published(2, 0, 1, request=R1)))


def test_no_worker_is_released_before_the_files_are_seen():
    given(*PUBLISHED).then(scaler, WriteHosts(2, (0, 1)))


def test_no_worker_is_released_before_the_drain_is_over():
    (look,) = given(*SEEN).steps(scaler)
    assert isinstance(look, CheckDrain), "how it goes on is the drain's story"


@pytest.mark.parametrize(
    "fact",
    [
        pytest.param(pods(worker(2, version=40, deleting=True)), id="the pod is deleted and has its grace period"),
        pytest.param(PodsGone(uids=(Uid("pod-2"),)), id="the pod is gone"),
    ],
)
def test_a_scale_in_succeeds_once_the_deletion_of_its_pods_is_seen(fact: AnyEvent):
    given(*RELEASED).then_nothing(scaler)
    given(*RELEASED, fact).then(scaler, Record(ScaleSucceeded(request=R1, reason="ScalingInSucceeded")))


def test_the_next_request_takes_no_worker_and_no_name_that_is_on_its_way_out():
    going = pods(worker(2, version=40, deleting=True))
    done = [*RELEASED, going, ScaleSucceeded(request=R1, reason="ScalingInSucceeded"), JobRunning(reason="Running")]
    leaving = (Member(1, Uid("pod-1")),)
    given(*done, scale_in(1, request=R2)).then(
        scaler, Record(ScaleAccepted(request=R2, kind="ScaleIn", leaving=leaving, deadline=60, drain=10))
    )
    given(*done, scale_out(1, request=R2)).then(
        scaler, Record(ScaleAccepted(request=R2, kind="ScaleOut", added=(workers(3),), deadline=60, drain=0))
    )


def test_the_deadline_ends_the_drain_and_says_so():
    given(*SEEN, DEADLINE).then(scaler, Record(WorkersReleased(request=R1, slots=(workers(2),), reason="DrainForced")))


def test_the_deadline_ends_the_wait_for_deletions_that_are_not_accepted_and_says_what_remains():
    left = "the workers have left and will be deleted: 3 -> 2 workers"
    given(*RELEASED, DEADLINE).then(scaler, Record(ScaleFailed(request=R1, reason="WorkersNotGone", remains=left)))


def test_files_that_are_not_seen_in_time_fail_the_request_and_release_no_worker():
    left = "the workers have left and will be deleted: 3 -> 2 workers"
    failed = ScaleFailed(request=R1, reason="HostsNotWritten", remains=left)
    given(*PUBLISHED, DEADLINE).then_among_others(scaler, Record(failed))


def test_a_request_that_waits_for_the_workers_of_one_that_failed_says_so():
    failed = ScaleFailed(request=R1, reason="HostsNotWritten")
    job = given(*PUBLISHED, DEADLINE, failed, JobRunning(reason="TrainingJobRunning"), scale_out(1, request=R2)).job
    assert waiting_for(job, job.scaling.requests[R2]) == "AnotherRequestRuns"


def test_files_that_come_late_release_the_workers_all_the_same():
    late = [*PUBLISHED, DEADLINE, ScaleFailed(request=R1, reason="HostsNotWritten")]
    given(*late).then(scaler, WriteHosts(2, (0, 1)))
    given(*late, hosts_file(2), pods(launcher(version=30, hosts=2))).then(
        scaler, Record(WorkersReleased(request=R1, slots=(workers(2),), reason="HostsWrittenLate"))
    )


def test_a_request_deleted_before_the_files_changed_changes_nothing():
    given(*BEFORE, ScaleRequestGone(uid=R1)).then(scaler, Record(ScaleCancelled(request=R1, reason="RequestDeleted")))


def test_a_request_deleted_after_the_files_changed_is_finished():
    given(*SEEN, ScaleRequestGone(uid=R1), DrainChecked(request=R1)).then(
        scaler, Record(WorkersReleased(request=R1, slots=(workers(2),), reason="Drained"))
    )


def test_a_victim_that_dies_by_itself_is_no_longer_waited_for():
    given(*RELEASED, pods(worker(2, version=40, phase="Failed")), PodsGone(uids=(Uid("pod-2"),))).then(
        scaler, Record(ScaleSucceeded(request=R1, reason="ScalingInSucceeded"))
    )


def test_a_late_file_takes_no_workers_of_another_attempt_that_only_have_the_same_names():
    # It ended before its workers were released, and the job began again: worker 2 is another one now.
    ended = [*SEEN, ScaleCancelled(request=R1, reason="JobRestarted")]
    again = [
        JobRestarting(reason="LauncherLost"),
        JobRestarted(attempt=1),
        SlotsAssigned(slots=(Slots(1, WORKER, ((0, 3),)),)),
        JobRunning(reason="TrainingJobRunning"),
    ]
    late = [
        *scaling_in(3, request=R2),
        published(3, 0, 1, 2, request=R2),
        hosts_file(3),
        ScaleFailed(request=R2, reason="HostsNotWritten"),
    ]
    going = (Slots(1, WORKER, ((3, 3),)),)
    given(*ended, *again, *late).then_among_others(
        scaler, Record(WorkersReleased(request=R2, slots=going, reason="HostsWrittenLate"))
    )


def adopted(*there: PodView) -> list[AnyEvent]:
    """A job that another operator began and that trains; none of its workers was Ready when it was taken over."""
    slots = (Slots(0, WORKER, ((0, 2),)), Slots(0, LAUNCHER, ((0, 0),)))
    return [
        observed(a_spec(workers=3)),
        pods(launcher(hosts=0), *there),
        JobAdopted(source=ANOTHER_OPERATOR, slots=slots, next_index=3),
        JobCreated(reason="TrainingJobCreated"),
        JobRunning(reason="TrainingJobRunning"),
    ]


def test_a_launcher_that_trains_never_gets_hosts_files_without_members():
    blinking = [worker(index, ready=False) for index in range(3)]
    story = [*adopted(*blinking), *scaling_in(2)]
    given(*story).then_nothing(scaler)
    ready = pods(*(worker(index, version=40) for index in range(3)))
    first, *_ = given(*story, ready).steps(scaler)
    assert first == Record(published(1, 0, 1, 2)), "first the members as they are, then without the one that leaves"


def test_those_that_train_by_capacity_stay_enough_also_when_one_is_lost_meanwhile():
    story = [*a_running_job(workers=3, least=2, elasticity=Elasticity()), *scaling_in(2)]
    lost = pods(worker(1, version=30, phase="Failed", exits=exited(1)))
    given(*story, lost).then(scaler, Record(published(2, 0, 2)))


def test_workers_that_wait_for_room_count_for_no_minimum_of_those_that_train():
    room = Elasticity(settle_seconds=0)
    waits = [worker(index, phase="Pending", reason="Unschedulable") for index in (2, 3)]
    story = [
        *a_created_job(workers=4, least=2, elasticity=room),
        pods(worker(0), worker(1), *waits),
        published(1, 0, 1),
        hosts_file(1),
        SlotsAssigned(slots=(Slots(0, LAUNCHER, ((0, 0),)),), reason="WorkersReady"),
        pods(launcher()),
        JobRunning(reason="TrainingJobRunning"),
    ]
    why = "1 worker would be fewer than minReplicas (2)"
    given(*story, scale_in(names=("resnet-worker-1",))).then(
        scaler, Record(ScaleRejected(request=R1, reason="BelowMinimum", message=why))
    )


def test_of_a_job_by_capacity_those_leave_first_that_wait_for_room():
    story = [
        *a_created_job(workers=3, least=1, elasticity=Elasticity(settle_seconds=0)),
        pods(worker(0), worker(2), worker(1, phase="Pending", reason="Unschedulable")),
        published(1, 0, 2),
        hosts_file(1),
        SlotsAssigned(slots=(Slots(0, LAUNCHER, ((0, 0),)),), reason="WorkersReady"),
        pods(launcher()),
        JobRunning(reason="TrainingJobRunning"),
    ]
    accepted = ScaleAccepted(request=R1, kind="ScaleIn", leaving=(Member(1, Uid("pod-1")),), deadline=60, drain=10)
    given(*story, scale_in(1)).then(scaler, Record(accepted))


def test_a_drain_takes_no_more_than_half_of_the_time_of_the_request():
    asked = scale_in(1)
    assert asked.spec is not None
    short = replace(asked, spec=replace(asked.spec, timeout_seconds=8))
    accepted = ScaleAccepted(request=R1, kind="ScaleIn", leaving=(Member(2, Uid("pod-2")),), deadline=8, drain=4)
    given(*a_running_job(workers=3), short).then(scaler, Record(accepted))
