"""Kubernetes Events: one for each log event that a person should hear of, and none for what did not happen."""

import msgspec
import pytest

from services.status.core.announce import announcements
from services.status.core.effects import Announce
from services.status.shell import event_name, event_of
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scaler import ScaleFailed, ScaleRejected, ScaleSucceeded
from shared.job.events.status import JobCreated, JobFailed, JobRunning, JobSucceeded
from shared.job.events.watcher import JobDeleting, PodsGone, ScaleRequestGone
from shared.job.naming import Uid
from shared.job.spec import Ignored, Problem
from shared.job.text import MOST_MESSAGE
from tests.kit.builders import (
    R1,
    R2,
    a_created_job,
    a_ready_job,
    a_running_job,
    a_spec,
    exited,
    launcher,
    observed,
    pods,
    published,
    scale_in,
    scale_out,
    scaling_in,
    scaling_out,
    worker,
)
from tests.kit.stories import given

replace = msgspec.structs.replace

RUNNING = JobRunning(reason="TrainingJobRunning")


def announced(*events: AnyEvent) -> list[Announce]:
    steps = announcements(given(*events).job)
    assert all(isinstance(step, Announce) for step in steps)
    found = [step for step in steps if isinstance(step, Announce)]
    assert len({step.target for step in found}) == len(found), "two would share one name, and one would be lost"
    return found


def reasons(*events: AnyEvent) -> list[str]:
    return [step.reason for step in announced(*events)]


def news(before: list[AnyEvent], event: AnyEvent) -> list[Announce]:
    """What one more event adds."""
    known = announced(*before)
    return [step for step in announced(*before, event) if step not in known]


def test_nothing_happened_and_nothing_is_said():
    assert announced() == []
    assert announced(observed(a_spec())) == []
    assert announced(*a_created_job()) == []
    assert announced(*a_created_job(), pods(worker(0))) == []


def test_the_way_to_running_in_et_operators_words():
    assert reasons(*a_ready_job()) == ["TrainingJobWorkerCreated"]
    assert reasons(*a_running_job()) == ["TrainingJobWorkerCreated", "TrainingJobRunning"]


@pytest.mark.parametrize(("size", "words"), [(1, "1 worker is created"), (2, "2 workers are created")])
def test_the_pods_that_are_created_are_counted(size: int, words: str):
    (step,) = announced(*a_ready_job(size))
    assert step.message == words


def test_each_tells_of_the_event_that_brought_it_about():
    job = a_running_job()
    (running,) = [step for step in announced(*job) if step.reason == "TrainingJobRunning"]
    assert running.sequence == len(job)
    assert running.time == given(*job).history.time
    assert (running.kind, running.name, running.uid, running.warning) == ("TrainingJob", "resnet", "uid-1", False)


@pytest.mark.parametrize(
    ("end", "reason", "warning", "why"),
    [
        (JobSucceeded(reason="TrainingJobSucceeded"), "TrainingJobSucceeded", False, "the job succeeded"),
        (JobFailed(reason="LauncherLost", message="it vanished"), "TrainingJobFailed", True, "it vanished"),
    ],
)
def test_the_end(end: AnyEvent, reason: str, warning: bool, why: str):
    (step,) = news(a_running_job(), end)
    assert (step.reason, step.warning, step.message) == (reason, warning, why)


def test_facts_that_change_nothing_for_people_are_not_announced():
    for event in (pods(worker(0, version=90, ready=False)), published(2, 0, 1), pods(launcher(version=90, hosts=2))):
        assert news(a_running_job(), event) == []


def test_problems_are_announced_and_once_each():
    problem = Problem(reason="NoContainers", field="spec", message="add a container")
    wrong = replace(observed(a_spec()), spec=None, problems=(problem,))
    (step,) = announced(wrong)
    assert (step.reason, step.warning, step.message) == ("NoContainers", True, "spec: add a container")
    assert news([wrong], replace(wrong, generation=2, version=2)) == []
    other = replace(wrong, generation=2, version=2, problems=(replace(problem, reason="NoWorker"),))
    assert [step.reason for step in news([wrong], other)] == ["NoWorker"]


def test_a_refusal_is_announced_and_its_repetition_is_not():
    refused = EffectRefused(effect="CreatePod", reason="QuotaExceeded")
    (step,) = news(a_created_job(), refused)
    assert (step.reason, step.warning) == ("QuotaExceeded", True)
    assert news([*a_created_job(), refused], refused) == []


def test_a_service_and_a_pod_that_are_refused_in_the_same_words_are_announced_once():
    misspelt = {"reason": "UnknownField", "permanent": True, "message": "no such field: spec.nodeSelecter"}
    both = [EffectRefused(effect=effect, **misspelt) for effect in ("CreateService", "CreatePod")]
    end = JobFailed(reason="UnknownField", message="no such field: spec.nodeSelecter")
    assert [step.reason for step in announced(*a_created_job(), *both)].count("UnknownField") == 1
    assert [step.reason for step in announced(*a_created_job(), *both, end)].count("UnknownField") == 1


def test_a_lost_worker_is_announced_once():
    failed = pods(worker(1, version=90, phase="Failed", exits=exited(137, "OOMKilled")))
    (step,) = news(a_running_job(), failed)
    assert (step.reason, step.message) == ("TrainingJobWorkerFailed", "resnet-worker-1: OOMKilled (exit code 137)")
    assert step.warning
    assert news([*a_running_job(), failed], PodsGone(uids=(Uid("pod-1"),))) == []


def test_a_worker_that_a_person_deletes_is_announced_as_deleted_whatever_it_ends_with():
    deleted = pods(worker(1, version=90, ready=False, deleting=True))
    ended = pods(worker(1, version=91, phase="Succeeded", deleting=True, exits=exited(0, "Completed")))
    (step,) = news([*a_running_job(), deleted], ended)
    assert step.message == "resnet-worker-1 was deleted (exit code 0)"


def test_workers_lost_in_one_event_are_one_announcement():
    (step,) = news(a_running_job(workers=4), PodsGone(uids=(Uid("pod-1"), Uid("pod-2"), Uid("pod-3"))))
    assert step.message == "resnet-worker-1: Deleted, and 2 more"


@pytest.mark.parametrize("words", ["", "out of memory", "x" * 2048])
def test_workers_lost_in_one_event_are_told_with_each_reason(words: str):
    ends = (exited(1), exited(137, "OOMKilled"), exited(1), exited(2, "StartError"))
    said = [tuple(replace(end, message=words) for end in each) for each in ends]
    failed = [worker(index, version=90, phase="Failed", exits=end) for index, end in enumerate(said)]
    # What the loss means for the job, which has no worker left, is another matter than how each of them ended.
    step, below = news(a_running_job(workers=4), pods(*failed))
    assert (below.reason, below.sequence) == ("BelowMinimum", step.sequence)
    first, second, third = step.message.split("; ")
    assert first.startswith("resnet-worker-0: Error (exit code 1), and 1 more")
    assert second.startswith("resnet-worker-1: OOMKilled (exit code 137)")
    assert third.startswith("resnet-worker-3: StartError (exit code 2)")
    assert all(told.endswith(words[-200:]) for told in (first, second, third))
    assert len(step.message) <= MOST_MESSAGE


def test_workers_lost_one_after_the_other_are_one_announcement_each():
    first = PodsGone(uids=(Uid("pod-1"),))
    (step,) = news([*a_running_job(workers=3), first], PodsGone(uids=(Uid("pod-2"),)))
    assert step.message.startswith("resnet-worker-2")


def test_a_worker_that_was_released_did_not_fail():
    story = [*a_running_job(workers=3), *scaling_in(2), published(2, 0, 1, request=R1)]
    released = ScaleFailed(request=R1, reason="HostsNotWritten", released=())
    assert "TrainingJobWorkerFailed" not in reasons(*story, released)


def test_a_scaling_is_told_of_the_request_and_its_end_of_both():
    story = [*a_running_job(), *scaling_out(2)]
    said = [(step.kind, step.reason) for step in announced(*story) if step.kind != "TrainingJob"]
    assert said == [("ScaleOut", "ScalingStart")]
    done = ScaleSucceeded(request=R1, reason="ScalingOutSucceeded")
    assert [(step.kind, step.name, step.reason, step.warning) for step in news(story, done)] == [
        ("TrainingJob", "resnet", "ScalingOutSucceeded", False),
        ("ScaleOut", "scaleout-request-1", "ScalingOutSucceeded", False),
    ]


def test_a_failed_scaling_is_a_warning_and_never_without_a_reason():
    story = [*a_running_job(), *scaling_out(2)]
    said = news(story, ScaleFailed(request=R1, reason="DeadlineExceeded"))
    assert [(step.kind, step.reason, step.warning) for step in said] == [
        ("TrainingJob", "ScalingOutFailed", True),
        ("ScaleOut", "DeadlineExceeded", True),
    ]
    assert said[0].message == "ScaleOut scaleout-request-1: DeadlineExceeded"


def test_a_rejected_request_concerns_itself_alone():
    story = [*a_running_job(), scale_in(9)]
    (step,) = news(story, ScaleRejected(request=R1, reason="BelowMinimum"))
    assert (step.kind, step.reason, step.warning) == ("ScaleIn", "BelowMinimum", True)


@pytest.mark.parametrize(
    ("second", "end"),
    [
        pytest.param(scaling_out(3, request=R2), "ScalingOutSucceeded", id="the same kind"),
        pytest.param(scaling_in(1, request=R2), "ScalingInSucceeded", id="the other kind"),
    ],
)
def test_the_end_of_each_scaling_is_announced_with_its_own_time(second: list[AnyEvent], end: str):
    first = [*a_running_job(), *scaling_out(2), ScaleSucceeded(request=R1, reason="ScalingOutSucceeded"), RUNNING]
    story = [*first, *second]
    said = news(story, ScaleSucceeded(request=R2, reason=end))
    assert {(step.kind, step.reason, step.sequence) for step in said} == {
        ("TrainingJob", end, len(story) + 1),
        (said[-1].kind, end, len(story) + 1),
    }


def test_running_again_after_a_scaling_is_no_news():
    story = [*a_running_job(), *scaling_out(2), ScaleSucceeded(request=R1, reason="ScalingOutSucceeded")]
    assert news(story, RUNNING) == []


def test_a_request_that_waits_and_one_that_is_gone_are_silent():
    assert news(a_running_job(), scale_out(2)) == []
    story = [*a_running_job(), *scaling_out(2), ScaleRequestGone(uid=R1)]
    assert all(step.kind == "TrainingJob" for step in announced(*story))


def test_names_are_stable_and_each_events_own():
    story = [*a_running_job(), *scaling_out(2), JobFailed(reason="TrainingJobFailed")]
    names = [event_name(step) for step in announced(*story)]
    assert names == [event_name(step) for step in announced(*story)]
    assert len(set(names)) == len(names)
    assert names[0] == "resnet.uid-1.5.trainingjobworkercreated"


@pytest.mark.parametrize("length", [1, 63, 119, 120, 121, 253])
def test_a_name_is_a_kubernetes_name_however_long_the_objects_is(length: int):
    step = replace(announced(*a_running_job())[0], name=("x" * 119 + "-" + "y" * 200)[:length].rstrip("-"))
    name = event_name(replace(step, uid=Uid("0" * 36), sequence=2**63))
    assert len(name) <= 253
    assert all(part and part[0] != "-" and part[-1] != "-" for part in name.split("."))


@pytest.mark.parametrize(
    "time",
    [
        pytest.param("2030-01-01T00:00:07.250Z", id="as the log has it"),
        pytest.param("2030-01-01T01:00:07.25+01:00", id="another zone"),
    ],
)
def test_a_kubernetes_event_has_the_times_that_old_and_new_readers_take(time: str):
    step = replace(announced(*a_running_job())[0], time=time)
    event = event_of(step, "default")
    assert event["eventTime"] == "2030-01-01T00:00:07.250000Z"
    # Programs such as the Kubeflow SDK pass over an event without the first time.
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2030-01-01T00:00:07Z"
    assert event["count"] == 1


def test_a_deletion_that_waits_for_a_finalizer_is_told_with_its_name():
    (step,) = news(a_running_job(), JobDeleting(version=9, finalizers=("foregroundDeletion", "example.com/hold")))
    assert (step.reason, step.warning) == ("TrainingJobDeleting", True)
    told = "the job was deleted, and its finalizers keep it (example.com/hold); its pods stay until it is gone"
    assert step.message == told


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        pytest.param({"suspend": True}, True, id="a pause"),
        pytest.param({"backoff_limit": 9}, True, id="a limit"),
        pytest.param({"ttl_seconds_after_finished": 9}, False, id="the time to live, which holds"),
        pytest.param({"roles": a_spec(workers=3).roles}, False, id="the number of workers, as an autoscaler does"),
    ],
)
def test_an_edit_after_the_end_is_told_to_have_no_effect(edit: dict[str, object], told: bool):
    over = [*a_running_job(), JobSucceeded(reason="TrainingJobSucceeded")]
    steps = news(over, observed(replace(a_spec(), **edit), generation=2))
    message = "the edit has no effect: the job is over; delete it and create it again to run it once more"
    assert [(step.reason, step.message) for step in steps] == ([("FieldIgnored", message)] if told else [])


@pytest.mark.parametrize("finalizers", [(), ("foregroundDeletion",), ("orphan",)])
def test_a_deletion_that_kubernetes_finishes_itself_is_not_told(finalizers: tuple[str, ...]):
    assert news(a_running_job(), JobDeleting(version=9, finalizers=finalizers)) == []


def test_the_pods_of_a_deleted_job_end_with_it_and_none_is_told_of_as_failed():
    crashed = pods(worker(0, version=90, phase="Failed", exits=exited(1)))
    killed = pods(worker(1, version=91, phase="Failed", exits=exited(137), deleting=True))
    deleted = JobDeleting(version=95, finalizers=("foregroundDeletion",))
    told = announced(*a_running_job(), crashed, deleted, killed)
    assert [step.message for step in told if step.reason == "TrainingJobWorkerFailed"] == [
        "resnet-worker-0: Error (exit code 1)"
    ]


def test_a_field_without_effect_is_told_once_the_job_is_admitted():
    without = Ignored(field="spec.runPolicy.schedulingPolicy", message="no PodGroup is made")
    spec = replace(a_spec(), ignored=(without,))
    assert announced(observed(spec)) == []
    (step,) = announced(observed(spec), JobCreated(reason="TrainingJobCreated"))
    assert (step.reason, step.warning) == ("FieldIgnored", True)
    assert step.message == "spec.runPolicy.schedulingPolicy has no effect: no PodGroup is made"
