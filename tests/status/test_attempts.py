"""When another attempt follows a failed one, and what a person may ask for: a restart, a pause, its end."""

import msgspec
import pytest

from services.status.core import decide
from shared.job.conditions import Condition
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scaler import ScaleSucceeded, WorkersReleased
from shared.job.events.scheduler import JobRestarted, SlotsAssigned, SlotsReleased
from shared.job.events.status import (
    Decision,
    JobCreated,
    JobFailed,
    JobRestarting,
    JobRunning,
    JobSucceeded,
    JobSuspended,
    JobSuspending,
)
from shared.job.events.watcher import DisruptionNoticed, LauncherLost, PodsGone, TimePassed
from shared.job.naming import Uid
from shared.job.policies.retries import restart_delay
from shared.job.spec import LAUNCHER, UNLIMITED, WORKER, RestartPolicy
from shared.job.timing import next_due
from shared.job.views import PodView, Slots
from shared.job.waiting import conditions
from tests.kit.builders import (
    R1,
    a_created_job,
    a_running_job,
    a_spec,
    exited,
    hosts_file,
    launcher,
    observed,
    pods,
    published,
    scaling_out,
    worker,
    workers,
)
from tests.kit.stories import given


def failed(code: int = 1) -> PodView:
    return launcher(version=30, phase="Failed", exits=exited(code))


def shown(*story: AnyEvent) -> tuple[Condition, ...]:
    return conditions(given(*story).job, milestones=True)


def next_phase(*story: AnyEvent) -> AnyEvent | None:
    step = decide.next_phase(given(*story).job)
    return step.event if step is not None else None


def ran_out(name: str, *story: AnyEvent) -> TimePassed:
    """The timer of that name that runs after this story."""
    timer = next(timer for timer in next_due(given(*story).job) if timer.name == name)
    return TimePassed(anchor=timer.anchor, timer=name)


@pytest.mark.parametrize(
    ("job", "of_launcher", "code", "again"),
    [
        pytest.param("Never", "Never", 1, False, id="no policy asks for it"),
        pytest.param("OnFailure", "Never", 1, True, id="the job's policy"),
        pytest.param("Never", "OnFailure", 1, True, id="the launcher's policy"),
        pytest.param("Never", "ExitCode", 137, True, id="13. a signal is retryable"),
        pytest.param("Never", "ExitCode", 128, True, id="13. from 128 on"),
        pytest.param("Never", "ExitCode", 127, False, id="13. below, it would fail again"),
        pytest.param("OnFailure", "ExitCode", 1, False, id="13. whatever the job's policy"),
    ],
)
def test_the_policies_say_whether_a_failed_attempt_is_followed_by_another(
    job: RestartPolicy, of_launcher: RestartPolicy, code: int, again: bool
):
    phase = next_phase(*a_running_job(restart=job, of_launcher=of_launcher), pods(failed(code)))
    assert type(phase) is (JobRestarting if again else JobFailed)


def test_a_job_that_no_policy_restarts_says_nothing_of_its_backoff_limit():
    phase = next_phase(*a_running_job(backoff_limit=0), pods(failed()))
    assert phase == JobFailed(reason="TrainingJobFailed", message="the launcher exited with 1 (Error)")


def test_22_after_backoff_limit_restarts_the_job_fails():
    story = [*a_running_job(restart="OnFailure", backoff_limit=2)]
    for attempt in (1, 2):
        story += [JobRestarting(reason="TrainingJobFailed"), JobRestarted(attempt=attempt), *a_new_attempt(attempt)]
    assert next_phase(*story, pods(of_attempt(2, failed()))) == JobFailed(
        reason="TrainingJobFailed", message="the launcher exited with 1 (Error); no restart is left: backoffLimit is 2"
    )


def of_attempt(attempt: int, pod: PodView) -> PodView:
    return msgspec.structs.replace(pod, attempt=attempt, uid=f"{pod.uid}-{attempt}")


def a_new_attempt(attempt: int) -> list[AnyEvent]:
    return [
        SlotsAssigned(slots=(Slots(attempt, WORKER, ((0, 1),)), Slots(attempt, LAUNCHER, ((0, 0),)))),
        pods(of_attempt(attempt, launcher())),
        JobRunning(reason="TrainingJobRunning"),
    ]


@pytest.mark.parametrize(("limit", "told"), [(6, "restart 1 of 6 (backoffLimit)"), (UNLIMITED, "restart 1")])
def test_the_message_tells_how_many_are_left(limit: int, told: str):
    assert next_phase(*a_running_job(restart="OnFailure", backoff_limit=limit), pods(failed(3))) == JobRestarting(
        reason="TrainingJobFailed", message=f"the launcher exited with 3 (Error); {told}"
    )


def test_success_is_never_restarted():
    done = pods(launcher(version=30, phase="Succeeded", exits=exited(0)))
    assert isinstance(next_phase(*a_running_job(restart="OnFailure"), done), JobSucceeded)


def test_23_history_outlives_a_failed_attempt():
    story = [*a_running_job(restart="OnFailure"), *scaling_out(2), pods(worker(2)), published(2, 0, 1, 2, request=R1)]
    story += [
        hosts_file(2),
        pods(launcher(version=25, hosts=2)),
        ScaleSucceeded(request=R1, reason="ScalingOutSucceeded"),
    ]
    story += [JobRunning(reason="TrainingJobRunning"), pods(failed()), JobRestarting(reason="TrainingJobFailed")]
    kept = {known.type for known in given(*story, JobRestarted(attempt=1), *a_new_attempt(1)).job.status.conditions}
    assert {"Created", "WorkersReady", "Scaling", "ScaleSucceeded", "Restarting", "Running"} <= kept


def test_what_would_be_refused_again_is_not_restarted():
    refused = EffectRefused(effect="CreatePod", reason="Invalid", field="spec.x", permanent=True)
    assert isinstance(next_phase(*a_created_job(restart="OnFailure"), refused), JobFailed)


def test_between_attempts_nothing_is_judged():
    assert (
        next_phase(*a_running_job(restart="OnFailure"), pods(failed()), JobRestarting(reason="TrainingJobFailed"))
        is None
    )


def test_a_new_attempt_runs_when_its_own_launcher_does():
    story = [*a_running_job(restart="OnFailure"), JobRestarting(reason="TrainingJobFailed")]
    assert next_phase(*story) is None, "the launcher that runs is that of the attempt before"
    begun = [*story, JobRestarted(attempt=1), *a_new_attempt(1)[:2]]
    assert next_phase(*begun) == JobRunning(reason="TrainingJobRunning")


def test_an_attempt_that_fails_before_it_runs_is_followed_by_another():
    story = [*a_running_job(workers=1, restart="OnFailure"), JobRestarting(reason="TrainingJobFailed")]
    begun = [*story, JobRestarted(attempt=1), SlotsAssigned(slots=(Slots(1, WORKER, ((0, 0),)),))]
    dead = of_attempt(1, worker(0, phase="Failed", exits=exited(1)))
    assert isinstance(next_phase(*begun, pods(dead)), JobRestarting)


SUSPENDED = observed(a_spec(suspend=True), generation=2)
PAUSING = JobSuspending(reason="TrainingJobSuspending")
PAUSE = JobSuspended(reason="TrainingJobSuspended")
ALL_RELEASED = SlotsReleased(slots=(workers(0, 1), Slots(0, LAUNCHER, ((0, 0),))), reason="JobSuspending")
GOING = [*a_running_job(), SUSPENDED, PAUSING, ALL_RELEASED]
LAST_GONE = PodsGone(uids=(Uid("pod-1"), Uid("pod-launcher")))


@pytest.mark.parametrize(
    ("story", "first"),
    [
        pytest.param(a_created_job(), PAUSING, id="while it starts"),
        pytest.param(a_running_job(), PAUSING, id="while it runs"),
        pytest.param(
            [*a_running_job(restart="OnFailure"), pods(failed()), JobRestarting(reason="x")],
            PAUSING,
            id="between attempts, while pods of the last one exist",
        ),
        pytest.param([observed(a_spec()), JobCreated(reason="TrainingJobCreated")], PAUSE, id="before it has any pod"),
    ],
)
def test_a_person_may_suspend_a_job(story: list[AnyEvent], first: Decision):
    assert next_phase(*story, SUSPENDED) == first


def test_a_job_is_suspended_once_its_last_pod_is_gone():
    assert next_phase(*GOING) is None
    assert next_phase(*GOING, PodsGone(uids=(Uid("pod-0"),))) is None
    assert next_phase(*GOING, PodsGone(uids=(Uid("pod-0"),)), LAST_GONE) == PAUSE
    assert next_phase(*GOING, PodsGone(uids=(Uid("pod-0"),)), LAST_GONE, PAUSE) is None


def test_a_job_is_not_suspended_while_pods_that_were_not_seen_may_appear():
    started = [observed(a_spec()), JobCreated(reason="TrainingJobCreated"), SlotsAssigned(slots=(workers(0, 1),))]
    story = [*started, SUSPENDED, PAUSING, SlotsReleased(slots=(workers(0, 1),), reason="JobSuspending")]
    assert next_phase(*story) is None
    assert next_phase(*story, ran_out("Unseen", *story)) == PAUSE


def test_the_condition_suspending_ends_with_the_last_pod():
    def shown(*story: AnyEvent) -> list[tuple[str, bool]]:
        conditions = given(*story).job.status.conditions
        return [(known.type, known.status) for known in conditions if known.type.startswith("Suspend")]

    assert shown(*GOING) == [("Suspending", True)]
    gone = [*GOING, PodsGone(uids=(Uid("pod-0"),)), LAST_GONE, PAUSE]
    assert shown(*gone) == [("Suspending", False), ("Suspended", True)]


def test_a_job_is_resumed_while_its_pods_are_still_going():
    resumed = [*GOING, observed(a_spec(), generation=3)]
    assert next_phase(*resumed) == JobCreated(reason="TrainingJobResumed")
    job = given(*resumed, JobCreated(reason="TrainingJobResumed")).job
    assert (job.status.phase, job.between_attempts) == ("Created", True)
    assert [known.status for known in job.status.conditions if known.type == "Suspending"] == [False]


def test_what_ended_before_is_not_suspended():
    done = pods(launcher(version=30, phase="Succeeded", exits=exited(0)))
    assert isinstance(next_phase(*a_running_job(), done, SUSPENDED), JobSucceeded)


def test_a_job_that_is_being_suspended_stays_so_whatever_its_pods_do():
    ends = pods(launcher(version=40, phase="Failed", exits=exited(143)))
    assert next_phase(*a_running_job(), SUSPENDED, PAUSING, ends) is None


def test_25_it_is_resumed():
    story = [*a_running_job(), SUSPENDED, PAUSE, observed(a_spec(), generation=3)]
    assert next_phase(*story) == JobCreated(reason="TrainingJobResumed")
    job = given(*story, JobCreated(reason="TrainingJobResumed")).job
    assert [known.status for known in job.status.conditions if known.type == "Suspended"] == [False]


def test_a_resumed_job_runs_when_its_new_launcher_does():
    story = [*a_running_job(), SUSPENDED, PAUSE, observed(a_spec(), generation=3)]
    resumed = [*story, JobCreated(reason="TrainingJobResumed")]
    assert next_phase(*resumed) is None, "the launcher that was seen is that of the attempt before"
    begun = [*resumed, JobRestarted(attempt=1, counted=False), *a_new_attempt(1)[:2]]
    assert next_phase(*begun) == JobRunning(reason="TrainingJobRunning")


def test_a_person_may_restart_a_job_once():
    asked = [*a_running_job(), observed(a_spec(word="a"), generation=1)]
    assert next_phase(*asked) == JobRestarting(reason="RestartRequested", message="a person asked for it")
    restarted = [*asked, JobRestarting(reason="RestartRequested"), JobRestarted(attempt=1, counted=False)]
    assert next_phase(*restarted, *a_new_attempt(1)) is None


def a_gang_of_three(*sizes: int) -> list[AnyEvent]:
    """Before any pod has a node, the job gets these sizes, one after the other."""
    story = [observed(a_spec(3, gang=0)), JobCreated(reason="TrainingJobCreated")]
    story.append(SlotsAssigned(slots=(workers(0, 1, 2),), reason="JobCreated", gang=3))
    return [*story, *(observed(a_spec(size, gang=0), generation=at) for at, size in enumerate(sizes, 2))]


def test_a_gang_that_has_fewer_pods_than_find_places_together_begins_again():
    released = WorkersReleased(request=Uid("replicas-2"), slots=(workers(2),), reason="BeforeTheStart")
    done = ScaleSucceeded(request=Uid("replicas-2"), reason="AlreadyThatSize")
    again = JobRestarting(
        reason="GangTooLarge",
        message="3 pods have to find places together, and the job has 2; it begins again with those",
    )
    assert next_phase(*a_gang_of_three(2), released) is None, "the next attempt would begin with three"
    assert next_phase(*a_gang_of_three(2), released, done) == again
    larger = observed(a_spec(5, gang=0), generation=3)
    assert next_phase(*a_gang_of_three(2), released, done, larger) == again, "it would grow once it runs"
    placed = pods(worker(0, phase="Pending", node="node-1", ran=False))
    assert next_phase(*a_gang_of_three(2), placed, released, done) is None, "all of them have places"
    job = given(*a_gang_of_three(2), released, done, again).job
    assert job.retries.restarting is not None
    assert restart_delay(job, job.retries.restarting) == 0
    assert job.retries.disruptions == 0


def test_a_gang_whose_lost_pod_is_replaced_is_whole():
    lost = worker(1, version=11, deleting=True, phase="Pending", ran=False)
    story = [*a_gang_of_three(), pods(worker(1, phase="Pending", ran=False)), pods(lost), PodsGone(uids=(lost.uid,))]
    assert next_phase(*story) is None


def test_an_old_word_asks_for_nothing():
    first = observed(a_spec(word="a"))
    assert next_phase(first, *a_running_job()[1:]) is None


@pytest.mark.parametrize("restart", ["Never", "OnFailure"])
def test_the_active_deadline_ends_a_job_for_good_and_not_before(restart: RestartPolicy):
    story = a_running_job(active_deadline_seconds=60, restart=restart)
    end = JobFailed(reason="DeadlineExceeded", message="it was active for 60 s (activeDeadlineSeconds)")
    assert next_phase(*story) is None
    assert next_phase(*story, ran_out("ActiveDeadline", *story)) == end


def test_an_edit_that_removes_the_active_deadline_is_heard_until_the_end():
    story = a_running_job(active_deadline_seconds=60)
    assert next_phase(*story, ran_out("ActiveDeadline", *story), observed(a_spec(), generation=2)) is None


def test_a_pause_is_no_activity_and_a_restart_is():
    story = a_running_job(active_deadline_seconds=60, restart="OnFailure")
    [first] = [timer for timer in next_due(given(*story).job) if timer.name == "ActiveDeadline"]
    restarted = [*story, JobRestarting(reason="x"), JobRestarted(attempt=1)]
    assert first in next_due(given(*restarted).job)
    paused = [*story, observed(a_spec(suspend=True, active_deadline_seconds=60), generation=2), PAUSE]
    assert not any(timer.name == "ActiveDeadline" for timer in next_due(given(*paused).job))
    assert next_phase(*paused, TimePassed(anchor=first.anchor, timer=first.name)) is None
    resumed = [
        *paused,
        observed(a_spec(active_deadline_seconds=60), generation=3),
        JobCreated(reason="TrainingJobResumed"),
    ]
    [again] = [timer for timer in next_due(given(*resumed).job) if timer.name == "ActiveDeadline"]
    assert again.anchor == len(resumed)


@pytest.mark.parametrize("restart", ["Never", "OnFailure"])
def test_27_the_scheduling_timeout_ends_a_job_for_good_whose_pods_never_ran(restart: RestartPolicy):
    stuck = pods(worker(0), worker(1, phase="Pending", reason="ImagePullBackOff"))
    story = [*a_created_job(scheduling_timeout_seconds=30, restart=restart), stuck]
    why = "it did not run after 30 s (schedulingTimeoutSeconds); resnet-worker-1: ImagePullBackOff"
    assert next_phase(*story) is None
    assert next_phase(*story, ran_out("Scheduling", *story)) == JobFailed(reason="SchedulingTimeout", message=why)


def test_27_what_keeps_a_job_from_starting_is_told():
    stuck = [*a_created_job(), pods(worker(0), worker(1, phase="Pending", reason="Unschedulable"))]
    [told] = [known for known in shown(*stuck) if known.type == "WorkersReady"]
    assert (told.status, told.reason, told.message) == (False, "Unschedulable", "resnet-worker-1: Unschedulable")
    better = [*stuck, pods(worker(1, version=11, phase="Pending", reason="ContainerCreating"))]
    assert not [known for known in shown(*better) if known.type == "WorkersReady"]


def test_the_ordinary_way_of_a_pod_is_told_once_it_takes_long():
    coming = [*a_created_job(), pods(worker(0), worker(1, phase="Pending", reason="ContainerCreating"))]
    assert not [known for known in shown(*coming) if known.type == "WorkersReady"]
    [told] = [known for known in shown(*coming, ran_out("Waiting", *coming)) if known.type == "WorkersReady"]
    assert (told.status, told.reason) == (False, "ContainerCreating")


def test_12_the_conditions_of_an_attempt_end_with_it():
    story = [*a_running_job(restart="OnFailure"), pods(failed()), JobRestarting(reason="TrainingJobFailed")]
    true = {known.type for known in given(*story).job.status.conditions if known.status}
    assert true == {"Created", "Restarting"}
    released = SlotsReleased(slots=(workers(0, 1), Slots(0, LAUNCHER, ((0, 0),))))
    again = [*story, released, JobRestarted(attempt=1), *a_new_attempt(1)]
    true = {known.type for known in given(*again).job.status.conditions if known.status}
    assert {"Created", "Running"} <= true
    assert "Restarting" not in true


@pytest.mark.parametrize("least", [1, 2], ids=["enough by now", "as before"])
def test_a_minimum_that_was_lowered_is_heard(least: int):
    short = [*a_running_job(workers=2, least=2), PodsGone(uids=(Uid("pod-1"),))]
    late = [*short, ran_out("BelowMinimum", *short)]
    end = next_phase(*late, observed(a_spec(2, least=least), generation=2))
    assert (end is None) == (least == 1)


def test_asked_for_while_it_restarts_already_it_does_not_restart_twice():
    story = [*a_running_job(restart="OnFailure"), pods(failed()), JobRestarting(reason="TrainingJobFailed")]
    assert next_phase(*story, observed(a_spec(2, restart="OnFailure", word="now"), generation=2)) is None


def test_a_worker_that_is_about_to_be_replaced_does_not_end_a_job_before_its_launcher():
    lost = pods(worker(0), worker(1, version=40, phase="Failed", exits=exited(1)))
    assert next_phase(*a_created_job(2, least=2, of_workers="OnFailure"), lost) is None
    assert isinstance(next_phase(*a_created_job(2, least=2), lost), JobFailed)


DRAINED = launcher(version=30, phase="Failed", exits=exited(143), disruption="EvictionByEvictionAPI")
DELETED_BY_A_DRAIN = launcher(version=30, deleting=True, disruption="EvictionByEvictionAPI")
ENDED_BY_A_DELETION = launcher(version=31, phase="Failed", exits=exited(143), deleting=True)
NOTICED = DisruptionNoticed(node="node-1", uids=(Uid("pod-launcher"),), reason="NodeScaledDown")
LOST = LauncherLost(uid=Uid("pod-launcher"))
GONE = PodsGone(uids=(Uid("pod-launcher"),))


@pytest.mark.parametrize(
    "story",
    [
        pytest.param([pods(DRAINED)], id="the evicted launcher ended"),
        pytest.param([pods(DELETED_BY_A_DRAIN), LOST], id="the evicted launcher is gone before its end was seen"),
        pytest.param([pods(DELETED_BY_A_DRAIN), pods(ENDED_BY_A_DELETION)], id="the evicted launcher ended as it went"),
        pytest.param([NOTICED, pods(ENDED_BY_A_DELETION)], id="the launcher ended as it went with its node"),
        pytest.param([NOTICED, LOST], id="the launcher vanished with its node"),
        pytest.param([NOTICED, pods(failed(143)), GONE], id="the launcher ended with its node, and is gone"),
    ],
)
@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode"])
def test_a_launcher_lost_to_a_disruption_begins_a_new_attempt_whatever_the_policy(
    story: list[AnyEvent], policy: RestartPolicy
):
    running = a_running_job(of_launcher=policy, backoff_limit=0)
    following = next_phase(*running, *story)
    assert isinstance(following, JobRestarting)
    assert (following.reason, following.counted) == ("Disrupted", False)


def disrupted_again(times: int, *, steady: bool = False) -> list[AnyEvent]:
    """A job whose launcher was evicted so often, one attempt after the other."""
    story = a_running_job()
    for attempt in range(times):
        gone = msgspec.structs.replace(
            DRAINED, uid=Uid(f"pod-launcher-{attempt}"), attempt=attempt, version=100 + attempt
        )
        if attempt:
            story += [SlotsAssigned(slots=(Slots(attempt, WORKER, ((0, 1),)),))]
            story += [SlotsAssigned(slots=(Slots(attempt, LAUNCHER, ((0, 0),)),)), JobRunning(reason="Running")]
            if steady:
                story.append(ran_out("Steady", *story))
        story += [pods(gone), JobRestarting(reason="Disrupted", counted=False)]
        if attempt + 1 < times:
            story.append(JobRestarted(attempt=attempt + 1, counted=False, reason="Disrupted"))
    return story


@pytest.mark.parametrize(("times", "seconds"), [(1, 0), (2, 10), (3, 20), (7, 300)])
def test_a_job_that_is_disrupted_again_and_again_begins_ever_later(times: int, seconds: int):
    job = given(*disrupted_again(times)).job
    waits = [timer.seconds for timer in next_due(job) if timer.name == "Restart"]
    assert waits == ([seconds] if seconds else [])
    assert job.retries.restarts == 0


def test_a_job_that_was_steady_between_two_disruptions_begins_at_once():
    job = given(*disrupted_again(3, steady=True)).job
    assert not [timer for timer in next_due(job) if timer.name == "Restart"]


def test_a_restart_that_a_person_asked_for_waits_for_nothing_however_often_the_job_was_disrupted():
    story = [*disrupted_again(3), JobRestarted(attempt=3, counted=False), *a_new_attempt(3)]
    job = given(*story, JobRestarting(reason="RestartRequested")).job
    assert not [timer for timer in next_due(job) if timer.name == "Restart"]
