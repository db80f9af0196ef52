"""Timers: which run, from when, and until what stops them."""

import pytest

from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scaler import ScaleFailed, ScaleSucceeded, WorkersReleased
from shared.job.events.status import JobFailed, JobRestarting, JobSuspended
from shared.job.events.watcher import HistoryBroken, JobGone, PodsGone, ProgressReported, ScaleRequestGone, TimePassed
from shared.job.naming import NO_UID, JobKey, Uid
from shared.job.spec import SCHEDULING_TIMEOUT_SECONDS
from shared.job.timers import Timer, passed
from shared.job.timing import next_due
from tests.kit.builders import (
    R1,
    a_created_job,
    a_running_job,
    a_spec,
    hosts_file,
    launcher,
    observed,
    pods,
    published,
    scale_in,
    scaling_in,
    scaling_out,
    worker,
    workers,
)
from tests.kit.histories import KEY, a_history
from tests.kit.stories import given

SHORT: list[AnyEvent] = [*a_running_job(workers=2, least=2), PodsGone(uids=(Uid("pod-1"),))]


def timers(*events: AnyEvent) -> tuple[Timer, ...]:
    return next_due(given(*events).job)


def names(*events: AnyEvent) -> list[str]:
    return [timer.name for timer in timers(*events)]


def test_a_quiet_job_waits_for_nothing():
    assert timers() == ()
    assert timers(observed(a_spec())) == ()
    assert timers(*a_running_job()) == ()
    assert timers(*a_running_job(), scale_in(1)) == (), "a request that waits has no deadline yet"


def test_a_refusal_is_a_promise_counted_from_its_own_time():
    story = [*a_created_job(), EffectRefused(effect="CreatePod", reason="QuotaExceeded")]
    (timer,) = timers(*story)
    assert (timer.anchor, timer.name, timer.seconds) == (len(story), "BackOff:CreatePod", 1)
    assert timer.since.startswith("2030-01-01T"), "a promise goes on after a restart"


def test_each_refused_effect_waits_for_itself():
    refusals = [EffectRefused(effect=effect, reason="Forbidden") for effect in ("CreatePod", "CreatePod", "WriteHosts")]
    found = {timer.name: timer.seconds for timer in timers(*a_created_job(), *refusals)}
    assert found == {"BackOff:CreatePod": 2, "BackOff:WriteHosts": 1}


def test_what_is_refused_for_good_is_not_waited_for():
    assert timers(*a_created_job(), EffectRefused(effect="CreatePod", reason="Invalid", permanent=True)) == ()


@pytest.mark.parametrize("effect", ["WriteHosts", "CreatePod", "CreateService", "CreateSecret"])
def test_15_what_was_refused_for_good_is_tried_again_while_the_job_runs(effect: str):
    refused = EffectRefused(effect=effect, reason="Invalid", permanent=True)
    assert [timer.name for timer in timers(*a_running_job(), refused)] == [f"BackOff:{effect}"]
    assert timers(*a_running_job(), refused, JobFailed(reason="LauncherLost")) == ()


@pytest.mark.parametrize("permanent", [False, True], ids=["for now", "for good"])
def test_the_end_of_a_request_whose_job_is_gone_is_shown_again_after_a_refusal(permanent: bool):
    refused = EffectRefused(effect="PatchStatus", reason="Forbidden", permanent=permanent)
    story = [*a_running_job(), *scaling_out(2), ScaleFailed(request=R1, reason="JobDeleting"), refused, JobGone()]
    assert names(*story, EffectRefused(effect="WriteHosts", reason="Forbidden")) == ["BackOff:PatchStatus"]
    assert names(*story, ScaleRequestGone(uid=R1, reason="Bound")) == [], "nothing is left to show"


def test_the_status_of_a_request_without_a_job_is_written_again_after_a_refusal():
    refused = EffectRefused(effect="PatchStatus", reason="Forbidden")
    waiting = a_history([refused], key=JobKey(KEY.namespace, KEY.name, NO_UID))
    assert [timer.name for timer in next_due(waiting.job)] == ["BackOff:PatchStatus"]


def test_a_timer_that_ran_out_runs_no_more():
    story = [*a_created_job(), EffectRefused(effect="CreatePod", reason="QuotaExceeded")]
    anchor = len(story)
    assert names(*story, TimePassed(anchor=anchor, timer="BackOff:CreatePod")) == []
    assert names(*story, TimePassed(anchor=anchor - 1, timer="BackOff:CreatePod")) == ["BackOff:CreatePod"]
    assert passed(given(*story, TimePassed(anchor=anchor, timer="X")).job, anchor, "X")


def test_a_scaling_has_a_deadline_from_its_acceptance_and_as_a_judgement():
    story = [*a_running_job(), *scaling_out(2)]
    timer, _ = timers(*story)
    assert timer == Timer(len(story) - 1, "ScalingDeadline", 60)
    assert timer.since == "", "an operator that was blind starts afresh"


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(ScaleSucceeded(request=R1, reason="ScalingOutSucceeded"), id="success"),
        pytest.param(ScaleFailed(request=R1, reason="DeadlineExceeded", released=(workers(2),)), id="failure"),
    ],
)
def test_the_end_of_a_scaling_ends_its_deadline(end: AnyEvent):
    assert "ScalingDeadline" not in names(*a_running_job(), *scaling_out(2), end)


def test_leaving_workers_drain_from_when_the_file_was_seen_until_they_are_released():
    leaving = [*a_running_job(workers=3), *scaling_in(2), published(2, 0, 1, request=R1)]
    assert names(*leaving) == ["ScalingDeadline"]
    seen = [*leaving, hosts_file(2), pods(launcher(version=90, hosts=2))]
    assert timers(*seen)[1] == Timer(len(seen), "Drain", 10)
    assert names(*seen, WorkersReleased(request=R1, slots=(workers(2),))) == ["ScalingDeadline"]


def test_a_scale_out_drains_nothing():
    story = [*a_running_job(), *scaling_out(2), pods(worker(2)), published(2, 0, 1, 2, request=R1)]
    assert names(*story, hosts_file(2), pods(launcher(version=90, hosts=2))) == ["ScalingDeadline"]


def test_below_its_minimum_a_running_job_is_given_time():
    assert timers(*SHORT) == (Timer(len(SHORT), "BelowMinimum", SCHEDULING_TIMEOUT_SECONDS),)
    assert timers(*SHORT, PodsGone(uids=(Uid("pod-0"),)))[0].anchor == len(SHORT), "since it fell, not since the last"


def test_enough_workers_stop_that_clock():
    story = [*a_running_job(workers=2, least=2), PodsGone(uids=(Uid("pod-1"),)), *scaling_out(2)]
    assert "BelowMinimum" in names(*story), "a pod that has yet to run trains nothing"
    assert "BelowMinimum" not in names(*story, pods(worker(2)))


def test_an_edit_that_is_not_carried_out_yet_asks_no_more_of_a_running_job():
    grown = observed(a_spec(5, least=5), generation=2)
    assert names(*a_running_job(workers=2, least=2), grown, pods(worker(0, version=20))) == []
    assert names(*SHORT, grown) == ["BelowMinimum"]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(JobGone(), id="gone"),
        pytest.param(JobFailed(reason="TrainingJobFailed"), id="over"),
        pytest.param(HistoryBroken(log="other", sequence=9, hash="h", reason="OtherLog"), id="history broken"),
    ],
)
def test_nothing_is_judged_any_more(end: AnyEvent):
    assert names(*SHORT, end) == []


@pytest.mark.parametrize(
    "pause",
    [JobRestarting(reason="RestartRequested"), JobSuspended(reason="TrainingJobSuspended")],
    ids=lambda e: type(e).__name__,
)
def test_between_attempts_no_worker_is_missed(pause: AnyEvent):
    assert "BelowMinimum" not in names(*SHORT, pause)


def test_the_time_of_a_stall_counts_from_when_its_step_came_until_the_group_changes():
    step = ProgressReported(pod=worker(0).uid, attempt=0, step=7, waited=4)
    story: list[AnyEvent] = [*a_running_job(workers=2, stall_timeout_seconds=60), step]
    (timer,) = timers(*story)
    assert (timer.anchor, timer.seconds, timer.ahead) == (len(story), 60, 4)
    changed = [timer for timer in timers(*story, *scaling_out(2), published(2, 0, 1, 2)) if timer.name == "Stall"]
    assert [timer.ahead for timer in changed] == [0], "the changed group has all the time for its next step"
