"""The first sentence of `muster why`: state, cause, and what happens next and when."""

import msgspec
import pytest

from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import ScaleAccepted, ScaleFailed, ScaleRejected, ScaleSucceeded
from shared.job.events.scheduler import JobRestarted, SlotsReleased
from shared.job.events.status import (
    JobFailed,
    JobRestarting,
    JobRunning,
    JobScaling,
    JobSucceeded,
    JobSuspended,
    JobSuspending,
)
from shared.job.events.watcher import ProgressReported, TimePassed
from shared.job.evolve_requests import NEVER_BOUND
from shared.job.naming import NO_UID, JobKey, Uid
from shared.job.spec import Elasticity, ScaleKind
from shared.job.views import Actor, Member
from shared.telling.causes.walk import Causes
from shared.telling.reading import fold_all
from shared.telling.why import explained
from tests.kit.builders import (
    R1,
    R2,
    a_created_job,
    a_running_job,
    a_spec,
    exited,
    launcher,
    observed,
    pods,
    published,
    scale_in,
    scale_out,
    scaling_out,
    worker,
    workers,
)
from tests.kit.histories import log_of
from tests.muster.test_why import JOB, causes_of, said
from tests.scheduler.test_queueing import a_queued_job, admitted
from tests.status.test_launcher_wait import a_job_whose_launcher_waits

NO_GPU = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
WAITING = pods(worker(0, phase="Pending", ready=False, reason="Unschedulable", message=NO_GPU))
WITHOUT_NODES = pods(
    *(worker(at, phase="Pending", ready=False, reason="Unschedulable", message=NO_GPU) for at in (1, 2))
)
WITHOUT_IMAGE = pods(worker(0, phase="Pending", ready=False, reason="ErrImagePull", message="not found"))
NEVER_READY = pods(worker(0, ready=False, reason="ContainersNotReady"))
DELETED = pods(worker(0, version=40, ready=False, deleting=True))
SUCCEEDED = JobSucceeded(reason="TrainingJobSucceeded")
CRASHED = pods(launcher(version=90, phase="Failed", exits=exited(1)))
AGAIN = JobRestarting(reason="TrainingJobFailed", message="the launcher exited with 1 (Error); restart 1 of 6")


def sentence(*events: AnyEvent, word: str = "") -> str:
    """The first line, after the name and the uid."""
    return said(causes_of(*events), word).splitlines()[0].partition(": ")[2]


@pytest.mark.parametrize(
    ("events", "told"),
    [
        pytest.param(
            a_running_job(active_deadline_seconds=3600),
            "Running, 2 of 2 workers in the hosts files; "
            "it fails at 01:00:02 UTC unless it ends before (activeDeadlineSeconds)",
            id="a deadline",
        ),
        pytest.param(
            a_running_job(active_deadline_seconds=90_000),
            "Running, 2 of 2 workers in the hosts files; "
            "it fails at 2030-01-02 01:00:02 UTC unless it ends before (activeDeadlineSeconds)",
            id="a deadline of another day",
        ),
        pytest.param(
            [*a_created_job(scheduling_timeout_seconds=60), WAITING],
            f"Created, 0 of 2 workers in the hosts files: resnet-worker-0: Unschedulable: {NO_GPU}; "
            "it fails at 00:01:03 UTC at the earliest unless its pods are Ready before (schedulingTimeoutSeconds)",
            id="a job that waits for nodes",
        ),
        pytest.param(
            a_job_whose_launcher_waits(restart="OnFailure"),
            "Created, 2 of 2 workers in the hosts files: LauncherUnschedulable: resnet-launcher finds no node while "
            "2 workers of its job hold theirs; 224 s after 00:00:09 UTC they are given back, and another attempt "
            "follows (2 of 20 in a row): 0/1 nodes are available: 1 Too many pods.; "
            "the attempt ends at 00:03:53 UTC at the earliest unless there is room before",
            id="a launcher that waits for a node",
        ),
        pytest.param(
            [*a_created_job(3, least=2, elasticity=Elasticity()), pods(worker(0, node="node-1")), WITHOUT_NODES],
            "Created, 0 of 3 workers in the hosts files: MinimumUnschedulable: fewer than 2 workers (minReplicas) find "
            f"a node, and they hold theirs; 224 s after 00:00:05 UTC they are given back, and the job waits for room: "
            f"{NO_GPU}; the attempt ends at 00:03:49 UTC at the earliest unless there is room before",
            id="a minimum that waits for nodes",
        ),
        pytest.param(
            [*a_running_job(), CRASHED, AGAIN, SlotsReleased(slots=(workers(0, 1),)), JobRestarted(attempt=1)],
            "Restarting, 0 of 2 workers in the hosts files, attempt 2, 1 of at most 6 restarts: "
            "the launcher exited with 1 (Error); restart 1 of 6",
            id="an attempt that begins",
        ),
        pytest.param(
            [*a_running_job(), CRASHED, AGAIN],
            "Restarting: the launcher exited with 1 (Error); restart 1 of 6; attempt 2 begins at 00:00:22 UTC",
            id="a back-off",
        ),
        pytest.param(
            [*a_running_job(), *scaling_out(2), ScaleFailed(request=R1, reason="X", released=(workers(2),))],
            "Scaling, 2 of 2 workers in the hosts files",
            id="a job that runs, and one of whose pods may still come",
        ),
        pytest.param(
            [*a_running_job(stall_timeout_seconds=30), ProgressReported(pod=Uid("a"), attempt=0, step=1, waited=8)],
            "Running, 2 of 2 workers in the hosts files; "
            "it counts as stalled at 00:00:33 UTC at the earliest unless it makes a step before",
            id="a training that may stall, and was last heard of before that was recorded",
        ),
        pytest.param(
            [*a_running_job(ttl_seconds_after_finished=600), JobFailed(reason="X", message="exited with 1")],
            "Failed: exited with 1; it is deleted at 00:10:11 UTC (ttlSecondsAfterFinished)",
            id="a failed job with a time to live",
        ),
        pytest.param(
            [
                *a_running_job(clean="None"),
                pods(launcher(version=90, phase="Failed", exits=exited(3))),
                JobFailed(reason="X", message="exited with 3"),
            ],
            "Failed: exited with 3; it stays until it is deleted, and 2 pods run on (cleanPodPolicy: None)",
            id="a job that is over, whose workers run on",
        ),
        pytest.param(
            [*a_created_job(), NEVER_READY, TimePassed(anchor=3, timer="Waiting")],
            "Created, 0 of 2 workers in the hosts files: resnet-worker-0: ContainersNotReady; "
            "it starts by itself once that is over, and no limit of time ends the wait",
            id="a worker that is not Ready for long",
        ),
        pytest.param(
            [observed(a_spec(suspend=True)), JobSuspended(reason="TrainingJobSuspended")],
            "Suspended: the job was applied: 2 workers (1 or more), suspended; "
            "`muster resume trainingjob/resnet` starts it",
            id="a job that was applied suspended",
        ),
        pytest.param(
            [*a_running_job(of_workers="OnFailure"), DELETED, published(2, 1)],
            "Running, 1 of 2 workers in the hosts files: resnet-worker-0 is being deleted since 00:00:11 UTC",
            id="a worker that a person deletes, at once",
        ),
        pytest.param(
            [*a_running_job(1), pods(worker(0, version=40, phase="Failed", exits=exited(3)))],
            "Running, 1 of 1 worker in the hosts files: resnet-worker-0 exited with 3 (Error) and is not replaced "
            "(restartPolicy: Never); no running worker left, and minReplicas is 1; "
            "the attempt ends at 00:10:11 UTC at the earliest unless enough workers run before",
            id="a job without a running worker",
        ),
        pytest.param(
            [*a_running_job(), JobSuspending(reason="X", message="waits for quota in queue team-a")],
            "Suspending: waits for quota in queue team-a; it is Suspended once its last pod is gone",
            id="a job that loses its quota",
        ),
    ],
)
def test_the_first_line_says_state_cause_and_what_comes_next(events: list[AnyEvent], told: str):
    assert sentence(*events) == told


def test_a_request_that_waits_says_for_what():
    words = sentence(*a_created_job(), scale_out(2), word="scaleout/scaleout-request-1")
    assert words == "Pending: JobNotRunning: its turn comes once the job is Running"


def test_a_request_that_failed_for_want_of_its_job_does_not_wait_for_it():
    nobody = JobKey("team-a", "nobody", NO_UID)
    causes = fold_all(Causes(nobody), log_of([scale_out(2), TimePassed(anchor=1, timer="JobWait")], key=nobody))
    heading, chains = explained(causes, "scaleout/scaleout-request-1", JOB)
    assert heading == [f"scaleout/scaleout-request-1: Failed (JobNotFound): {NEVER_BOUND}"]
    assert not any(chain.question == "what it waits for" for chain in chains)


BY_CAPACITY = {"elasticity": Elasticity(), "most": 4}
AUTOSCALER = Actor("kube-controller-manager", "Update", "scale")


def sized(uid: str, kind: ScaleKind, *indices: int, size: int, by: Actor | None = None) -> list[AnyEvent]:
    """The job has another size: by an edit, or by a request of that uid."""
    moved = {"added": (workers(*indices),)} if kind == "ScaleOut" else {"leaving": tuple(map(Member, indices))}
    accepted = ScaleAccepted(request=Uid(uid), kind=kind, deadline=60, drain=0, **moved)  # type: ignore[arg-type]
    if by is None:
        asked: AnyEvent = scale_out(len(indices)) if kind == "ScaleOut" else scale_in(len(indices))
    else:
        edit = observed(a_spec(size, **BY_CAPACITY), generation=2)  # type: ignore[arg-type]
        asked = msgspec.structs.replace(edit, by=(by,))
    files = published(10 - size, *range(size), request=Uid(uid))
    ended = ScaleSucceeded(request=Uid(uid), reason="Done")
    return [asked, accepted, JobScaling(reason="ScalingStart"), files, ended, JobRunning(reason="TrainingJobRunning")]


BY_PROGRAM = sized("replicas-2", "ScaleOut", 2, 3, size=4, by=AUTOSCALER)
BY_REQUEST = sized(R1, "ScaleOut", 2, 3, size=4)
LESS = sized(R1, "ScaleIn", 3, size=3)
BEYOND = [scale_out(9, request=R2), ScaleRejected(request=R2, reason="AboveMaximum")]
NO_NODE = pods(worker(2), worker(3, phase="Pending", ready=False, reason="Unschedulable"))


@pytest.mark.parametrize(
    ("events", "told"),
    [
        pytest.param([], "its resource asks for 2 workers", id="the resource"),
        pytest.param(BY_PROGRAM, "an autoscaler (kube-controller-manager, scale) asked for 4 workers", id="an edit"),
        pytest.param([*BY_PROGRAM, *LESS], "ScaleIn scalein-request-1 asked for 3 workers", id="the newest counts"),
        pytest.param(
            [*BY_PROGRAM, *BEYOND],
            "an autoscaler (kube-controller-manager, scale) asked for 4 workers",
            id="a request beyond the bounds of the resource",
        ),
        pytest.param(
            [*BY_REQUEST, admitted(size=3, version=70, ready=True)],
            "ScaleOut scaleout-request-1 asked for 4 workers; its queue admitted 3",
            id="a queue bounds the newest request",
        ),
        pytest.param(
            [*BY_REQUEST, admitted(size=3, version=70, ready=True), NO_NODE],
            "ScaleOut scaleout-request-1 asked for 4 workers; its queue admitted 3; "
            "the kube-scheduler finds no node for 1",
            id="the room bounds what the queue admitted",
        ),
    ],
)
def test_who_decided_the_size_is_told_each_bounded_by_the_next(events: list[AnyEvent], told: str):
    job = a_queued_job(2, elasticity=Elasticity())
    assert f"its size: {told}" in said(causes_of(*job, admitted(size=4, version=60, ready=True), *events)).splitlines()
