"""Whenever wanted and present differ there is one reason, in every phase; what is usual has one after ten seconds."""

import sys
from collections.abc import Iterator
from itertools import count
from types import FrameType
from typing import Any

import msgspec
import pytest

from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scheduler import JobRestarted, SlotsAssigned, SlotsReleased
from shared.job.events.status import JobCreated, JobRestarting, JobRunning, JobSucceeded, JobSuspending
from shared.job.events.watcher import JobDeleting, PodsGone, PodsObserved, TimePassed
from shared.job.naming import Uid
from shared.job.spec import LAUNCHER, RENDEZVOUS, RoleSpec
from shared.job.timing import next_due
from shared.job.views import PodView, Slots
from shared.job.waiting import Wait, told, waiting
from tests.kit.builders import (
    a_created_job,
    a_ready_job,
    a_running_job,
    exited,
    launcher,
    observed,
    pods,
    scaling_out,
    service,
    worker,
    workers,
)
from tests.kit.groups import a_group_spec
from tests.kit.replicas import a_created_replicated_job, a_replicated_spec, a_running_replicated_job, ended, replica
from tests.kit.stories import given

NO_KEYS = 'MountVolume.SetUp failed for volume "muster-ssh" : secret "resnet-ssh-uid-1-0" not found'
OF_LAUNCHER = Slots(0, LAUNCHER, ((0, 0),))
CREATING = {"phase": "Pending", "reason": "ContainerCreating"}
REPLACED = SlotsAssigned(slots=(workers(2),), replaces=(workers(1),), reason="WorkersReplaced")
DELETED = [
    *a_running_job(2, of_workers="OnFailure"),
    pods(worker(1, version=30, phase="Failed", deleting=True, exits=exited(137))),
    PodsGone(uids=(worker(1).uid,)),
]


def of(*story: AnyEvent) -> Wait:
    wait = waiting(given(*story).job)
    assert wait is not None
    return wait


def lost(**more: object) -> list[AnyEvent]:
    """A running job of two whose worker 1 failed and is replaced by worker 2."""
    failed = worker(1, version=30, phase="Failed", exits=exited(1))
    return [*a_running_job(workers=2, of_workers="OnFailure", **more), pods(failed), REPLACED]


@pytest.mark.parametrize(
    ("story", "reason", "message"),
    [
        pytest.param(
            [*a_created_job(2), pods(worker(0, phase="Pending", reason="Unschedulable", message="no GPU"), worker(1))],
            "Unschedulable",
            "resnet-worker-0: Unschedulable: no GPU",
            id="a pod finds no node at the start",
        ),
        pytest.param(
            [*lost(), pods(worker(2, phase="Pending", reason="CreateContainerConfigError", message="no secret"))],
            "CreateContainerConfigError",
            "resnet-worker-2: CreateContainerConfigError: no secret",
            id="a replacement cannot start while the job runs",
        ),
        pytest.param(
            [*a_created_job(2), pods(worker(0, phase="Pending", reason="FailedMount", message=NO_KEYS), worker(1))],
            "FailedMount",
            f"resnet-worker-0: FailedMount: {NO_KEYS}; it was deleted, and only another attempt gets new keys: "
            "`muster restart trainingjob/resnet`",
            id="a person deleted the Secret that Muster made",
        ),
        pytest.param(
            [*lost(), pods(worker(2, **CREATING))],
            "Error",
            "resnet-worker-2 starts: resnet-worker-1 exited with 1 (Error)",
            id="a replacement starts, and the loss is told meanwhile",
        ),
        pytest.param(
            [*a_running_job(2, of_workers="OnFailure"), pods(worker(1, version=30, phase="Failed", exits=exited(1)))],
            "Error",
            "resnet-worker-1 exited with 1 (Error); it is replaced",
            id="a pod was lost",
        ),
        pytest.param(
            DELETED,
            "Deleted",
            "resnet-worker-1 was deleted (exit code 137); it is replaced",
            id="a person deleted a pod, which ended for that",
        ),
        pytest.param(
            [*DELETED, REPLACED, pods(worker(2, **CREATING))],
            "Deleted",
            "resnet-worker-2 starts: resnet-worker-1 was deleted (exit code 137)",
            id="the replacement of a deleted pod starts",
        ),
        pytest.param(
            [*lost(), EffectRefused(effect="CreatePod", reason="QuotaExceeded", message="used up")],
            "QuotaExceeded",
            "CreatePod was refused: used up",
            id="a replacement is refused while the job runs",
        ),
        pytest.param(
            [*a_running_job(2), *scaling_out(2), pods(worker(2, phase="Pending", reason="Unschedulable"))],
            "Unschedulable",
            "resnet-worker-2: Unschedulable",
            id="a worker of a scale-out finds no node",
        ),
        pytest.param(
            [*a_running_job(2), pods(worker(1, version=30, ready=False, reason="CrashLoopBackOff", restarts=3))],
            "CrashLoopBackOff",
            "resnet-worker-1: CrashLoopBackOff",
            id="the kubelet waits before it begins a worker again",
        ),
        pytest.param(
            [*a_running_job(2), pods(worker(1, version=30, deleting=True, grace=30, node="node-1"))],
            "PodsTerminating",
            "resnet-worker-1 is being deleted on node-1 since 00:00:11 UTC, and may take 30 s to end",
            id="a worker is being deleted",
        ),
        pytest.param(
            [*a_running_job(2), pods(worker(1, version=30, deleting=True, finalizers=("a/b", "c")))],
            "PodsTerminating",
            "resnet-worker-1 is being deleted since 00:00:11 UTC; its finalizers keep it (a/b, c), and `kubectl patch "
            """pod -n team-a resnet-worker-1 --type=merge -p '{"metadata":{"finalizers":null}}'` takes them off""",
            id="finalizers keep a worker",
        ),
        pytest.param(
            [*a_running_job(2), JobSuspending(reason="TrainingJobSuspending"), pods(worker(1, version=30))],
            "PodsTerminating",
            "resnet-launcher still runs, and 2 more",
            id="pods have to go before the job is suspended",
        ),
        pytest.param(
            [*a_created_job(2), pods(worker(0))],
            "PodsMissing",
            "resnet-worker-1 is not created yet",
            id="a pod is missing",
        ),
        pytest.param(
            [*a_ready_job(2), SlotsAssigned(slots=(OF_LAUNCHER,)), pods(launcher(**CREATING))],
            "ContainerCreating",
            "resnet-launcher: ContainerCreating",
            id="the launcher is on its way",
        ),
        pytest.param(
            [*a_running_job(1), pods(worker(0, version=30, phase="Failed", exits=exited(1)))],
            "BelowMinimum",
            "no running worker left, and minReplicas is 1: the attempt ends 600 s later",
            id="nothing replaces a lost worker",
        ),
    ],
)
def test_what_a_job_waits_for(story: list[AnyEvent], reason: str, message: str):
    assert (of(*story).reason, of(*story).message) == (reason, message)


def test_a_pod_that_runs_and_never_is_ready_has_the_kubelet_s_words():
    unready = worker(1, ready=False, reason="ContainersNotReady", message="unready: [main]")
    wait = of(*a_created_job(2), pods(worker(0), unready))
    assert (wait.condition, wait.message) == ("WorkersReady", "resnet-worker-1: ContainersNotReady: unready: [main]")


def test_a_container_that_does_not_run_beside_a_training_that_does_is_told_and_takes_no_milestone_back():
    crashes = {"reason": "CrashLoopBackOff", "message": "sidecar proxy exited with 4 (Error)"}
    story = [*a_running_job(2), pods(worker(1, version=30, **crashes))]
    wait = of(*story)
    assert (wait.message, wait.condition) == (
        "resnet-worker-1: CrashLoopBackOff: sidecar proxy exited with 4 (Error)",
        "",
    )
    assert wait.since == of(*story, pods(worker(1, version=31, restarts=1, **crashes))).since
    assert wait.since != of(*story, pods(worker(1, version=31)), pods(worker(1, version=32, **crashes))).since
    missing = worker(0, version=30, phase="Pending", reason="Unschedulable")
    assert of(*story, pods(missing)).reason == "Unschedulable", "what the job lacks goes before"


def test_a_pod_that_was_rejected_is_told_while_the_next_one_starts():
    rejected = replica("chief", 0, phase="Failed", ran=False, reason="UnexpectedAdmissionError", message="no device")
    spec = a_replicated_spec("OnFailure")
    slots = Slots(0, "chief", ((0, 0),))
    again = SlotsAssigned(slots=(slots,), replaces=(slots,), reason="PodsReplaced")
    story = [*a_created_replicated_job(spec), PodsObserved(pods=(rejected,)), PodsGone(uids=(rejected.uid,)), again]
    next_one = PodsObserved(pods=(replica("chief", 0, life=1, **CREATING),))
    assert "no device" in of(*story, next_one).message
    assert told(given(*story, next_one).job) is not None


def test_a_replacement_that_waits_for_the_name_of_the_lost_pod_is_told_after_ten_seconds():
    held = {"phase": "Failed", "exits": exited(137), "deleting": True, "finalizers": ("example.com/keep",)}
    lost_one = PodsObserved(pods=(replica("worker", 1, version=50, **held),))
    story = [*a_running_replicated_job(a_replicated_spec("OnFailure")), lost_one]
    wait = of(*story)
    assert (wait.reason, wait.usual, wait.lost) == ("PodsTerminating", True, False), "an Event of its own tells it"
    assert wait.message.startswith(
        "resnet-worker-1 was deleted (exit code 137); resnet-worker-1 is being deleted since"
    )
    assert "example.com/keep" in wait.message
    (timer,) = (timer for timer in next_due(given(*story).job) if timer.name == "Waiting")
    assert told(given(*story, TimePassed(anchor=timer.anchor, timer=timer.name)).job) == wait


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(a_running_job(2), id="it runs"),
        pytest.param([*a_running_job(2), pods(worker(1, version=30, ready=False))], id="a member is not Ready"),
        pytest.param(a_created_job(2)[:1], id="it was not taken on"),
        pytest.param([*a_created_job(2), JobDeleting(version=9)], id="it is being deleted"),
        pytest.param(a_running_replicated_job(a_replicated_spec()), id="its pods run"),
    ],
)
def test_a_job_that_lacks_nothing_waits_for_nothing(story: list[AnyEvent]):
    assert waiting(given(*story).job) is None


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (1, "Failed")])
def test_workers_that_end_well_are_told_as_too_few_once_their_launcher_does_not_end_too(code: int, phase: str):
    few = [*a_running_job(1), pods(worker(0, version=30, phase=phase, exits=exited(code)))]
    assert of(*few).usual == (told(given(*few).job) is None) == (code == 0)


def test_what_is_usual_is_told_after_ten_seconds_and_the_rest_at_once():
    coming = [*a_created_job(2), pods(worker(0), worker(1, **CREATING))]
    assert told(given(*coming).job) is None
    (timer,) = (timer for timer in next_due(given(*coming).job) if timer.name == "Waiting")
    assert timer.seconds == 10
    late = [*coming, TimePassed(anchor=timer.anchor, timer=timer.name)]
    assert told(given(*late).job) == of(*coming)
    assert "Waiting" not in [timer.name for timer in next_due(given(*late).job)]
    stuck = [*a_created_job(2), pods(worker(0), worker(1, phase="Pending", reason="ImagePullBackOff"))]
    assert told(given(*stuck).job) is not None
    assert "Waiting" not in [timer.name for timer in next_due(given(*stuck).job)]


LATE = {"phase": "Pending", "version": 40}


@pytest.mark.parametrize(
    ("before", "late", "usual"),
    [
        pytest.param(
            [*a_created_job(2), pods(worker(0, **CREATING), worker(1))],
            worker(0, reason="ImagePullBackOff", **LATE),
            False,
            id="a pull that fails long after the start",
        ),
        pytest.param(
            [*a_created_job(2), pods(worker(0, phase="Pending", reason="Unschedulable"), worker(1))],
            worker(0, reason="CreateContainerConfigError", **LATE),
            False,
            id="another trouble after the first",
        ),
        pytest.param(
            [*a_created_job(2), pods(worker(0, phase="Pending", reason="Unschedulable"), worker(1))],
            worker(0, reason="ContainerCreating", **LATE),
            True,
            id="a pod that found its node at last",
        ),
        pytest.param(
            [*a_created_job(2), pods(worker(0), worker(1))],
            worker(0, version=40, ready=False, reason="ContainersNotReady"),
            True,
            id="a worker that was Ready before the launcher began",
        ),
        pytest.param(a_running_job(2), worker(0, version=40, deleting=True), True, id="a deletion while the job runs"),
        pytest.param(
            a_running_job(2),
            worker(0, version=40, ready=False, reason="CrashLoopBackOff"),
            False,
            id="a member that fails in place",
        ),
    ],
)
def test_what_comes_late_is_told_from_then_on(before: list[AnyEvent], late: PodView, usual: bool):
    anchors = {timer.anchor for timer in next_due(given(*before).job) if timer.name == "Waiting"}
    before = [*before, *(TimePassed(anchor=anchor, timer="Waiting") for anchor in anchors)]
    wait = of(*before, pods(late))
    assert (wait.since.sequence, wait.usual) == (len(before) + 1, usual)
    assert told(given(*before, pods(late)).job) == (None if usual else wait)


def test_a_pull_that_is_tried_again_and_again_is_one_trouble():
    story = [*a_created_job(1), pods(worker(0, phase="Pending", reason="ErrImagePull"))]
    again = [pods(worker(0, phase="Pending", reason="ImagePullBackOff", version=40))]
    assert of(*story, *again).since == of(*story).since


def test_workers_that_start_as_usual_have_one_moment():
    story = [*a_created_job(2), pods(worker(0, **CREATING))]
    later = [*story, pods(worker(0, version=11, ready=False, reason="ContainersNotReady"), worker(1, **CREATING))]
    ready = [*later, pods(worker(0, version=12))]
    assert of(*story).since == of(*later).since == of(*ready).since


def test_the_next_attempt_waits_for_the_pods_of_the_last_one_once_its_back_off_is_over():
    failed = pods(launcher(version=90, phase="Failed", exits=exited(1)))
    over = [*a_running_job(2, restart="OnFailure"), failed, JobRestarting(reason="TrainingJobFailed")]
    assert waiting(given(*over).job) is None, "its phase says that it waits, and why"
    released = [*over, SlotsReleased(slots=(workers(0, 1), OF_LAUNCHER), reason="JobRestarting")]
    again = [*released, JobRestarted(attempt=1, counted=True, reason="TrainingJobFailed")]
    wait = of(*again, pods(worker(1, version=95, deleting=True)))
    assert wait.message.startswith("resnet-worker-1 is being deleted")


RESTARTS = [
    *a_running_job(2, restart="OnFailure"),
    pods(launcher(version=90, phase="Failed", exits=exited(1))),
    JobRestarting(reason="TrainingJobFailed"),
    SlotsReleased(slots=(workers(0, 1), OF_LAUNCHER), reason="JobRestarting"),
    JobRestarted(attempt=1, counted=True, reason="TrainingJobFailed"),
]
SUSPENDS = [*a_running_job(2), JobSuspending(reason="TrainingJobSuspending")]
SUCCEEDED = [
    *a_running_job(2),
    pods(launcher(version=90, phase="Succeeded", exits=exited(0))),
    JobSucceeded(reason="TrainingJobSucceeded"),
]


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(RESTARTS, id="before the next attempt"),
        pytest.param(SUSPENDS, id="before the job is suspended"),
        pytest.param(SUCCEEDED, id="after its end"),
    ],
)
def test_pods_that_go_one_after_another_are_one_wait(story: list[AnyEvent]):
    first, second = (pods(worker(index, version=95 + index, deleting=True)) for index in (0, 1))
    both = [*story, first, second]
    (timer,) = (timer for timer in next_due(given(*both).job) if timer.name == "Waiting")
    late = [*both, TimePassed(anchor=timer.anchor, timer=timer.name)]
    oldest_gone = given(*late, PodsGone(uids=(worker(0).uid,))).job
    wait = told(oldest_gone)
    assert wait is not None, "those that are left have been waited for as long"
    assert wait.since == of(*both).since


def test_a_rendezvous_that_is_refused_is_told_while_the_workers_run():
    store, spec = Slots(0, RENDEZVOUS, ((0, 0),)), a_group_spec(2)
    role = RoleSpec(name=RENDEZVOUS, replicas=1, container="main", stem="resnet-rdzv-")
    words = "minimum cpu usage per Container is 100m, but request is 50m"
    story = [
        observed(msgspec.structs.replace(spec, roles=(*spec.roles, role))),
        JobCreated(reason="PyTorchJobCreated"),
        SlotsAssigned(slots=(workers(0, 1), store), reason="JobCreated"),
        EffectRefused(effect="CreatePod", reason="Forbidden", message=words, slots=(store,)),
        pods(worker(0), worker(1)),
        JobRunning(reason="PyTorchJobRunning"),
    ]
    wait = told(given(*story).job)
    assert wait is not None
    assert (wait.reason, wait.message) == ("Forbidden", f"CreatePod was refused: {words}")


def test_a_wait_ends_with_its_cause():
    pending = worker(2, phase="Pending", reason="Unschedulable")
    assert waiting(given(*lost(), pods(pending)).job) is not None
    assert waiting(given(*lost(), pods(pending), pods(worker(2, version=20))).job) is None


def test_a_replicated_job_waits_for_a_pod_in_the_condition_of_its_phase():
    story = [*a_running_replicated_job(a_replicated_spec("OnFailure")), ended("worker", 1, 1)]
    assert of(*story).lost
    assert of(*story).slot is not None


def test_a_refusal_lasts_from_its_first():
    refused = EffectRefused(effect="CreatePod", reason="QuotaExceeded", message="used up")
    story = [*a_created_job(2), service(), refused]
    assert of(*story).since == of(*story, refused).since


def test_a_thread_may_ask_while_another_one_is_answered():
    """As those of the history service and of the page do, which explain a job while the loop shows others."""
    job = given(*lost()).job
    other = msgspec.structs.replace(given(*DELETED).job, key=msgspec.structs.replace(job.key, uid=Uid("other")))
    wanted, before = waiting(job), sys.gettrace()
    # More than the steps of an answer.
    for at in range(50):
        steps = count()

        def between(frame: FrameType, event: str, _: object, steps: Iterator[int] = steps, at: int = at) -> Any:
            if frame.f_code is not type(waiting).__call__.__code__:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode" and next(steps) == at:
                waiting(job)
            return between

        waiting(other)
        sys.settrace(between)
        try:
            found = waiting(job)
        finally:
            sys.settrace(before)
        assert found == wanted
