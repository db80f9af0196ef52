"""What a log amounts to in figures: stories of jobs, and what is counted of them."""

import msgspec
import pytest

from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scaler import ScaleCancelled, ScaleFailed, ScaleRejected, ScaleSucceeded
from shared.job.events.status import (
    JobCreated,
    JobFailed,
    JobRestarting,
    JobRunning,
    JobSucceeded,
    JobSuspended,
    JobSuspending,
)
from shared.job.events.watcher import JobAdopted, JobGone, JobObserved, PodsGone
from shared.job.fold import Histories, History
from shared.job.metrics import JobMetrics
from shared.job.naming import JobKey, Uid
from shared.job.spec import Problem
from shared.telemetry.metrics import OTHER, BoundedLabel, Count, Histogram, seconds_between
from tests.kit.builders import (
    R1,
    a_created_job,
    a_running_job,
    a_spec,
    observed,
    pods,
    scale_out,
    scaling_in,
    scaling_out,
    worker,
)
from tests.kit.histories import KEY, stored

KIND = "TrainingJob.kai.alibabacloud.com"
PLACE = (KEY.namespace, KIND)


def measured(*events: AnyEvent, twice: bool = False) -> dict[str, dict[tuple[str, ...], float]]:
    """Every figure by name and labels, of a histogram the number of values."""
    job_metrics, history = JobMetrics(names=True), History(KEY)
    histories = Histories(job_metrics.folded)
    for event in events:
        line = stored(history, event)
        history.fold(line)
        histories.fold(line)
        if twice:
            histories.fold(line)
    return values(job_metrics)


@pytest.mark.parametrize(("device", "told"), [("nvidia.com/gpu", "nvidia.com/gpu"), ("example.com/a-secret", OTHER)])
def test_places_and_their_devices_are_counted_by_what_they_do_until_the_job_is_gone(device: str, told: str):
    job_metrics, history = JobMetrics(names=True, devices=["nvidia.com/gpu"]), History(KEY)
    spec = a_spec(workers=2)
    roles = tuple(msgspec.structs.replace(role, requests=(("cpu", 2.0), (device, 4.0))) for role in spec.roles)

    def now(*events: AnyEvent) -> tuple[dict[str, float], dict[str, float]]:
        for event in events:
            line = stored(history, event)
            before = history.job
            history.fold(line)
            job_metrics.folded(before, event, history.job, line.time)
        job_metrics.count_places()
        found = values(job_metrics)
        assert all(labels[3] == told for labels in found["muster_devices"])
        buckets = (found[name].items() for name in ("muster_places", "muster_devices"))
        places, devices = ({labels[2]: value for labels, value in each if value} for each in buckets)
        return places, devices

    wanted, *started = a_running_job(2)
    assert now(msgspec.structs.replace(wanted, spec=msgspec.structs.replace(spec, roles=roles))) == ({}, {})
    assert now(*started) == ({"training": 3}, {"training": 12})
    assert now(JobRestarting(reason="WorkerFailed")) == ({"lost": 3}, {"lost": 12})
    assert now(JobFailed(reason="Crash")) == ({"ended": 3}, {"ended": 12})
    assert now(JobGone(version=99), PodsGone(uids=tuple(history.job.pods.views))) == ({}, {})
    assert not job_metrics._standings
    assert not job_metrics._changed


def values(job_metrics: JobMetrics) -> dict[str, dict[tuple[str, ...], float]]:
    return {
        series.metric.name: {
            labels: value if isinstance(value, float | int) else sum(value.counts)
            for labels, value in series.values.items()
        }
        for series in job_metrics.series
    }


def phases(found: dict[str, dict[tuple[str, ...], float]]) -> dict[str, float]:
    return {labels[2]: value for labels, value in found["muster_jobs"].items() if value}


def test_a_job_has_series_with_zeros_before_its_first_event():
    found = measured(observed(a_spec()))
    assert phases(found) == {"Pending": 1}
    for what in ("created", "deleted", "successful", "failed", "restarted"):
        assert found[f"muster_jobs_{what}_total"] == {PLACE: 0}


def test_a_job_is_counted_where_it_stands():
    assert phases(measured(*a_created_job())) == {"Created": 1}
    assert phases(measured(*a_running_job())) == {"Running": 1}
    assert phases(measured(*a_running_job(), *scaling_out(2))) == {"Scaling": 1}
    assert phases(measured(*a_running_job(), JobSucceeded(reason="TrainingJobSucceeded"))) == {"Succeeded": 1}


def test_a_life_is_counted_once():
    found = measured(
        *a_running_job(),
        JobSucceeded(reason="TrainingJobSucceeded"),
        JobGone(version=9),
        JobGone(version=9),
        twice=True,
    )
    counts = {
        what: found[f"muster_jobs_{what}_total"][PLACE] for what in ("created", "deleted", "successful", "failed")
    }
    assert counts == {"created": 1, "deleted": 1, "successful": 1, "failed": 0}
    assert phases(found) == {}


def test_an_end_after_the_end_is_not_counted():
    ends = JobSucceeded(reason="TrainingJobSucceeded"), JobFailed(reason="LauncherFailed")
    for first, second in (ends, ends[::-1]):
        found = measured(*a_running_job(), first, first, second)
        counts = [found[f"muster_jobs_{what}_total"][PLACE] for what in ("successful", "failed")]
        assert counts == ([1, 0] if first is ends[0] else [0, 1])


def test_a_failure_and_the_attempts_before_it():
    found = measured(
        *a_running_job(),
        JobRestarting(reason="LauncherFailed"),
        JobFailed(reason="BackoffLimitExceeded"),
    )
    assert found["muster_jobs_failed_total"][PLACE] == 1
    assert found["muster_jobs_restarted_total"][PLACE] == 1
    assert found["muster_decisions_total"]["JobFailed", "BackoffLimitExceeded"] == 1


def test_a_pause_is_no_new_job():
    paused = [*a_running_job(), JobSuspending(reason="Suspending"), JobSuspended(reason="Suspended")]
    found = measured(*paused, JobCreated(reason="Resumed"))
    assert found["muster_jobs_created_total"][PLACE] == 1
    assert found["muster_jobs_restarted_total"][PLACE] == 0


def test_the_time_to_running_is_taken_once_and_only_of_jobs_that_could_run():
    started = "muster_job_start_duration_seconds"
    assert measured(*a_running_job(), JobRunning(reason="again"))[started] == {(KIND,): 1}
    paused = [*a_created_job(), JobSuspending(reason="Suspending"), JobRunning(reason="TrainingJobRunning")]
    assert measured(*paused)[started] == {}
    taken_over = [observed(a_spec()), JobAdopted(source="AnotherOperator"), JobRunning(reason="TrainingJobRunning")]
    assert measured(*taken_over)[started] == {}


def test_a_job_whose_spec_is_corrected_starts_with_the_correction():
    wrong = JobObserved(
        kind="TrainingJob",
        api_version="kai.alibabacloud.com/v1alpha1",
        generation=1,
        version=1,
        problems=(Problem(reason="InvalidSpec", message="no"),),
    )
    job_metrics, history = JobMetrics(names=True), History(KEY)
    histories = Histories(job_metrics.folded)
    for event in (wrong, *a_running_job()):
        line = stored(history, event)
        history.fold(line)
        histories.fold(line)
    (series,) = (found for found in job_metrics.series if found.metric.name == "muster_job_start_duration_seconds")
    assert isinstance(series, Histogram)
    # One event a second: the last one is nine after the correction.
    assert series.values[KIND,].total == len(a_running_job()) - 1


def test_pods_come_fail_and_go():
    found = measured(
        *a_running_job(),
        pods(worker(0, version=50, phase="Failed")),
        pods(worker(0, version=51, phase="Failed")),
        PodsGone(uids=(Uid("pod-0"), Uid("unknown"))),
    )
    assert found["muster_pods_created_total"][PLACE] == 3
    assert found["muster_pods_failed_total"][PLACE] == 1
    assert found["muster_pods_deleted_total"][PLACE] == 1


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (ScaleSucceeded(request=R1, reason="ScalingOutSucceeded"), "Succeeded"),
        (ScaleFailed(request=R1, reason="Timeout"), "Failed"),
        (ScaleCancelled(request=R1, reason="JobGone"), "Cancelled"),
    ],
)
def test_a_scaling_takes_from_its_acceptance_to_its_end(end: AnyEvent, outcome: str):
    found = measured(*a_running_job(), *scaling_out(2), end, end)
    assert found["muster_scale_duration_seconds"] == {("Out", outcome): 1}
    assert found["muster_scale_requests_total"] == {(*PLACE, "Out", outcome): 1}


def test_a_scaling_in_is_told_apart_and_a_rejected_one_took_no_time():
    found = measured(*a_running_job(), *scaling_in(1), ScaleSucceeded(request=R1, reason="ScalingInSucceeded"))
    assert found["muster_scale_duration_seconds"] == {("In", "Succeeded"): 1}
    found = measured(*a_running_job(), scale_out(9), ScaleRejected(request=R1, reason="TooManyWorkers"))
    assert found["muster_scale_duration_seconds"] == {}
    assert found["muster_scale_requests_total"] == {(*PLACE, "Out", "Rejected"): 1}


def test_refusals_are_counted_by_effect_and_reason():
    refused = EffectRefused(effect="CreatePod", reason="Forbidden")
    assert measured(*a_created_job(), refused, refused)["muster_effects_refused_total"] == {
        ("CreatePod", "Forbidden"): 2
    }


def test_what_is_remembered_of_jobs_on_their_way_is_forgotten_with_them():
    job_metrics, history = JobMetrics(names=True), History(KEY)
    histories = Histories(job_metrics.folded)
    for event in (*a_running_job(), *scaling_out(2), JobGone(version=9)):
        line = stored(history, event)
        history.fold(line)
        histories.fold(line)
    assert not job_metrics._accepted
    assert not job_metrics._first_seen


def test_requests_for_a_job_that_is_not_there_are_no_job():
    job_metrics, waiting = JobMetrics(names=True), History(JobKey(KEY.namespace, KEY.name, Uid("none")))
    Histories(job_metrics.folded).fold(stored(waiting, scale_out(2)))
    assert values(job_metrics)["muster_jobs"] == {}


def test_a_time_that_is_none_is_left_out():
    history, job_metrics = History(KEY), JobMetrics(names=True)
    histories = Histories(job_metrics.folded)
    for event in a_running_job():
        line = msgspec.structs.replace(stored(history, event), time="yesterday")
        history.fold(line)
        histories.fold(line)
    assert values(job_metrics)["muster_job_start_duration_seconds"] == {}
    assert seconds_between("2030-01-01T00:00:02Z", "2030-01-01T00:00:01Z") == 0, "two clocks differ"


def test_reasons_are_words_and_not_too_many():
    words = BoundedLabel(most=2)
    assert [words.bounded(word) for word in ("Forbidden", "", "no pods for you", "Invalid", "Third", "Invalid")] == [
        "Forbidden",
        "",
        OTHER,
        "Invalid",
        OTHER,
        "Invalid",
    ]


def test_a_value_on_a_bound_lies_below_it():
    job_metrics = JobMetrics(names=True)
    (series,) = (found for found in job_metrics.series if found.metric.name == "muster_scale_duration_seconds")
    assert isinstance(series, Histogram)
    first, second, *_ = series.metric.buckets
    for value in (first, second, 10**9):
        series.observe(value, "Out", "Succeeded")
    assert series.values["Out", "Succeeded"].counts[:2] == [1, 1]
    assert series.values["Out", "Succeeded"].counts[-1] == 1
    assert not isinstance(series, Count)
