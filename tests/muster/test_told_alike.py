"""What a job lacks has one reason: in its status, in an Event, and in the first line of `muster why`."""

import pytest
from msgspec.structs import replace

from shared.eventlog import Stored
from shared.eventlog.subject import Subject
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scaler import ScaleFailed, ScaleRejected, ScaleSucceeded
from shared.job.events.scheduler import SlotsReleased
from shared.job.events.status import JobRunning, JobSucceeded, JobSuspending
from shared.job.events.watcher import JobObserved, TimePassed
from shared.job.naming import JobKey, key_of
from shared.job.spec import LAUNCHER, REPLICATED
from shared.job.timing import next_due
from shared.job.views import Slots
from shared.job.waiting import told
from shared.telling.causes.walk import Causes
from shared.telling.targets import Target
from shared.telling.why import explained
from tests.kit.builders import (
    R1,
    a_created_job,
    a_running_job,
    exited,
    hosts_file,
    launcher,
    pods,
    published,
    scaling_out,
    worker,
    workers,
)
from tests.kit.groups import E2, a_running_group, growing, sized
from tests.kit.stories import given
from tests.kit.telling import says, told_differently
from tests.muster.test_why import causes_of, said
from tests.simulation.plan import plan_of
from tests.simulation.run import simulate

SEEDS = range(3, 7)

ALL = (workers(0, 1), Slots(0, LAUNCHER, ((0, 0),)))
DONE = [pods(launcher(version=90, phase="Succeeded", exits=exited(0))), JobSucceeded(reason="TrainingJobSucceeded")]
GOING = {"version": 95, "deleting": True, "grace": 30, "node": "node-1"}
PENDING = {"phase": "Pending", "version": 40}
PAUSING = JobSuspending(reason="TrainingJobSuspending")
FAILED = ScaleFailed(request=E2, reason="DeadlineExceeded", released=(workers(2, 3),))
RUNNING = JobRunning(reason="TrainingJobRunning")
ONE_SIZE = {"handling": REPLICATED}
"""Of a PyTorchJob without elasticPolicy."""
WITHOUT_RIGHT = EffectRefused(effect="DeletePod", reason="Forbidden", message="no right")
USED_UP = EffectRefused(effect="CreatePod", reason="QuotaExceeded", message="used up", slots=(workers(3),))
GROWN = [pods(worker(2)), published(2, 0, 1, 2, request=R1), hosts_file(2), pods(launcher(version=30, hosts=2))]
BESIDE = pods(worker(0, version=95, reason="CrashLoopBackOff", message="sidecar proxy exited with 4 (Error)"))
UNWRITTEN = [*a_running_job(2, written=True), *scaling_out(2), *GROWN]


def of(causes: Causes) -> str:
    """What tells no reason, or another one."""
    job = causes.job
    if job.halted or job.resource.gone or not BUILT_IN.knows(job) or (wait := told(job)) is None:
        return ""
    framework = BUILT_IN.of(job)
    (first, *_), _ = explained(causes, "", Target(framework.resource, job.key.name, framework=framework))
    return told_differently(job, BUILT_IN) or ("" if says(first, wait) else f"no {wait.reason} in {first}")


@pytest.mark.parametrize(
    ("events", "reason", "words"),
    [
        pytest.param(
            [*a_running_job(2), *DONE, SlotsReleased(slots=(workers(0, 1),)), pods(worker(1, **GOING))],
            "PodsTerminating",
            "resnet-worker-1 is being deleted on node-1 since 00:00:14 UTC, and may take 30 s to end",
            id="a job that is over, whose pod does not go",
        ),
        pytest.param(
            [*a_running_job(2), *DONE, SlotsReleased(slots=(workers(0, 1),)), WITHOUT_RIGHT],
            "Forbidden",
            "DeletePod was refused: no right",
            id="a job that is over, whose pods may not be deleted",
        ),
        pytest.param(
            [*a_running_job(2), PAUSING, SlotsReleased(slots=ALL), pods(worker(1, **GOING))],
            "PodsTerminating",
            "resnet-worker-1 is being deleted on node-1",
            id="a job that is being suspended",
        ),
        pytest.param(
            [*a_running_job(2), *scaling_out(2, 3), pods(worker(2)), USED_UP],
            "QuotaExceeded",
            "used up",
            id="a quota that is used up in the middle of a growth",
        ),
        pytest.param(
            [*a_running_job(2), *scaling_out(2, 3), pods(worker(2), worker(3, reason="ErrImagePull", **PENDING))],
            "ErrImagePull",
            "resnet-worker-3: ErrImagePull",
            id="a growth of which one worker has no image",
        ),
        pytest.param(
            [*a_created_job(2), pods(worker(0), worker(1, reason="ContainerCreating", **PENDING))],
            "ContainerCreating",
            "resnet-worker-1: ContainerCreating",
            id="a volume that is not mounted",
        ),
        pytest.param(
            [*a_created_job(2), pods(worker(0), worker(1, reason="SchedulingGated", message="gated", **PENDING))],
            "SchedulingGated",
            "resnet-worker-1: SchedulingGated: gated",
            id="a scheduling gate",
        ),
        pytest.param(
            [*a_running_job(2, of_workers="OnFailure"), pods(worker(1, version=40, phase="Failed", reason="Evicted"))],
            "Evicted",
            "resnet-worker-1 is lost: Evicted; it is replaced",
            id="an eviction for the pressure of a node",
        ),
        pytest.param(
            [*growing(2, 3), FAILED, RUNNING],
            "DeadlineExceeded",
            "the job keeps 2 workers, and its spec asks for 4: DeadlineExceeded",
            id="an edit of the size that failed, in a kind without scale requests",
        ),
        pytest.param(
            [*a_running_group(2, **ONE_SIZE), sized(4, **ONE_SIZE), ScaleRejected(request=E2, reason="NotElastic")],
            "NotElastic",
            "the job keeps 2 workers, and its spec asks for 4: NotElastic: jobs of this kind keep the number",
            id="an edit of the size in a kind that keeps it",
        ),
        pytest.param(
            [*UNWRITTEN, ScaleSucceeded(request=R1, reason="ScalingOutSucceeded"), RUNNING],
            "SizeNotWritten",
            "the job keeps 3 workers, and its spec asks for 2",
            id="a size that is not written into the resource",
        ),
        pytest.param(
            [*UNWRITTEN, ScaleSucceeded(request=R1, reason="ScalingOutSucceeded"), RUNNING, BESIDE],
            "SizeNotWritten",
            "the job keeps 3 workers, and its spec asks for 2",
            id="the same while a sidecar crashes, which hinders nothing",
        ),
    ],
)
def test_an_unusual_phase_has_a_reason_too(events: list[AnyEvent], reason: str, words: str):
    anchors = {timer.anchor for timer in next_due(given(*events).job) if timer.name == "Waiting"}
    causes = causes_of(*events, *(TimePassed(anchor=anchor, timer="Waiting") for anchor in anchors))
    wait = told(causes.job)
    assert wait is not None
    assert wait.reason == reason
    assert words in said(causes).splitlines()[0]
    assert not of(causes)


@pytest.mark.parametrize("kind", ["TrainJob", "TFJob", "MPIJob", "MXJob"])
def test_every_kind_tells_of_pods_that_do_not_go_after_the_end(kind: str):
    framework = next(known for known in BUILT_IN if known.resource.kind == kind)
    going = [SlotsReleased(slots=(workers(0, 1),)), pods(worker(1, **GOING))]
    first, *others = [*a_running_job(2), *DONE, *going, TimePassed(anchor=12, timer="Waiting")]
    assert isinstance(first, JobObserved)
    job = given(replace(first, kind=kind, api_version=framework.resource.api_version), *others).job
    assert told(job) is not None
    assert not told_differently(job, BUILT_IN)


@pytest.mark.parametrize("seed", SEEDS)
def test_status_event_and_why_give_one_reason_at_any_event_of_a_simulation(seed: int):
    log: list[Stored] = []
    simulate(plan_of(seed), log.append)
    known: dict[JobKey, Causes] = {}
    for stored in log:
        key = key_of(Subject.parse(stored.subject))
        causes = known.setdefault(key, Causes(key))
        if causes.history.sequence >= stored.sequence:
            # The plan loses the end of the log.
            return
        causes.fold(stored)
        assert not of(causes), stored.sequence
