"""Status documents: what a user sees at each stage, and what counts as the same."""

from typing import Any

import msgspec
import pytest

from services.status.core.decide import decide
from services.status.core.documents import canonical, document_of, of_job, of_requests, replacing, same, with_head
from services.status.core.effects import PatchStatus
from shared.frameworks.statuses import whole_seconds
from shared.job.chain import Head
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scaler import ScaleFailed, ScaleRejected, ScaleSucceeded, WorkersReleased
from shared.job.events.scheduler import SlotsReleased
from shared.job.events.status import (
    JobCreated,
    JobFailed,
    JobRestarting,
    JobRunning,
    JobSucceeded,
    JobSuspended,
    JobSuspending,
)
from shared.job.events.watcher import HistoryAccepted, HistoryBroken, JobGone, PodsGone, ScaleRequestGone, TimePassed
from shared.job.naming import NO_UID, JobKey, Uid
from shared.job.spec import Problem
from shared.job.timing import next_due
from shared.job.views import Exit
from tests.golden.compare import assert_golden
from tests.kit.builders import (
    R1,
    R2,
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
    scaling_in,
    scaling_out,
    worker,
    workers,
)
from tests.kit.histories import KEY, a_history
from tests.kit.replicas import a_running_replicated_job, ended, led_by_workers
from tests.kit.stories import given

replace = msgspec.structs.replace

RUNNING = JobRunning(reason="TrainingJobRunning")
PROBLEM = Problem(
    reason="NoContainers",
    field="spec.etReplicaSpecs.worker.template.spec.containers",
    message="add at least one container; the first one trains",
)
GROWN: list[AnyEvent] = [
    *a_running_job(workers=2),
    *scaling_out(2),
    pods(worker(2)),
    published(2, 0, 1, 2, request=R1),
    hosts_file(2),
    pods(launcher(version=60, hosts=2)),
]
SHRINKING: list[AnyEvent] = [*a_running_job(workers=3), *scaling_in(2), published(2, 0, 1, request=R1), hosts_file(2)]
LAUNCHED: list[AnyEvent] = [*a_running_job(), pods(launcher(version=60, phase="Succeeded", exits=exited(0)))]

STAGES: dict[str, list[AnyEvent]] = {
    "problems": [replace(observed(a_spec()), spec=None, problems=(PROBLEM, PROBLEM))],
    "created": a_created_job(),
    "workers_ready": a_ready_job(),
    "refused": [
        *a_created_job(),
        EffectRefused(effect="CreatePod", reason="QuotaExceeded", slots=(workers(0, 1),)),
    ],
    "running": a_running_job(),
    "worker_lost": [*a_running_job(), PodsGone(uids=(Uid("pod-1"),))],
    "scaling_out": [*a_running_job(), *scaling_out(2, 3)],
    "scaled_out": [*GROWN, ScaleSucceeded(request=R1, reason="ScalingOutSucceeded"), RUNNING],
    "scaling_in": SHRINKING,
    "scaled_in": [
        *SHRINKING,
        pods(launcher(version=60, hosts=2)),
        WorkersReleased(request=R1, slots=(workers(2),)),
        PodsGone(uids=(Uid("pod-2"),)),
        ScaleSucceeded(request=R1, reason="ScalingInSucceeded"),
        RUNNING,
    ],
    "scaling_failed": [
        *a_running_job(),
        *scaling_out(2),
        ScaleFailed(request=R1, reason="DeadlineExceeded", released=(workers(2),)),
        RUNNING,
    ],
    "succeeded": [*LAUNCHED, JobSucceeded(reason="TrainingJobSucceeded")],
    "cleaned_up": [
        *LAUNCHED,
        JobSucceeded(reason="TrainingJobSucceeded"),
        SlotsReleased(slots=(workers(0, 1),), reason="CleanPodPolicyRunning"),
        PodsGone(uids=(Uid("pod-0"), Uid("pod-1"))),
    ],
    "failed": [
        *a_running_job(),
        pods(launcher(version=60, phase="Failed", exits=exited(3)), worker(1, version=61, phase="Failed")),
        JobFailed(reason="TrainingJobFailed", message="the launcher exited with 3 (Error)"),
    ],
}

REQUESTS: dict[str, list[AnyEvent]] = {
    "request_pending": [*a_created_job(), scale_out(2)],
    "request_behind_another": [*a_running_job(), *scaling_out(2), scale_in(1, request=R2)],
    "request_scaling": [*a_running_job(), *scaling_out(2, 3)],
    "request_succeeded": STAGES["scaled_in"],
    "request_failed": STAGES["scaling_failed"],
    "request_rejected": [*a_running_job(), scale_in(9), ScaleRejected(request=R1, reason="BelowMinimum")],
}


def document(*events: AnyEvent) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(document_of(given(*events).job))
    return found


def request_documents(events: list[AnyEvent], key: JobKey = KEY) -> dict[str, dict[str, Any]]:
    steps = of_requests(a_history(events, key).job)
    assert all(isinstance(step, PatchStatus) for step in steps)
    return {step.name: msgspec.json.decode(step.document) for step in steps if isinstance(step, PatchStatus)}


@pytest.mark.parametrize("stage", STAGES)
def test_a_job_at_each_stage(stage: str):
    status = document(*STAGES[stage])
    assert_golden(f"status/{stage}", status)
    # Their definition requires these.
    assert set(status["replicaStatuses"]) == {"Launcher", "Worker"}
    assert isinstance(status["restartCount"], int)
    assert all(known["reason"] and known["status"] in ("True", "False") for known in status["conditions"])


@pytest.mark.parametrize("stage", REQUESTS)
def test_a_request_at_each_stage(stage: str):
    assert_golden(f"status/{stage}", request_documents(REQUESTS[stage]))


def test_a_request_without_its_job_says_so():
    waiting = JobKey(KEY.namespace, KEY.name, NO_UID)
    assert_golden("status/request_without_job", request_documents([scale_out(2, owned=False)], waiting))


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        pytest.param(
            (),
            "there is no TrainingJob of that name in this namespace; jobs of other kinds are scaled by `kubectl scale`",
            id="its job",
        ),
        pytest.param(
            (Problem(reason="InvalidValue", field="spec.timeout", message="write a whole number"),),
            "write a whole number",
            id="its correction",
        ),
    ],
)
def test_a_waiting_request_says_what_it_waits_for(problems: tuple[Problem, ...], message: str):
    asked = msgspec.structs.replace(scale_out(2, owned=False), problems=problems)
    (document,) = request_documents([asked], JobKey("team-a", "resnet", NO_UID)).values()
    assert (document["phase"], document["conditions"][-1]["type"]) == ("Pending", "Pending")
    assert document["conditions"][-1]["message"] == message


def test_a_job_without_pods_shows_no_workers():
    going = pods(*(worker(index, version=40, deleting=True) for index in range(3)))
    suspending = [*a_running_job(workers=3), JobSuspending(reason="JobSuspended"), going]
    assert document(*suspending)["currentWorkers"] == [f"resnet-worker-{index}" for index in range(3)]
    released = SlotsReleased(slots=(workers(0, 1, 2),), reason="JobSuspended")
    left = [released, PodsGone(uids=tuple(Uid(f"pod-{index}") for index in range(3)))]
    gone = [*suspending, *left]
    restarting = [*a_running_job(workers=3), JobRestarting(reason="LauncherLost"), *left]
    for story in (gone, [*gone, JobSuspended(reason="JobSuspended")], restarting):
        after = document(*story)
        assert (after["workers"], after["currentWorkers"], after["targetWorkers"]) == ("0/0", [], [])
        assert (after["replicas"], after["replicaStatuses"]["Worker"]["active"]) == (0, 0)


def running_message(*events: AnyEvent) -> str:
    (running,) = (known for known in document(*events)["conditions"] if known["type"] == "Running")
    assert running["status"] == "True"
    return str(running["message"])


def test_a_lost_worker_that_is_not_replaced_is_told_with_the_reason():
    story = [*a_running_job(workers=3), PodsGone(uids=(Uid("pod-1"),))]
    assert running_message(*story) == "resnet-worker-1 was deleted and is not replaced (restartPolicy: Never)"
    failed = pods(worker(2, version=40, phase="Failed", exits=exited(3)))
    assert running_message(*story, failed).endswith("(restartPolicy: Never), and 1 more")


def test_a_deleted_worker_that_ended_with_a_code_is_told_as_deleted():
    deleted = pods(worker(1, version=40, phase="Failed", deleting=True, exits=exited(137)))
    told = "resnet-worker-1 was deleted (exit code 137) and is not replaced (restartPolicy: Never)"
    assert running_message(*a_running_job(workers=3), deleted) == told


def test_a_lost_worker_is_told_with_its_last_words():
    crashed = (Exit("main", 3, "Error", "line 3\nValueError: no data"),)
    told = running_message(*a_running_job(workers=3), pods(worker(1, version=40, phase="Failed", exits=crashed)))
    assert told.endswith("(restartPolicy: Never): line 3 | ValueError: no data")


def test_a_lost_worker_that_is_replaced_is_not_told_as_one_that_is_not():
    assert running_message(*a_running_job(workers=3, of_workers="Always"), PodsGone(uids=(Uid("pod-1"),))) == ""


def test_times_are_whole_seconds():
    assert whole_seconds("2030-01-01T10:20:30.999Z") == "2030-01-01T10:20:30Z"
    assert whole_seconds("") is None


def test_a_document_is_the_same_bytes_for_the_same_job():
    assert document_of(given(*a_running_job()).job) == document_of(given(*a_running_job()).job)
    text = document_of(given(*a_running_job()).job)
    assert text == msgspec.json.encode(msgspec.json.decode(text), order="sorted")


def test_nulls_mark_fields_to_remove_and_compare_as_absent():
    text = document_of(given(*a_running_job()).job)
    assert b'"currentScaler":null' in text
    assert b"null" not in canonical(msgspec.json.decode(text))
    assert canonical({"b": None, "a": {"d": None, "c": [{"e": None}]}}) == b'{"a":{"c":[{}]}}'
    assert canonical({"b": 0, "a": ""}) == b'{"a":"","b":0}', "empty is not absent"


def held(text: bytes, **more: Any) -> dict[str, Any]:
    """What the API server keeps of a document: nulls are gone."""
    status: dict[str, Any] = msgspec.json.decode(canonical(msgspec.json.decode(text)))
    return status | more


def test_the_same_document_is_known_whatever_its_head():
    text = document_of(given(*a_running_job()).job)
    assert same(held(text), text)
    assert same(held(text, history={"log": "x"}, lastReconcileTime="2030-01-01T00:00:00Z"), text)


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(None, id="nothing"),
        pytest.param({}, id="an empty one"),
        pytest.param([], id="a list"),
        pytest.param("x", id="a text"),
        pytest.param({"phase": "Running"}, id="a part of it"),
    ],
)
def test_another_document_is_another(status: object):
    assert not same(status, document_of(given(*a_running_job()).job))


def test_a_field_that_was_added_or_changed_makes_it_another():
    text = document_of(given(*a_running_job()).job)
    assert not same(held(text, extra=1), text)
    assert not same(held(text, phase="Failed"), text)
    assert not same(held(text, currentScaler="ScaleIn:team-a/old"), text), "a field to remove is there"


def test_a_patch_removes_what_the_document_does_not_have():
    held = {"phase": "Created", "workerSelector": "theirs", "replicaStatuses": {"Worker": {"active": 1, "evicted": 2}}}
    status = {"phase": "Running", "replicaStatuses": {"Worker": {"active": 2}, "Launcher": {"active": 1}}}
    assert replacing(status, held) == {
        "phase": "Running",
        "workerSelector": None,
        "replicaStatuses": {"Worker": {"active": 2, "evicted": None}, "Launcher": {"active": 1}},
    }


@pytest.mark.parametrize("held", [None, "text", [], {}])
def test_a_patch_of_a_resource_without_a_status_is_the_document(held: object):
    assert replacing({"phase": "Running", "counts": {"active": 1}}, held) == {
        "phase": "Running",
        "counts": {"active": 1},
    }


def test_a_head_goes_with_the_document_and_says_when():
    text = document_of(given(*a_running_job()).job)
    status = with_head(text, "log-1", Head(7, "ab"), "2030-01-01T00:00:09.500Z")
    assert status["history"] == {"log": "log-1", "sequence": 7, "hash": "ab"}
    assert status["lastReconcileTime"] == "2030-01-01T00:00:09Z"
    assert same(status, text)


def test_a_change_of_the_head_alone_is_no_other_effect():
    before = given(*a_running_job())
    after = given(*a_running_job(), pods(worker(0, version=90)))
    assert before.history.head != after.history.head
    assert of_job(before.job) == of_job(after.job)


def test_an_accepted_head_is_a_reason_to_write():
    (patch,) = of_job(given(*a_running_job(), HistoryAccepted(sequence=3, hash="ab")).job)
    assert isinstance(patch, PatchStatus)
    assert patch.repair == len(a_running_job()) + 1


def patch_of(*events: AnyEvent) -> PatchStatus:
    (patch,) = of_job(given(*events).job)
    assert isinstance(patch, PatchStatus)
    return patch


ENDED = pods(worker(1, version=90, phase="Failed"))


def test_a_phase_does_not_wait():
    assert not patch_of(*a_running_job()).can_wait(patch_of(*a_ready_job()))


def test_how_far_an_attempt_that_starts_has_come_can_wait():
    ready, created = patch_of(*a_ready_job()), patch_of(*a_created_job())
    assert ready.document != created.document
    assert ready.can_wait(created)


def test_the_end_of_a_worker_waits_for_the_hosts_files_without_it():
    running, lost = patch_of(*a_running_job()), patch_of(*a_running_job(), ENDED)
    assert lost.document != running.document
    assert lost.can_wait(running)
    assert not patch_of(*a_running_job(), ENDED, published(2, 0)).can_wait(running)


def test_the_end_of_a_worker_without_hosts_files_does_not_wait():
    running = a_running_replicated_job(led_by_workers("All"))
    assert not patch_of(*running, ended("worker", 1, 3)).can_wait(patch_of(*running))


def patched(*events: AnyEvent) -> list[str]:
    return [step.name for step in given(*events).steps(decide) if isinstance(step, PatchStatus)]


def test_the_job_and_each_of_its_requests_has_a_document():
    story = [*a_running_job(), *scaling_out(2), scale_in(1, request=R2)]
    assert patched(*story) == ["resnet", "scaleout-request-1", "scalein-request-2"]


def test_a_request_that_is_gone_has_none():
    assert patched(*a_running_job(), *scaling_out(2), ScaleRequestGone(uid=R1)) == ["resnet"]


def test_a_phase_comes_before_any_document():
    assert patched(observed(a_spec())) == []
    assert patched(observed(a_spec()), JobCreated(reason="TrainingJobCreated")) == ["resnet"]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(JobGone(), id="gone"),
        pytest.param(HistoryBroken(log="other", sequence=9, hash="h", reason="OtherLog"), id="history broken"),
    ],
)
def test_nothing_is_written_any_more(end: AnyEvent):
    assert patched(*a_running_job(), end) == []


def test_of_a_job_that_is_gone_the_requests_that_are_over_show_it_and_those_that_wait_are_those_of_the_next():
    ended = [*scaling_out(2), scale_in(1, request=R2), ScaleFailed(request=R1, reason="DeadlineExceeded")]
    assert patched(*a_running_job(), *ended, JobGone()) == ["scaleout-request-1"]


REFUSED_FOR_GOOD = EffectRefused(effect="PatchStatus", reason="Invalid", permanent=True)


def patches(*story: AnyEvent) -> list[PatchStatus]:
    return [step for step in given(*story).steps(decide) if isinstance(step, PatchStatus)]


def test_a_document_that_was_refused_for_good_is_not_written_again_before_the_next_phase():
    running = a_running_job()
    assert patches(*running)
    refused = [*running, REFUSED_FOR_GOOD]
    assert not patches(*refused)
    assert not next_due(given(*refused).job), "no timer adds an event for ever"
    assert patches(*refused, JobSucceeded(reason="TrainingJobSucceeded"))


def test_a_document_that_was_refused_waits_for_its_back_off():
    refused = [*a_running_job(), EffectRefused(effect="PatchStatus", reason="Forbidden")]
    assert not patches(*refused)
    (timer,) = next_due(given(*refused).job)
    assert patches(*refused, TimePassed(anchor=timer.anchor, timer=timer.name))
