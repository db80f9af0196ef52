"""A job in short: the phase, the pods and the restarts that its own status shows."""

import msgspec
import pytest

from muster.following import condition_of
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import JobRestarted, SlotsAssigned, SlotsReleased
from shared.job.events.status import JobRestarting, JobSucceeded, JobSuspended, JobSuspending
from shared.job.events.watcher import JobDeleting, JobGone, JobObserved, PodsGone, PodsObserved, TimePassed
from shared.job.naming import Uid
from shared.job.views import Slots
from shared.telling.shown import Shown
from shared.telling.targets import known_kinds
from tests.kit.builders import (
    a_created_job,
    a_running_job,
    a_spec,
    exited,
    launcher,
    observed,
    pods,
    with_devices,
    worker,
)
from tests.kit.histories import a_history
from tests.kit.replicas import a_replicated_spec, a_running_replicated_job, ended, replica
from tests.kit.swarm import WITH_SWARMS

replace = msgspec.structs.replace

FILLED = SlotsAssigned(
    slots=(Slots(0, "worker", ((0, 0),)),), replaces=(Slots(0, "worker", ((0, 0),)),), reason="WorkersReplaced"
)


def of(*events: AnyEvent) -> Shown:
    return Shown.of(a_history(events), known_kinds())


def a_job_of(kind: str, group: str = "kubeflow.org") -> list[AnyEvent]:
    """One of two workers and a chief, any of which begins again after a failure."""
    first, *rest = a_running_replicated_job(a_replicated_spec("OnFailure"))
    assert isinstance(first, JobObserved)
    return [replace(first, kind=kind, api_version=f"{group}/v1"), *rest]


def a_crash_loop(kind: str) -> list[AnyEvent]:
    """Its first worker failed, was made again, and failed again."""
    job = [*a_job_of(kind), ended("worker", 0, 1), PodsGone(uids=(Uid("worker-0-0"),)), FILLED]
    return [*job, PodsObserved(pods=(replica("worker", 0, life=1),)), ended("worker", 0, 1, life=1)]


@pytest.mark.parametrize("kind", ["TFJob", "PyTorchJob"])
def test_a_job_whose_pods_crash_is_restarting_as_kubectl_shows_it(kind: str):
    found = of(*a_crash_loop(kind))
    assert (found.phase, found.ready, found.wanted, found.restarts) == ("Restarting", 2, 3, 1)


@pytest.mark.parametrize("deletion", [JobGone(version=90), JobDeleting(version=90, finalizers=("foregroundDeletion",))])
@pytest.mark.parametrize("kind", ["TFJob", "PyTorchJob", "TrainingJob"])
def test_the_pods_of_a_deleted_job_end_with_it_and_the_job_is_not_restarting(kind: str, deletion: AnyEvent):
    job = a_running_job(2) if kind == "TrainingJob" else a_job_of(kind)
    last = worker(1, version=90, phase="Failed", exits=exited(137, "Error"), deleting=True)
    found = of(*job, deletion, ended("worker", 0, 137) if kind != "TrainingJob" else pods(last))
    assert (found.phase, found.restarts) == ("Running", 0)
    running = condition_of(found.status, "Running")
    assert not running.get("message") or "137" not in running["message"]


def test_a_replicated_job_runs_when_what_took_the_place_runs():
    job = a_crash_loop("TFJob")
    again = PodsObserved(pods=(replica("worker", 0, life=2),))
    found = of(
        *job, PodsGone(uids=(Uid("worker-0-1"),)), TimePassed(anchor=len(job), timer="Replacement"), FILLED, again
    )
    assert (found.phase, found.ready, found.wanted, found.restarts) == ("Running", 3, 3, 2)


@pytest.mark.parametrize(
    ("events", "short"),
    [
        pytest.param([], ("", 0, 0, 0), id="nothing is known"),
        pytest.param([observed(a_spec(2))], ("", 0, 0, 0), id="seen and not taken on"),
        pytest.param(a_created_job(2), ("Created", 0, 2, 0), id="workers are to be made"),
        pytest.param(a_running_job(2), ("Running", 3, 3, 0), id="runs"),
        pytest.param(
            [*a_running_job(2), pods(worker(1, version=30, ready=False))], ("Running", 2, 3, 0), id="one is not Ready"
        ),
        pytest.param(
            [*a_running_job(2), pods(worker(1, version=30, phase="Failed", exits=exited(1)))],
            ("Running", 2, 3, 0),
            id="one was lost for good",
        ),
        pytest.param(
            [*a_running_job(2), JobRestarting(reason="BelowMinimum")], ("Restarting", 3, 3, 0), id="is given up"
        ),
        pytest.param(
            [*a_running_job(2), JobSuspending(reason="TrainingJobSuspending")],
            ("Suspending", 3, 0, 0),
            id="is about to be suspended",
        ),
        pytest.param(
            [*a_running_job(2), JobSuspended(reason="TrainingJobSuspended")], ("Suspended", 3, 0, 0), id="is suspended"
        ),
        pytest.param(
            [
                *a_running_job(2),
                pods(launcher(version=40, phase="Succeeded")),
                JobSucceeded(reason="TrainingJobSucceeded"),
            ],
            ("Succeeded", 2, 0, 0),
            id="is over",
        ),
    ],
)
def test_a_training_job_in_short(events: list[AnyEvent], short: tuple[str, int, int, int]):
    found = of(*events)
    assert (found.phase, found.ready, found.wanted, found.restarts) == short


def test_a_job_between_two_attempts_wants_all_its_pods():
    job = [*a_running_job(2), JobRestarting(reason="BelowMinimum")]
    released = Slots(0, "worker", ((0, 1),)), Slots(0, "launcher", ((0, 0),))
    found = of(*job, SlotsReleased(slots=released, reason="JobRestarting"))
    assert (found.phase, found.ready, found.wanted) == ("Restarting", 0, 3)


def test_a_new_attempt_is_a_restart():
    job = [*a_running_job(2), JobRestarting(reason="BelowMinimum")]
    assert of(*job, JobRestarted(attempt=1, reason="BelowMinimum")).restarts == 1


def test_a_kind_whose_status_has_no_phase_shows_that_of_the_log():
    events = a_job_of("SwarmJob", "test.muster.dev")
    assert Shown.of(a_history(events), WITH_SWARMS).phase == "Running"


def test_a_kind_that_is_not_known_here_shows_what_the_log_says():
    found = Shown.of(a_history(a_job_of("SwarmJob", "test.muster.dev")), BUILT_IN)
    assert (found.phase, found.ready, found.wanted, found.status) == ("Running", 3, 3, {})


@pytest.mark.parametrize(
    ("more", "wanted", "held"),
    [
        pytest.param([], 16, 8, id="one has a node"),
        pytest.param([pods(worker(1, version=90, node="n-2"))], 16, 16, id="both have"),
        pytest.param([pods(worker(0, version=90, node="n-1", deleting=True))], 16, 8, id="it is being deleted"),
        pytest.param([pods(worker(0, version=90, node="n-1", phase="Failed", exits=exited(1)))], 16, 0, id="it ended"),
        pytest.param(
            [pods(worker(0, version=90, node="n-1", phase="Failed", exits=exited(1), lingers=True))],
            16,
            8,
            id="another container of it runs on",
        ),
        pytest.param([JobSucceeded(reason="JobSucceeded")], 0, 8, id="the job is over"),
    ],
)
def test_devices_are_held_by_pods_on_nodes_and_wanted_by_all_that_are_wanted(
    more: list[AnyEvent], wanted: int, held: int
):
    found = of(*with_devices(a_running_job(2), 8), pods(worker(0, version=80, node="n-1")), *more)
    gpus = {"nvidia.com/gpu": wanted}, {"nvidia.com/gpu": held}
    assert (found.devices, found.devices_held) == tuple({name: n for name, n in each.items() if n} for each in gpus)
