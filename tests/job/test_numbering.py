"""Which index a new worker gets."""

from shared.job.events.scaler import ScaleCancelled, ScaleFailed, ScaleSucceeded, WorkersReleased
from shared.job.events.scheduler import JobRestarted, SlotsAssigned, SlotsReleased
from shared.job.events.status import JobRestarting
from shared.job.events.watcher import PodsGone
from shared.job.naming import Uid
from shared.job.policies.replacement import new_workers
from shared.job.spec import WORKER
from shared.job.views import Slots
from tests.kit.builders import (
    R1,
    R2,
    a_running_job,
    exited,
    hosts_file,
    pods,
    published,
    scaling_in,
    scaling_out,
    worker,
    workers,
)
from tests.kit.stories import given

LEFT = [
    *a_running_job(workers=2),
    *scaling_in(1),
    published(2, 0, request=R1),
    hosts_file(2),
    WorkersReleased(request=R1, slots=(workers(1),), reason="ScaleIn"),
]
"""A worker left by a scale-in; its pod is still there."""

GONE = [*LEFT, PodsGone(uids=(Uid("pod-1"),)), ScaleSucceeded(request=R1, reason="ScalingInSucceeded")]


def first_new(*events: object) -> int:
    return new_workers(given(*events).job, 1).ranges[0][0]


def test_a_name_comes_again_after_a_scale_in():
    assert new_workers(given(*GONE).job, 2) == workers(1, 2)


def test_a_name_does_not_come_again_while_its_pod_is_there():
    assert first_new(*LEFT) == 2


def test_a_new_worker_comes_after_the_highest_that_is_there():
    gap = [
        *a_running_job(workers=3),
        *scaling_in(1),
        published(2, 0, 2, request=R1),
        hosts_file(2),
        WorkersReleased(request=R1, slots=(workers(1),), reason="ScaleIn"),
        PodsGone(uids=(Uid("pod-1"),)),
    ]
    assert first_new(*gap) == 3


def test_workers_that_were_never_listed_give_their_names_back():
    failed = ScaleFailed(request=R1, reason="DeadlineExceeded", released=(workers(2, 3),))
    story = [*a_running_job(workers=2), *scaling_out(2, 3)]
    assert first_new(*story) == 4
    gone = PodsGone(uids=(Uid("pod-2"), Uid("pod-3")))
    assert first_new(*story, pods(worker(2), worker(3)), failed) == 4
    assert first_new(*story, pods(worker(2), worker(3)), failed, gone) == 2
    assert first_new(*story, failed) == 4, "their pods may still come"


def test_the_name_of_a_worker_that_failed_does_not_come_again_in_the_attempt():
    failed = [*a_running_job(workers=2), pods(worker(1, version=30, phase="Failed", exits=exited(1)))]
    assert first_new(*failed) == 2
    replaced = [
        *failed,
        SlotsAssigned(slots=(workers(2),), replaces=(workers(1),), reason="WorkersReplaced"),
        SlotsReleased(slots=(workers(1), workers(2)), reason="WorkersReplaced"),
        PodsGone(uids=(Uid("pod-1"),)),
    ]
    assert first_new(*replaced) == 3, "worker-1 failed, and the pod of worker-2 may still come"


def test_the_name_of_a_worker_that_lost_its_node_does_not_come_again_in_the_attempt():
    evicted = [
        *a_running_job(workers=2),
        WorkersReleased(request=Uid(""), slots=(workers(1),), reason="Disrupted"),
        PodsGone(uids=(Uid("pod-1"),)),
    ]
    assert first_new(*evicted) == 2


def test_a_name_that_comes_again_is_unseen_again():
    again = [*GONE, *scaling_out(1, request=R2)]
    failed = ScaleFailed(request=R2, reason="DeadlineExceeded", released=(workers(1),))
    assert first_new(*again, failed) == 2, "its pod may still come"


def test_the_end_of_a_request_of_an_earlier_attempt_takes_no_name_from_this_one():
    restarted = [
        *a_running_job(workers=2),
        *scaling_out(2, 3),
        JobRestarting(reason="TrainingJobFailed"),
        SlotsReleased(slots=(workers(0, 1, 2, 3),), reason="JobRestarting"),
        JobRestarted(attempt=1),
        ScaleCancelled(request=R1, reason="JobRestarted", released=(workers(2, 3),)),
        SlotsAssigned(slots=(Slots(1, WORKER, ((0, 1),)),), reason="JobRestarted"),
    ]
    assert first_new(*restarted) == 2
