"""The size that requests lead to is written into the resource, where the next wish begins."""

import pytest

from services.scaler.core.effects import WriteSize
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scaler import ScaleAccepted, ScaleFailed, ScaleSucceeded, WorkersReleased
from shared.job.events.status import JobRunning, JobSucceeded, JobSuspended, JobSuspending
from shared.job.events.watcher import JobObserved, PodsGone, TimePassed
from shared.job.naming import Uid
from shared.job.state import least_workers
from shared.job.steps import Record
from shared.job.views import Actor, Member
from tests.kit.builders import (
    R1,
    R2,
    a_running_job,
    a_spec,
    hosts_file,
    launcher,
    pods,
    published,
    scale_in,
    scale_out,
    scaling_in,
    scaling_out,
    worker,
    workers,
)
from tests.kit.stories import given, scaler

MUSTER, PERSON = Actor("muster", "Update", "scale"), Actor("kubectl", "Update", "scale")
SUCCEEDED = ScaleSucceeded(request=R1, reason="ScalingOutSucceeded")
RUNNING = JobRunning(reason="TrainingJobRunning")


def sized(size: int, *by: Actor, generation: int = 2, least: int = 1, follows: bool = False) -> JobObserved:
    spec = a_spec(size, least=least, follows=follows, written=True)
    return JobObserved(
        kind="TrainingJob",
        api_version="kai.alibabacloud.com/v1alpha1",
        generation=generation,
        version=generation,
        spec=spec,
        by=by,
    )


def grown(least: int = 1, *, follows: bool = False) -> list[AnyEvent]:
    """From two workers to four: the launcher has the files."""
    return [
        *a_running_job(workers=2, least=least, follows=follows, written=True),
        *scaling_out(2, 3),
        pods(worker(2), worker(3)),
        published(2, 0, 1, 2, 3, request=R1),
        hosts_file(2),
        pods(launcher(version=30, hosts=2)),
    ]


def test_the_size_of_a_scale_out_is_in_the_resource_before_it_succeeds():
    given(*grown()).then(scaler, WriteSize(4, 1))
    given(*grown(), sized(4, MUSTER)).then(scaler, Record(SUCCEEDED))


def test_the_size_of_a_scale_in_is_in_the_resource_before_it_succeeds():
    shrunk = [*a_running_job(workers=3, written=True), *scaling_in(2), published(2, 0, 1, request=R1)]
    given(*shrunk).then_among_others(scaler, WriteSize(2, 1))


def test_a_size_that_is_written_back_is_no_new_wish():
    done = [*grown(), sized(4, MUSTER), SUCCEEDED, RUNNING]
    given(*done).then_nothing(scaler)
    assert [*given(*done).job.scaling.requests] == [R1]


def test_the_former_number_is_a_wish_again():
    leaving = (Member(3, Uid("pod-3")), Member(2, Uid("pod-2")))
    shrinks = ScaleAccepted(request=Uid("replicas-3"), kind="ScaleIn", leaving=leaving, deadline=600, drain=10)
    done = [*grown(), sized(4, MUSTER), SUCCEEDED, RUNNING]
    given(*done, sized(2, PERSON, generation=3)).then(scaler, Record(shrinks))


def test_the_edit_of_a_person_comes_before_the_size_of_a_request():
    story = [*grown(), sized(5, PERSON)]
    given(*story).then(scaler, Record(SUCCEEDED))
    grows = ScaleAccepted(request=Uid("replicas-2"), kind="ScaleOut", added=(workers(4),), deadline=600, drain=0)
    given(*story, SUCCEEDED, RUNNING).then(scaler, Record(grows))


def test_an_edit_that_failed_is_taken_back_so_that_it_can_be_made_again():
    edit = ScaleAccepted(request=Uid("replicas-2"), kind="ScaleOut", added=(workers(2, 3),), deadline=600)
    failed = ScaleFailed(request=Uid("replicas-2"), reason="DeadlineExceeded", released=(workers(2, 3),))
    begun = a_running_job(workers=2, least=2, follows=True, written=True)
    story = [*begun, sized(4, PERSON, least=4, follows=True), edit, failed]
    given(*story).then(scaler, WriteSize(2, 2))
    back = given(*story, sized(2, MUSTER, generation=3, least=2, follows=True))
    assert least_workers(back.job) == 2
    assert [*back.job.scaling.requests] == ["replicas-2"]


def test_the_next_request_waits_for_the_size_of_the_last_one():
    failed = [*grown(), ScaleFailed(request=R1, reason="ScriptFailed"), RUNNING, scale_out(1, request=R2)]
    given(*failed).then(scaler, WriteSize(4, 1))
    accepted = ScaleAccepted(request=R2, kind="ScaleOut", added=(workers(4),), deadline=60, drain=0)
    given(*failed, sized(4, MUSTER)).then(scaler, Record(accepted))


def test_the_same_number_by_a_person_is_a_wish_that_comes_after_the_requests_that_wait():
    failed = [*grown(), ScaleFailed(request=R1, reason="ScriptFailed"), RUNNING, scale_out(1, request=R2)]
    assert [*given(*failed, sized(4, PERSON)).job.scaling.requests] == [R1, R2, "replicas-2"]


def test_a_size_that_cannot_be_written_holds_up_no_request():
    refused = EffectRefused(effect="WriteSize", reason="Forbidden")
    given(*grown(), refused).then(scaler, Record(SUCCEEDED))


def test_a_request_does_not_wait_beyond_its_deadline():
    accepted_at = len(a_running_job(workers=2)) + 2
    late = TimePassed(anchor=accepted_at, timer="ScalingDeadline")
    given(*grown(), late).then(scaler, Record(SUCCEEDED), WriteSize(4, 1))


def test_nor_does_a_scale_in_whose_workers_are_gone():
    begun = [*a_running_job(workers=3, written=True), *scaling_in(2)]
    gone = [
        published(2, 0, 1, request=R1),
        hosts_file(2),
        pods(launcher(version=30, hosts=2)),
        WorkersReleased(request=R1, slots=(workers(2),), reason="Drained"),
        PodsGone(uids=(Uid("pod-2"),)),
    ]
    given(*begun, *gone).then(scaler, WriteSize(2, 1))
    late = TimePassed(anchor=len(begun) - 1, timer="ScalingDeadline")
    succeeded = ScaleSucceeded(request=R1, reason="ScalingInSucceeded")
    given(*begun, *gone, late).then(scaler, Record(succeeded), WriteSize(2, 1))


@pytest.mark.parametrize(
    "more",
    [
        pytest.param([JobSucceeded(reason="TrainingJobSucceeded")], id="the job is over"),
        pytest.param([sized(4, MUSTER)], id="the resource has it"),
        pytest.param([sized(1, PERSON)], id="a person wants another one"),
        pytest.param([sized(2, PERSON, least=5)], id="it is out of the bounds of an edit"),
    ],
)
def test_no_size_is_written_where_the_resource_says_what_counts(more: list[AnyEvent]):
    written = [step for step in given(*grown(), *more).steps(scaler) if isinstance(step, WriteSize)]
    assert written == []


def test_a_job_of_a_kind_without_requests_keeps_its_own_number():
    story = [*a_running_job(workers=2), *grown()[len(a_running_job(workers=2)) :]]
    given(*story).then(scaler, Record(SUCCEEDED))


def test_a_job_that_was_suspended_meanwhile_gets_its_size_too():
    paused = [JobSuspending(reason="JobSuspended"), ScaleFailed(request=R1, reason="JobSuspended")]
    given(*grown(), *paused, JobSuspended(reason="JobSuspended")).then_among_others(scaler, WriteSize(4, 1))


def test_a_size_that_is_written_back_moves_no_minimum():
    events = [*grown(2, follows=True), sized(4, MUSTER, least=4, follows=True), SUCCEEDED, RUNNING]
    assert least_workers(given(*events).job) == 2
    leaving = (Member(3, Uid("pod-3")), Member(2, Uid("pod-2")))
    shrinks = ScaleAccepted(request=R2, kind="ScaleIn", leaving=leaving, deadline=60, drain=10)
    given(*events, scale_in(2, request=R2)).then(scaler, Record(shrinks))


def test_an_edit_moves_the_minimum_of_a_job_that_names_none():
    story = [*grown(2, follows=True), sized(4, MUSTER, least=4, follows=True), SUCCEEDED, RUNNING]
    assert least_workers(given(*story, sized(6, PERSON, generation=3, least=6, follows=True)).job) == 6
    assert least_workers(given(*story, sized(4, PERSON, generation=3, least=1)).job) == 1
