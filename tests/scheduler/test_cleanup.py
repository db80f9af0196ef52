"""What stays and what goes after the end."""

import pytest
from msgspec.structs import replace

from services.scheduler.core.effects import DeleteJob, DeletePod, DeleteSecret, DeleteService
from shared.job.events.event import EffectRefused
from shared.job.events.scheduler import JobExpired, SlotsReleased
from shared.job.events.status import JobFailed, JobSucceeded
from shared.job.events.watcher import ChildrenObserved, JobDeleting, JobGone, TimePassed
from shared.job.naming import Uid, secret_name
from shared.job.spec import LAUNCHER, CleanPodPolicy
from shared.job.steps import Record
from shared.job.timing import next_due
from shared.job.views import ChildView, PodView, Slots
from tests.kit.builders import a_created_job, a_running_job, exited, launcher, pods, worker, workers
from tests.kit.histories import KEY
from tests.kit.replicas import TOGETHER, a_created_replicated_job, a_replicated_spec, a_running_replicated_job, ended
from tests.kit.stories import given, scheduler

END = [pods(launcher(version=30, phase="Succeeded", exits=exited(0))), JobSucceeded(reason="TrainingJobSucceeded")]
LAUNCHER_SLOT = Slots(0, LAUNCHER, ((0, 0),))


@pytest.mark.parametrize(
    ("policy", "released"),
    [
        pytest.param("Running", (workers(0),), id="running pods go, ended ones stay"),
        pytest.param("All", (LAUNCHER_SLOT, workers(0, 1)), id="all go, the launcher too"),
        pytest.param("None", (), id="none goes"),
    ],
)
def test_the_policy_says_who_goes(policy: CleanPodPolicy, released: tuple[Slots, ...]):
    release = [Record(SlotsReleased(slots=released, reason=f"CleanPodPolicy{policy}"))] if released else []
    given(*a_running_job(workers=2, clean=policy), pods(worker(1, version=25, phase="Failed")), *END).then(
        scheduler, *release
    )


@pytest.mark.parametrize(
    ("pod", "goes"),
    [
        pytest.param(worker(1, version=25, phase="Pending", reason="Unschedulable"), True, id="it waits for a node"),
        pytest.param(worker(1, version=25, phase="Pending", node="node-1"), False, id="its image is pulled there"),
        pytest.param(worker(1, version=25, node="node-1"), False, id="it runs"),
    ],
)
def test_a_pod_that_waits_for_a_node_goes_whatever_the_policy_says(pod: PodView, goes: bool):
    over = [*a_running_job(workers=2, clean="None"), pods(pod), *END]
    released = SlotsReleased(slots=(workers(1),), reason="NeverPlaced")
    given(*over).then(scheduler, *([Record(released)] if goes else []))
    if goes:
        given(*over, released).then(scheduler, DeletePod("resnet-worker-1", Uid("pod-1")))


WINDING_DOWN = a_replicated_spec(handling=replace(TOGETHER, winds_down=True))
LED = [
    *a_running_replicated_job(WINDING_DOWN),
    ended("chief", 0, 0),
    JobSucceeded(reason="TrainingJobSucceeded"),
]


def test_pods_that_end_soon_after_their_leader_have_time_to_do_so():
    given(*LED).then_nothing(scheduler)
    (timer,) = next_due(given(*LED).job)
    assert (timer.anchor, timer.name, timer.seconds) == (len(LED), "WindingDown", 30)
    over = [*LED, ended("worker", 0, 0), ended("worker", 1, 0)]
    given(*over).then_nothing(scheduler)
    assert [*next_due(given(*over).job)] == []


def test_a_pod_that_runs_on_after_its_leader_is_cleaned_up_in_the_end():
    story = [*LED, ended("worker", 0, 0), TimePassed(anchor=len(LED), timer="WindingDown")]
    left = (Slots(0, "worker", ((1, 1),)),)
    given(*story).then(scheduler, Record(SlotsReleased(slots=left, reason="CleanPodPolicyRunning")))


def test_a_failed_job_and_one_whose_leader_ends_with_all_others_are_cleaned_up_at_once():
    everyone = (Slots(0, "worker", ((0, 1),)),)
    for spec, end in (
        (WINDING_DOWN, JobFailed(reason="TrainingJobFailed")),
        (a_replicated_spec(handling=TOGETHER), JobSucceeded(reason="TrainingJobSucceeded")),
    ):
        story = [*a_running_replicated_job(spec), ended("chief", 0, int(isinstance(end, JobFailed))), end]
        given(*story).then(scheduler, Record(SlotsReleased(slots=everyone, reason="CleanPodPolicyRunning")))


SERVICE = ChildrenObserved(children=(ChildView(kind="Service", name="resnet", uid=Uid("svc"), version=5, ours=True),))


def test_the_service_of_a_job_goes_with_its_last_pod_or_when_none_was_ever_made():
    refused = EffectRefused(effect="CreatePod", slots=(workers(0, 1),), reason="Invalid", permanent=True)
    never = [*a_created_job(workers=2), SERVICE, refused, JobFailed(reason="Invalid")]
    given(*never).then_among_others(scheduler, DeleteService("resnet", Uid("svc")))
    assert not any(isinstance(step, DeleteService) for step in given(*a_running_job(), SERVICE, *END).steps(scheduler))


def test_the_service_of_a_single_pod_goes_when_its_pod_is_gone_or_never_came():
    spec = replace(a_replicated_spec(), clean_pod_policy="Running")
    refused = EffectRefused(effect="CreatePod", slots=(workers(1),), reason="Invalid", permanent=True)
    created = a_created_replicated_job(spec)
    failed = [*created, refused, JobFailed(reason="Invalid")]
    services = [child.name for child in given(*failed).job.objects.children.values()]
    assert services
    given(*failed).then_among_others(scheduler, *(DeleteService(name, Uid(name)) for name in services))
    # Pods that are there keep theirs, and so does a job that keeps its pods.
    over = [*a_running_replicated_job(spec), ended("chief", 0, 0), JobSucceeded(reason="TrainingJobSucceeded")]
    assert not any(isinstance(step, DeleteService) for step in given(*over).steps(scheduler))
    kept = [*a_created_replicated_job(replace(spec, clean_pod_policy="None")), *failed[len(created) :]]
    assert not any(isinstance(step, DeleteService) for step in given(*kept).steps(scheduler))


def test_released_pods_are_deleted_once():
    released = SlotsReleased(slots=(workers(0, 1),), reason="CleanPodPolicyRunning")
    given(*a_running_job(), *END, released, pods(worker(0, version=40, deleting=True))).then(
        scheduler, DeletePod("resnet-worker-1", Uid("pod-1"))
    )


BRIEF = [*a_running_job(workers=1, clean="None", ttl_seconds_after_finished=60), *END]


def test_after_its_time_to_live_the_resource_goes():
    [timer] = next_due(given(*BRIEF).job)
    assert (timer.name, timer.seconds) == ("TimeToLive", 60)
    given(*BRIEF).then_nothing(scheduler)
    late = [*BRIEF, TimePassed(anchor=timer.anchor, timer=timer.name)]
    given(*late).then(scheduler, Record(JobExpired()))
    given(*late, JobExpired()).then(scheduler, DeleteJob())


def test_without_a_time_to_live_it_stays():
    assert next_due(given(*a_running_job(clean="None"), *END).job) == ()


def test_a_job_that_is_gone_leaves_nothing():
    given(*a_running_job(workers=1), JobGone()).then(
        scheduler,
        DeletePod("resnet-launcher", Uid("pod-launcher")),
        DeletePod("resnet-worker-0", Uid("pod-0")),
        DeleteService("resnet", Uid("svc")),
        DeleteSecret(0, secret_name(KEY, 0), Uid("keys-0")),
    )


def test_an_orphaning_delete_leaves_the_children():
    given(*a_running_job(), JobDeleting(version=9, orphan=True), JobGone()).then_nothing(scheduler)
