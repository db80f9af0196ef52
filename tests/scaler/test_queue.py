"""The queue of scale requests: who is next, and what is refused."""

import pytest

from services.scaler.core.effects import OwnRequest
from shared.frameworks.scale_requests import waiting_for
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scaler import ScaleAccepted, ScaleCancelled, ScaleRejected
from shared.job.events.scheduler import JobRestarted, SlotsAssigned
from shared.job.events.status import JobRestarting, JobRunning, JobSucceeded, JobSuspending
from shared.job.events.watcher import JobDeleting, JobGone, ScaleRequested, ScaleRequestGone
from shared.job.naming import Uid
from shared.job.spec import WORKER, Problem
from shared.job.steps import Record
from shared.job.views import Member, Slots
from tests.kit.builders import (
    R1,
    R2,
    a_created_job,
    a_running_job,
    a_spec,
    exited,
    launcher,
    observed,
    pods,
    scale_in,
    scale_out,
    scaling_out,
    worker,
    workers,
)
from tests.kit.stories import given, scaler


def test_a_request_is_owned_before_it_is_judged():
    given(*a_running_job(), scale_out(2, owned=False)).then(scaler, OwnRequest("ScaleOut", f"scaleout-{R1}", R1))


def test_a_scale_out_takes_the_next_indices():
    given(*a_running_job(workers=2), scale_out(2)).then(
        scaler, Record(ScaleAccepted(request=R1, kind="ScaleOut", added=(workers(2, 3),), deadline=60, drain=0))
    )


def test_a_scale_in_takes_the_highest_indices():
    given(*a_running_job(workers=3), scale_in(2)).then(
        scaler,
        Record(
            ScaleAccepted(
                request=R1,
                kind="ScaleIn",
                leaving=(Member(2, Uid("pod-2")), Member(1, Uid("pod-1"))),
                deadline=60,
                drain=10,
            )
        ),
    )


def test_3_a_typo_in_pod_names_deletes_nothing():
    given(*a_running_job(workers=2), scale_in(names=("no-such-worker",))).then(
        scaler,
        Record(
            ScaleRejected(
                request=R1,
                reason="NoSuchWorker",
                message="podNames names no-such-worker, which is no worker of this job; its workers are 0-1",
            )
        ),
    )


def test_9_worker_names_are_compared_whole():
    given(*a_running_job(workers=12), scale_in(names=("resnet-worker-1",))).then(
        scaler,
        Record(ScaleAccepted(request=R1, kind="ScaleIn", leaving=(Member(1, Uid("pod-1")),), deadline=60, drain=10)),
    )


@pytest.mark.parametrize(
    ("request_", "reason", "told"),
    [
        pytest.param(
            scale_out(3), "AboveMaximum", "5 workers would be more than maxReplicas (4)", id="beyond the maximum"
        ),
        pytest.param(
            scale_in(2), "BelowMinimum", "0 workers would be fewer than minReplicas (1)", id="below the minimum"
        ),
        pytest.param(
            scale_in(99), "BelowMinimum", "0 workers would be fewer than minReplicas (1)", id="more than there are"
        ),
        pytest.param(
            scale_in(names=("resnet-launcher",)),
            "NoSuchWorker",
            "podNames names resnet-launcher, which is no worker of this job; its workers are 0-1",
            id="the launcher",
        ),
        pytest.param(
            scale_in(names=("resnet-worker-1", "other-worker-0")),
            "NoSuchWorker",
            "podNames names other-worker-0, which is no worker of this job; its workers are 0-1",
            id="another job's worker",
        ),
    ],
)
def test_7_beyond_the_bounds_nothing_is_touched(request_: ScaleRequested, reason: str, told: str):
    given(*a_running_job(workers=2, least=1, most=4), request_).then(
        scaler, Record(ScaleRejected(request=R1, reason=reason, message=told))
    )


def test_a_scale_out_of_a_job_below_its_minimum_is_accepted():
    lost = [pods(worker(index, version=40, phase="Failed", exits=exited(1))) for index in (1, 2)]
    given(*a_running_job(workers=3, least=3, most=4), *lost, scale_out(1)).then_among_others(
        scaler, Record(ScaleAccepted(request=R1, kind="ScaleOut", added=(workers(3),), deadline=60, drain=0))
    )


def test_a_scale_in_of_a_job_above_its_maximum_is_accepted():
    lowered = observed(a_spec(4, least=1, most=2), generation=2)
    given(*a_running_job(workers=4, least=1, most=4), lowered, scale_in(1)).then(
        scaler,
        Record(ScaleAccepted(request=R1, kind="ScaleIn", leaving=(Member(3, Uid("pod-3")),), deadline=60, drain=10)),
    )


def test_the_status_of_a_rejected_request_has_the_numbers():
    rejected = ScaleRejected(request=R1, reason="AboveMaximum", message="5 workers would be more than maxReplicas (4)")
    job = given(*a_running_job(workers=2, most=4), scale_out(3), rejected).job
    condition = job.scaling.requests[R1].conditions[-1]
    assert condition.message == "5 workers would be more than maxReplicas (4)"


def test_4_a_request_with_problems_is_rejected_with_the_first_reason():
    problem = Problem(reason="NothingToDelete", field="spec.toDelete", message="say count or podNames")
    request = ScaleRequested(kind="ScaleIn", name="in", uid=R1, owner=Uid("uid-1"), problems=(problem,))
    given(*a_running_job(), request).then(scaler, Record(ScaleRejected(request=R1, reason="NothingToDelete")))


def test_a_request_with_a_script_is_accepted_like_any_other():
    given(*a_running_job(workers=2), scale_out(1, script=True)).then(
        scaler, Record(ScaleAccepted(request=R1, kind="ScaleOut", added=(workers(2),), deadline=60, drain=0))
    )


def test_requests_run_oldest_first():
    given(*a_running_job(workers=3), scale_in(1, request=R1), scale_out(1, request=R2)).then(
        scaler,
        Record(ScaleAccepted(request=R1, kind="ScaleIn", leaving=(Member(2, Uid("pod-2")),), deadline=60, drain=10)),
    )


def test_one_request_at_a_time():
    given(*a_running_job(workers=2), *scaling_out(2, 3), scale_in(1, request=R2)).then_nothing(scaler)


def test_11_a_request_waits_for_its_job_to_run():
    given(*a_created_job(), scale_out(2)).then_nothing(scaler)


def test_a_request_for_a_finished_job_is_rejected():
    given(
        *a_running_job(),
        pods(launcher(version=30, phase="Succeeded", exits=exited(0))),
        JobSucceeded(reason="TrainingJobSucceeded"),
        scale_out(1),
    ).then(scaler, Record(ScaleRejected(request=R1, reason="JobFinished")))


def test_10_the_job_ends_during_a_scale_out_and_the_request_with_it():
    given(
        *a_running_job(workers=2),
        *scaling_out(2, 3),
        pods(launcher(version=30, phase="Succeeded", exits=exited(0))),
        JobSucceeded(reason="TrainingJobSucceeded"),
    ).then(scaler, Record(ScaleCancelled(request=R1, reason="JobFinished", released=(workers(2, 3),))))


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        pytest.param([JobSuspending(reason="TrainingJobSuspending")], "JobSuspended", id="a pause"),
        pytest.param([JobRestarting(reason="LauncherLost")], "JobRestarted", id="a new attempt is due"),
        pytest.param(
            [JobRestarting(reason="LauncherLost"), JobRestarted(attempt=1)], "JobRestarted", id="a new attempt"
        ),
        pytest.param(
            [
                JobRestarting(reason="LauncherLost"),
                JobRestarted(attempt=1),
                SlotsAssigned(slots=(Slots(1, WORKER, ((0, 1),)),)),
                JobRunning(reason="TrainingJobRunning"),
            ],
            "JobRestarted",
            id="a new attempt that runs already",
        ),
    ],
)
def test_what_interrupts_the_job_ends_the_request_that_was_under_way(between: list[AnyEvent], reason: str):
    given(*a_running_job(workers=2), *scaling_out(2, 3), *between).then_among_others(
        scaler, Record(ScaleCancelled(request=R1, reason=reason, released=(workers(2, 3),)))
    )


def test_a_worker_that_is_about_to_be_replaced_is_no_reason_to_let_go_of_more_than_there_may_be():
    failed = pods(worker(2, version=40, phase="Failed", exits=exited(1)))
    given(*a_running_job(workers=3, of_workers="OnFailure"), failed, scale_in(3)).then_among_others(
        scaler,
        Record(
            ScaleRejected(request=R1, reason="BelowMinimum", message="0 workers would be fewer than minReplicas (1)")
        ),
    )


def test_a_refusal_to_own_a_request_that_was_deleted_is_none_of_the_next_one():
    refused = EffectRefused(effect="OwnRequest", reason="Denied")
    story = [*a_running_job(), scale_out(1, owned=False), refused]
    given(*story).then_nothing(scaler)
    given(*story, ScaleRequestGone(uid=R1), scale_in(1, request=R2, owned=False)).then(
        scaler, OwnRequest("ScaleIn", f"scalein-{R2}", R2)
    )
    waits = [*story, scale_in(1, request=R2, owned=False), ScaleRequestGone(uid=R2)]
    given(*waits).then_nothing(scaler)


def test_a_request_that_waits_hears_no_more_from_a_job_that_is_gone():
    steps = given(*a_running_job(), scale_out(1), JobGone()).steps(scaler)
    assert not any(isinstance(step, Record) for step in steps)


def test_a_job_that_finalizers_keep_in_deletion_ends_the_request_that_was_under_way_and_says_so_to_those_that_wait():
    kept = JobDeleting(version=9, finalizers=("example.com/hold",))
    begun = [*a_running_job(workers=2), *scaling_out(2, 3)]
    cancelled = ScaleCancelled(request=R1, reason="JobDeleting", released=(workers(2, 3),))
    given(*begun, kept).then(scaler, Record(cancelled))
    story = given(*begun, kept, cancelled, scale_out(1, request=R2, owned=False))
    story.then_nothing(scaler)
    assert waiting_for(story.job, story.job.scaling.requests[R2]) == "JobDeleting"
