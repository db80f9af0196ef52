"""Carrying a scale-out on: pods, hosts files, success or roll-back."""

import msgspec
import pytest

from services.scaler.core.effects import NudgeLauncher, WriteHosts
from shared.job.events.event import EffectRefused
from shared.job.events.scaler import ScaleAccepted, ScaleCancelled, ScaleFailed, ScaleSucceeded
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobRunning, JobScaling
from shared.job.events.watcher import ScaleRequested, ScaleRequestGone, TimePassed
from shared.job.naming import Uid
from shared.job.spec import Elasticity
from shared.job.steps import Record
from shared.job.timing import next_due
from shared.job.views import PodView
from tests.kit.builders import (
    R1,
    R2,
    a_running_job,
    exited,
    hosts_file,
    launcher,
    pods,
    published,
    scale_out,
    scaling_out,
    worker,
    workers,
)
from tests.kit.stories import given, scaler, scheduler
from tests.scheduler.test_queueing import a_queued_job, admitted

replace = msgspec.structs.replace

BEFORE = [*a_running_job(workers=2), *scaling_out(2, 3)]
ALL_READY = [*BEFORE, pods(worker(2), worker(3))]
PUBLISHED = [*ALL_READY, published(2, 0, 1, 2, 3, request=R1)]
ACCEPTED_AT = len(BEFORE) - 1


def test_the_hosts_files_wait_for_all_new_workers():
    given(*BEFORE, pods(worker(2), worker(3, ready=False))).then_nothing(scaler)


def test_the_hosts_files_list_the_new_workers_once_all_are_ready():
    given(*ALL_READY).then(scaler, Record(published(2, 0, 1, 2, 3, request=R1)))


def test_what_is_published_is_written():
    given(*PUBLISHED).then(scaler, WriteHosts(2, (0, 1, 2, 3)))


def test_what_is_written_is_shown_to_the_launcher():
    given(*PUBLISHED, hosts_file(2)).then(scaler, NudgeLauncher("resnet-launcher", Uid("pod-launcher"), 2))


def test_it_succeeds_once_the_launcher_has_the_files():
    given(*PUBLISHED, hosts_file(2), pods(launcher(version=30, hosts=2))).then(
        scaler, Record(ScaleSucceeded(request=R1, reason="ScalingOutSucceeded"))
    )


@pytest.mark.parametrize(
    ("come", "words"),
    [
        pytest.param(
            [worker(2), worker(3, phase="Pending", ready=False, reason="Unschedulable", message="0/4 nodes")],
            "resnet-worker-3 was not Ready: Unschedulable: 0/4 nodes",
            id="one that found no node",
        ),
        pytest.param(
            [worker(2, phase="Pending", ready=False)], "resnet-worker-2 was not Ready, like 1 more: Pending", id="two"
        ),
        pytest.param([worker(2)], "resnet-worker-3 was not created", id="one without a pod"),
    ],
)
def test_past_its_deadline_all_new_workers_are_given_back_and_the_one_that_it_waited_for_is_named(
    come: list[PodView], words: str
):
    failed = too_late(words)
    given(*BEFORE, pods(*come), TimePassed(anchor=ACCEPTED_AT, timer="ScalingDeadline")).then(scaler, Record(failed))
    told = f"the timeout passed first; what was begun was taken back; {words}"
    job = given(*BEFORE, failed).job
    assert job.scaling.requests[R1].conditions[-1].message == told
    assert job.status.conditions[-1].message == f"ScaleOut scaleout-request-1: DeadlineExceeded: {told}"


def too_late(words: str) -> ScaleFailed:
    return ScaleFailed(request=R1, reason="DeadlineExceeded", released=(workers(2, 3),), awaited=words)


def test_what_is_refused_for_good_ends_the_request_at_once():
    refused = EffectRefused(effect="CreatePod", reason="Invalid", permanent=True)
    given(*BEFORE, refused).then(scaler, Record(ScaleFailed(request=R1, reason="Invalid", released=(workers(2, 3),))))


def test_what_was_refused_before_it_was_accepted_says_nothing_of_its_own_workers():
    refused = EffectRefused(effect="CreatePod", reason="Invalid", permanent=True)
    story = [*a_running_job(workers=2), refused, *scaling_out(2, 3)]
    given(*story).then_nothing(scaler)
    late = TimePassed(anchor=len(story) - 1, timer="ScalingDeadline")
    given(*story, late).then(scaler, Record(too_late("resnet-worker-2 was not created, like 1 more")))


def test_a_new_worker_that_ends_for_good_takes_the_others_back():
    before = [*a_running_job(workers=2), *scaling_out(2, 3, limit=0)]
    given(*before, pods(worker(2), worker(3, phase="Failed", exits=exited(1)))).then(
        scaler, Record(ScaleFailed(request=R1, reason="WorkerFailed", released=(workers(2, 3),)))
    )


def replaced(old: int, new: int) -> SlotsAssigned:
    return SlotsAssigned(slots=(workers(new),), replaces=(workers(old),), reason="WorkersReplaced")


def test_22_a_scale_out_replaces_workers_that_fail_so_often():
    story = [*a_running_job(workers=2), *scaling_out(2, 3, limit=2)]
    for failing, new in ((3, 4), (4, 5)):
        story.append(pods(worker(2), worker(failing, version=50 + failing, phase="Failed", exits=exited(1))))
        given(*story).then_nothing(scaler)
        story += [TimePassed(anchor=timer.anchor, timer=timer.name) for timer in next_due(given(*story).job)[1:]]
        given(*story).then(scheduler, Record(replaced(failing, new)))
        story.append(replaced(failing, new))
    ready = [*story, pods(worker(2), worker(5))]
    given(*ready).then(scaler, Record(published(2, 0, 1, 2, 5, request=R1)))
    story.append(pods(worker(2), worker(5, phase="Failed", exits=exited(1))))
    given(*story).then(scaler, Record(ScaleFailed(request=R1, reason="WorkerFailed", released=(workers(2, 5),))))
    assert given(*story).job.attempt.replaced == 0, "they count against the request's own limit"


def test_a_request_deleted_midway_is_rolled_back():
    given(*BEFORE, ScaleRequestGone(uid=R1)).then(
        scaler, Record(ScaleCancelled(request=R1, reason="RequestDeleted", released=(workers(2, 3),)))
    )


def test_a_request_deleted_after_the_hosts_files_changed_is_finished():
    given(*PUBLISHED, ScaleRequestGone(uid=R1), hosts_file(2), pods(launcher(version=30, hosts=2))).then(
        scaler, Record(ScaleSucceeded(request=R1, reason="ScalingOutSucceeded"))
    )


def test_files_that_are_not_seen_in_time_fail_the_request_and_keep_the_workers():
    given(*PUBLISHED, TimePassed(anchor=ACCEPTED_AT, timer="ScalingDeadline")).then_among_others(
        scaler, Record(ScaleFailed(request=R1, reason="HostsNotWritten"))
    )


def test_a_second_scale_out_after_a_failed_one_works_at_once():
    failed = ScaleFailed(request=R1, reason="DeadlineExceeded", released=(workers(2, 3),))
    given(*BEFORE, failed, JobRunning(reason="TrainingJobRunning"), scale_out(1, request=R2)).then(
        scaler, Record(ScaleAccepted(request=R2, kind="ScaleOut", added=(workers(4),), deadline=60, drain=0))
    )


def test_what_is_done_does_not_fail_because_status_is_late_to_say_that_it_began():
    begun = [event for event in PUBLISHED if not isinstance(event, JobScaling)]
    late = TimePassed(anchor=ACCEPTED_AT, timer="ScalingDeadline")
    done = [*begun, hosts_file(2), pods(launcher(version=30, hosts=2)), late]
    given(*done).then_nothing(scaler)
    given(*done, JobScaling(reason="ScalingStart")).then(
        scaler, Record(ScaleSucceeded(request=R1, reason="ScalingOutSucceeded"))
    )


def test_a_request_that_takes_a_part_waits_while_there_is_room_for_none_and_then_takes_those_that_came():
    asked, *accepted = scaling_out(2, 3)
    assert isinstance(asked, ScaleRequested)
    assert asked.spec is not None
    asked = replace(asked, spec=replace(asked.spec, partial=True))
    waits = pods(*(worker(index, phase="Pending", ready=False, reason="Unschedulable") for index in (2, 3)))
    story = [*a_running_job(), asked, *accepted, waits]
    given(*story).then_nothing(scaler)
    given(*story, pods(worker(2, version=20))).then(scaler, Record(published(2, 0, 1, 2, request=R1)))


def test_a_job_by_capacity_grows_as_soon_as_its_queue_admits_one_of_several():
    story = a_queued_job(2, elasticity=Elasticity())
    given(*story, scale_out(2)).then_nothing(scaler)
    accepted = ScaleAccepted(request=R1, kind="ScaleOut", added=(workers(2, 3),), deadline=60, drain=0)
    more = admitted(size=3, version=60, ready=True)
    given(*story, scale_out(2), more).then(scaler, Record(accepted))
