"""Edits of the job's own number of workers: kubectl edit, kubectl scale, an autoscaler."""

import msgspec
import pytest

from services.scheduler.core.effects import DeletePod
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import (
    HostsPublished,
    ScaleAccepted,
    ScaleCancelled,
    ScaleFailed,
    ScaleRejected,
    ScaleSucceeded,
    WorkersReleased,
)
from shared.job.events.scheduler import JobRestarted, SlotsReleased
from shared.job.events.status import JobRestarting, JobRunning, JobScaling, JobSucceeded, JobSuspended, JobSuspending
from shared.job.events.watcher import JobObserved, PodsGone
from shared.job.naming import Uid
from shared.job.spec import LAUNCHER, OVER_BUDGET, WORKER, JobSpec, Problem, RestartPolicy
from shared.job.steps import Record, Step
from shared.job.views import Member, Slots
from tests.kit.builders import (
    R1,
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
    scale_in,
    scale_out,
    service,
    worker,
    workers,
)
from tests.kit.stories import given, scaler, scheduler
from tests.scheduler.test_queueing import admitted

replace = msgspec.structs.replace

E2, E3, E4 = Uid("replicas-2"), Uid("replicas-3"), Uid("replicas-4")


def sized(workers: int, *, generation: int = 2, least: int = 1, most: int | None = None, **spec: object) -> JobObserved:
    """The job's resource with so many replicas."""
    return observed(replace(a_spec(workers, least=least, most=most), **spec), generation=generation)  # type: ignore[arg-type]


def grows(*indices: int, request: Uid = E2, deadline: int = 600) -> Record:
    return Record(
        ScaleAccepted(request=request, kind="ScaleOut", added=(workers(*indices),), deadline=deadline, drain=0)
    )


def shrinks(*indices: int, request: Uid = E2, deadline: int = 600) -> Record:
    leaving = tuple(Member(index, Uid(f"pod-{index}")) for index in indices)
    return Record(ScaleAccepted(request=request, kind="ScaleIn", leaving=leaving, deadline=deadline, drain=10))


def done(request: Uid = E2) -> Record:
    return Record(ScaleSucceeded(request=request, reason="AlreadyThatSize"))


def growing() -> list[AnyEvent]:
    """From two to four by an edit: accepted, and all is there but the files."""
    accepted = grows(2, 3).event
    return [*a_running_job(workers=2), sized(4), accepted, JobScaling(reason="ScalingStart")]


@pytest.mark.parametrize(
    ("edit", "step"),
    [
        pytest.param(sized(4), grows(2, 3), id="more"),
        pytest.param(sized(1), shrinks(1), id="fewer"),
        pytest.param(sized(4, scheduling_timeout_seconds=30), grows(2, 3, deadline=30), id="in their own time"),
    ],
)
def test_an_edit_is_carried_out_without_any_request(edit: JobObserved, step: Step):
    given(*a_running_job(workers=2), edit).then(scaler, step)


def test_an_edit_of_something_else_changes_no_size():
    given(*a_running_job(workers=2), sized(2, backoff_limit=3)).then_nothing(scaler)
    assert not given(*a_running_job(workers=2), sized(2, least=1, most=5)).job.scaling.requests


def test_an_edit_that_was_seen_twice_is_one():
    story = given(*a_running_job(workers=2), sized(4), sized(4), sized(4))
    assert list(story.job.scaling.requests) == [E2]


def test_an_edit_waits_its_turn():
    given(*a_running_job(workers=3), scale_in(1), sized(5)).then(
        scaler,
        Record(ScaleAccepted(request=R1, kind="ScaleIn", leaving=(Member(2, Uid("pod-2")),), deadline=60, drain=10)),
    )


def test_a_request_after_an_edit_waits_for_it():
    given(*a_running_job(workers=2), sized(3), scale_out(1)).then(scaler, grows(2))


def test_an_edit_waits_behind_a_request_that_is_over_budget():
    request = scale_out(1)
    over = replace(request, spec=None, problems=(Problem(reason=OVER_BUDGET),))
    waiting = [*a_running_job(workers=2), over, sized(5)]
    given(*waiting).then_nothing(scaler)
    given(*waiting, request).then(scaler, grows(2, request=R1, deadline=60))


def test_only_the_newest_of_the_edits_that_wait_counts():
    story = given(*a_running_job(workers=2), sized(4), sized(6, generation=3), sized(3, generation=4))
    assert list(story.job.scaling.requests) == [E4]
    story.then(scaler, grows(2, request=E4))


def test_an_edit_that_was_taken_back_comes_to_nothing():
    given(*a_running_job(workers=2), sized(4), sized(2, generation=3)).then(scaler, done(E3))


def test_an_edit_during_another_one_comes_after_it():
    story = [*growing(), sized(2, generation=3)]
    assert list(given(*story).job.scaling.requests) == [E2, E3]
    rest = [
        pods(worker(2), worker(3)),
        published(2, 0, 1, 2, 3, request=E2),
        hosts_file(2),
        pods(launcher(version=30, hosts=2)),
        ScaleSucceeded(request=E2, reason="ScalingOutSucceeded"),
        JobRunning(reason="TrainingJobRunning"),
    ]
    given(*story, *rest).then(scaler, shrinks(3, 2, request=E3))


OVERTAKEN = ScaleCancelled(request=E2, reason="Overtaken", released=(workers(2, 3),))


def test_an_edit_for_which_there_is_no_room_ends_when_a_smaller_size_is_asked_for():
    """A person who typed a number too large needs not wait until it fails."""
    smaller = [*growing(), pods(worker(2, phase="Pending", reason="Unschedulable")), sized(3, generation=3)]
    given(*smaller).then(scaler, Record(OVERTAKEN))
    given(*smaller, OVERTAKEN, JobRunning(reason="TrainingJobRunning")).then(scaler, grows(4, request=E3))
    back = [*growing(), sized(2, generation=3), OVERTAKEN, JobRunning(reason="TrainingJobRunning")]
    given(*back).then(scaler, done(E3))


def test_an_edit_of_a_restored_store_leaves_an_older_one_of_its_generation_its_workers():
    """Its generations are counted again from the backup, while the edit of that number is under way."""
    restored = [replace(sized(2, generation=1), epoch=1), replace(sized(3), epoch=1)]
    story = [*growing(), *restored]
    cancelled = replace(OVERTAKEN, because=0)
    given(*story).then(scaler, Record(cancelled))
    after = given(*story, cancelled, JobRunning(reason="TrainingJobRunning"))
    assert [slot.index for slot in after.job.attempt.workers] == [0, 1]
    (grown,) = after.steps(scaler)
    assert isinstance(grown, Record)
    assert isinstance(grown.event, ScaleAccepted)
    assert grown.event.added == (workers(4),)


@pytest.mark.parametrize(
    "then",
    [
        pytest.param([sized(6, generation=3)], id="a larger size"),
        pytest.param([scale_in(1)], id="a request of another kind"),
        pytest.param([published(2, 0, 1, 2, 3, request=E2), sized(2, generation=3)], id="the files list its workers"),
        pytest.param([sized(1, generation=3, least=2)], id="a smaller size that is below the minimum"),
    ],
)
def test_otherwise_an_edit_is_carried_out_to_its_end(then: list[AnyEvent]):
    steps = given(*growing(), *then).steps(scaler)
    assert not [step for step in steps if isinstance(step, Record) and isinstance(step.event, ScaleCancelled)]


@pytest.mark.parametrize(
    "edits",
    [
        pytest.param([sized(4)], id="an edit that waits"),
        pytest.param([*growing()[-3:]], id="one that is carried out"),
        pytest.param([*growing()[-3:], sized(3, generation=3), sized(4, generation=4)], id="the newest of several"),
        pytest.param([*growing()[-3:], sized(4, generation=3, suspend=True)], id="one before the wish for a pause"),
    ],
)
def test_a_pause_keeps_the_size_that_an_edit_asked_for(edits: list[AnyEvent]):
    story = [*a_running_job(workers=2), *edits, JobSuspending(reason="TrainingJobSuspending")]
    cancelled = [step.event for step in given(*story).steps(scaler) if isinstance(step, Record)]
    job = given(*story, *cancelled).job
    assert job.scaling.size == 4
    assert all(known.over for known in job.scaling.requests.values())


def test_an_edit_during_a_pause_holds_though_an_older_one_is_cancelled():
    story = [*growing(), JobSuspending(reason="TrainingJobSuspending"), sized(3, generation=3, suspend=True)]
    cancelled = ScaleCancelled(request=E2, reason="JobSuspended", released=(workers(2, 3),))
    given(*story).then(scaler, Record(cancelled))
    assert given(*story, cancelled).job.scaling.size == 3


@pytest.mark.parametrize(
    ("edit", "reason", "words"),
    [
        pytest.param(
            sized(5, most=4), "AboveMaximum", "5 workers would be more than maxReplicas (4)", id="beyond the maximum"
        ),
        pytest.param(
            sized(1, least=2), "BelowMinimum", "1 worker would be fewer than minReplicas (2)", id="below the minimum"
        ),
    ],
)
def test_beyond_the_bounds_nothing_is_touched(edit: JobObserved, reason: str, words: str):
    story = [*a_running_job(workers=3), edit]
    rejected = ScaleRejected(request=E2, reason=reason, message=words)
    given(*story).then(scaler, Record(rejected))
    job = given(*story, rejected).job
    told = next(known for known in job.status.conditions if known.type == "ScaleFailed")
    assert told.message == f"ScaleOut replicas-2: {reason}: {words}", "no object but the job can say it"
    assert job.scaling.size == 3


def with_policy(policy: RestartPolicy) -> list[AnyEvent]:
    """A job of three that replaces workers by this policy, and lost one; the hosts files say so."""
    first, *rest = a_running_job(workers=3)
    assert isinstance(first, JobObserved)
    files = [published(2, 0, 1), hosts_file(2), pods(launcher(version=30, hosts=2))]
    return [edit_of(first, policy), *rest, PodsGone(uids=(Uid("pod-2"),)), *files]


def policed(spec: JobSpec, policy: RestartPolicy) -> JobSpec:
    first, second = spec.roles
    return replace(spec, roles=(first, replace(second, restart_policy=policy)))


@pytest.mark.parametrize(
    ("policy", "size", "step"),
    [
        pytest.param("Never", 4, grows(3, 4), id="the lost one comes too"),
        pytest.param("Always", 4, grows(3), id="the lost one is replaced anyhow"),
        pytest.param("Never", 2, done(), id="as many as are left"),
        pytest.param("Always", 2, done(), id="as many as are left, and no more are made"),
        pytest.param("Always", 1, shrinks(1), id="fewer than are left"),
    ],
)
def test_what_was_lost_counts(policy: RestartPolicy, size: int, step: Step):
    given(*with_policy(policy), edit_of(sized(size), policy)).then(scaler, step)


def edit_of(edit: JobObserved, policy: RestartPolicy) -> JobObserved:
    assert edit.spec is not None
    return replace(edit, spec=policed(edit.spec, policy))


def test_as_many_as_are_left_is_the_size_from_then_on():
    done_ = ScaleSucceeded(request=E2, reason="AlreadyThatSize")
    story = given(*with_policy("Always"), edit_of(sized(2), "Always"), done_)
    assert story.job.scaling.size == 2
    assert not any(isinstance(step, Record) for step in story.steps(scheduler)), "no worker is replaced"


def test_the_size_follows_when_the_files_do():
    story = growing()
    assert given(*story).job.scaling.size == 2
    assert given(*story, pods(worker(2), worker(3)), published(2, 0, 1, 2, 3, request=E2)).job.scaling.size == 4


def test_a_failed_edit_keeps_the_size_and_says_why():
    failed = ScaleFailed(request=E2, reason="DeadlineExceeded", released=(workers(2, 3),))
    job = given(*growing(), failed).job
    told = next(known for known in job.status.conditions if known.type == "ScaleFailed")
    assert (job.scaling.size, told.reason, told.message) == (
        2,
        "ScalingOutFailed",
        "ScaleOut replicas-2: DeadlineExceeded",
    )


def test_requests_change_the_size_by_what_they_bring_or_take():
    out = ScaleAccepted(request=R1, kind="ScaleOut", added=(workers(2, 3),), deadline=60, drain=0)
    begun = [*a_running_job(workers=2), scale_out(2), out]
    assert given(*begun).job.scaling.size == 2
    assert given(*begun, published(2, 0, 1, 2, 3, request=R1)).job.scaling.size == 4


# Where there are no workers there is nothing to scale: the job begins with the size that was asked for.


def first_slots(attempt: int, size: int) -> tuple[Slots, ...]:
    return (Slots(attempt, WORKER, ((0, size - 1),)),)


def begins_with(size: int, *story: AnyEvent) -> None:
    job = given(*story).job
    assert not job.scaling.requests
    (step,) = [step for step in given(*story).steps(scheduler) if isinstance(step, Record)]
    assert step.event.slots == first_slots(job.attempt.number, size)  # type: ignore[union-attr]


def all_gone() -> list[AnyEvent]:
    everything = (*first_slots(0, 2), Slots(0, LAUNCHER, ((0, 0),)))
    return [
        SlotsReleased(slots=everything, reason="JobRestarting"),
        PodsGone(uids=(Uid("pod-0"), Uid("pod-1"), Uid("pod-launcher"))),
    ]


def test_a_job_whose_slots_were_not_assigned_begins_with_the_new_size():
    taken_on = a_created_job(workers=2)[:-1]
    begins_with(5, *taken_on, sized(5))


def test_between_attempts_the_next_one_begins_with_the_new_size():
    between = [*a_running_job(workers=2), JobRestarting(reason="LauncherLost"), sized(5)]
    begins_with(5, *between, *all_gone(), JobRestarted(attempt=1))


def test_after_the_next_attempt_began_and_before_it_has_slots_too():
    begun = [*a_running_job(workers=2), JobRestarting(reason="LauncherLost"), *all_gone(), JobRestarted(attempt=1)]
    begins_with(5, *begun, sized(5))


def test_a_suspended_job_keeps_the_newest_size_for_its_return():
    paused = [*a_running_job(workers=2), sized(3), JobSuspended(reason="TrainingJobSuspended"), sized(7, generation=3)]
    job = given(*paused).job
    assert (job.scaling.size, dict(job.scaling.requests)) == (7, {})


def test_a_job_that_starts_grows_once_it_runs():
    starting = [*a_created_job(workers=2), sized(3)]
    given(*starting).then_nothing(scaler)
    rest = [service(), pods(worker(0), worker(1)), *a_running_job(workers=2)[5:]]
    given(*starting, *rest).then(scaler, grows(2))


def test_a_job_that_starts_gets_a_smaller_size_at_once_because_it_may_wait_for_room():
    starting = [*a_created_job(workers=3), pods(worker(0), worker(1, phase="Pending", reason="Unschedulable"))]
    released = WorkersReleased(request=E2, slots=(workers(1, 2),), reason="BeforeTheStart")
    given(*starting, sized(1)).then(scaler, Record(released))
    given(*starting, sized(1), released).then_among_others(scaler, done())
    job = given(*starting, sized(1), released, ScaleSucceeded(request=E2, reason="AlreadyThatSize")).job
    assert (job.scaling.size, job.attempt.vacancies, [slot.index for slot in job.attempt.workers]) == (1, {}, [0])
    given(*starting, sized(1), released).then_among_others(scheduler, DeletePod(worker(1).name, Uid("pod-1")))


@pytest.mark.parametrize(
    "then",
    [
        pytest.param([sized(1, least=2)], id="below its minimum"),
        pytest.param([published(1, 0, 1), sized(1)], id="its hosts files list them"),
        pytest.param([scale_in(1)], id="a request has its own time"),
    ],
)
def test_otherwise_a_smaller_size_waits_until_the_job_runs(then: list[AnyEvent]):
    steps = given(*a_ready_job(workers=2), *then).steps(scaler)
    assert not [step for step in steps if isinstance(step, Record) and not isinstance(step.event, HostsPublished)]


def test_a_size_for_which_a_queue_gave_quota_waits_until_the_job_runs_too():
    created = a_created_job(workers=3, queue="team-a")
    story = given(*created[:1], admitted(size=3), *created[1:], pods(worker(0)), sized(1, queue="team-a"))
    assert story.job.attempt.queued
    story.then_nothing(scaler)


def test_an_edit_of_a_finished_job_changes_nothing():
    over = [pods(launcher(version=30, phase="Succeeded", exits=exited(0))), JobSucceeded(reason="TrainingJobSucceeded")]
    assert not given(*a_running_job(), *over, sized(5)).job.scaling.requests


def test_an_edit_that_waited_until_the_end_ends_with_the_job_without_a_condition():
    over = [pods(launcher(version=30, phase="Succeeded", exits=exited(0))), JobSucceeded(reason="TrainingJobSucceeded")]
    story = [*a_running_job(), sized(5), *over]
    rejected = ScaleRejected(request=E2, reason="JobFinished")
    given(*story).then(scaler, Record(rejected))
    assert not any(known.type == "ScaleFailed" for known in given(*story, rejected).job.status.conditions)


def test_an_invalid_edit_leaves_the_size_as_it_is():
    problem = Problem(reason="AboveMaximum", field="spec.etReplicaSpecs.worker.replicas", message="set at most 8")
    refused = replace(sized(9), spec=None, problems=(problem,))
    assert not given(*a_running_job(workers=2), refused).job.scaling.requests
