"""One event of every type, with nothing left at its default: the shape in which this release writes it."""

from shared.job.chain import Head
from shared.job.events import event, scaler, scheduler, status, watcher
from shared.job.events.catalog import AnyEvent
from shared.job.naming import Slot, Uid
from shared.job.spec import LAUNCHER, WORKER, JobSpec, Problem, RoleSpec, ScaleSpec
from shared.job.views import ChildView, Count, Exit, Member, PodView, Reached, Slots

PROBLEM = Problem(reason="NoContainers", field="spec.etReplicaSpecs.worker", message="add at least one container")
POD = PodView(
    uid=Uid("pod-1"),
    name="resnet-worker-1",
    version=41,
    attempt=1,
    role=WORKER,
    index=1,
    phase="Failed",
    ready=True,
    exits=(Exit("main", 137, "OOMKilled"),),
    reason="Evicted",
    node="node-3",
    deleting=True,
    disruption="PreemptionByScheduler",
    hosts=2,
    finalizers=("example.com/keep",),
)
SPEC = JobSpec(
    framework="training",
    roles=(
        RoleSpec(name=LAUNCHER, replicas=1, restart_policy="OnFailure", container="main"),
        RoleSpec(name=WORKER, replicas=4, min_replicas=2, max_replicas=8, restart_policy="ExitCode", container="main"),
    ),
    slots_per_worker=8,
    attach_mode="ssh",
    clean_pod_policy="All",
    restart_policy="OnFailure",
    backoff_limit=3,
    active_deadline_seconds=3_600,
    ttl_seconds_after_finished=60,
    scheduling_timeout_seconds=120,
    suspend=True,
    restart="2026-11-02T03:04:05Z",
    ssh_secret="keys",
)
REQUEST = ScaleSpec(
    kind="ScaleIn",
    job="resnet",
    count=1,
    workers="1",
    timeout_seconds=90,
    backoff_limit=2,
    script=True,
)
WORKERS = (Slots(1, WORKER, ((0, 3), (7, 7))),)
SLOT = Slot(1, WORKER, 3)

EXAMPLES: tuple[AnyEvent, ...] = (
    event.LogCreated(),
    event.EventDisowned(sequence=7, reason="a stolen password"),
    watcher.JobObserved(
        kind="TrainingJob",
        api_version="kai.alibabacloud.com/v1alpha1",
        generation=2,
        version=40,
        epoch=1,
        spec=SPEC,
        problems=(PROBLEM,),
    ),
    watcher.JobDeleting(version=50, orphan=True),
    watcher.JobGone(version=60, reason="Deleted"),
    watcher.JobOfAnother(
        phase="Running",
        reason="BegunByAnother",
        obstacle="its launcher is the pod of a Batch Job: let mpi-operator run until the job ends, or suspend it there",
        kind="MPIJob",
        api_version="kubeflow.org/v1",
    ),
    watcher.JobAdopted(
        source="AnotherOperator",
        attempt=1,
        restarts=2,
        slots=WORKERS,
        next_index=8,
        reason="Adopted",
        lost=WORKERS,
        size=9,
        members=((0, 3),),
        phase="Failed",
        start_time="2030-01-01T00:00:00Z",
        completion_time="2030-01-01T01:00:00Z",
        conditions=(Reached("Created", True, "TrainingJobCreated", "2030-01-01T00:00:00Z"),),
        counts=(Count("worker", succeeded=1, failed=2),),
    ),
    watcher.PodsObserved(pods=(POD,), epoch=1),
    watcher.PodsGone(uids=(Uid("pod-1"), Uid("pod-2"))),
    watcher.LauncherLost(uid=Uid("pod-launcher"), reason="LauncherLost"),
    watcher.ChildrenObserved(
        children=(ChildView(kind="ConfigMap", name="resnet-config", uid=Uid("config"), version=7, ours=True, hosts=3),),
        epoch=1,
    ),
    watcher.ChildGone(kind="Service", name="resnet", uid=Uid("service")),
    watcher.ScaleRequested(
        kind="ScaleIn",
        name="in",
        uid=Uid("request-1"),
        version=70,
        owner=Uid("uid-1"),
        spec=REQUEST,
        problems=(PROBLEM,),
    ),
    watcher.ScaleRequestGone(uid=Uid("request-1"), reason="Bound"),
    watcher.DisruptionNoticed(node="node-3", uids=(Uid("pod-1"),), reason="SpotReclaim", seconds=120),
    watcher.NodeLost(
        node="node-3", uids=(Uid("pod-1"),), reason="NodeUnreachable", since="2030-01-01T00:00:00Z", force_after=60
    ),
    watcher.NodeBack(node="node-3", uids=(Uid("pod-1"),), stays=True),
    watcher.ProgressReported(
        pod=Uid("pod-1"),
        attempt=1,
        step=120,
        total=1000,
        percentage=12,
        remaining=440,
        metrics=(("loss", "0.37"),),
        waited=3,
    ),
    watcher.CheckpointTaken(step=100, pod=Uid("pod-1"), source="Report"),
    watcher.TimePassed(anchor=12, timer="ScalingDeadline"),
    watcher.HistoryBroken(
        log="log-2",
        sequence=90,
        hash="ab12",
        reason="BeyondTheEnd",
        kind="TrainingJob",
        api_version="kai.alibabacloud.com/v1alpha1",
    ),
    watcher.HistoryDisputed(theirs=Head(91, "cd34"), ours=Head(89, "ef56"), reason="HistoryDisputed"),
    watcher.HistoryAccepted(sequence=90, hash="ab12"),
    event.EffectRefused(effect="CreatePod", reason="Invalid", slots=WORKERS, field="spec.containers", permanent=True),
    scaler.ScriptFinished(request=Uid("request-1"), exit_code=1, reason="ScriptFailed"),
    scaler.DrainChecked(request=Uid("request-1"), in_use=(1, 2), reason="NoShell"),
    scheduler.SecretMade(attempt=1, uid=Uid("secret-1")),
    scheduler.SecretGone(attempt=1),
    scheduler.SlotsAssigned(because=11, slot=SLOT, slots=WORKERS, replaces=WORKERS, reason="WorkersReplaced"),
    scheduler.SlotsReleased(because=11, slot=SLOT, slots=WORKERS, reason="Suspended"),
    scheduler.JobRestarted(because=11, slot=SLOT, attempt=1, counted=False, reason="Resumed"),
    scheduler.JobExpired(because=11, slot=SLOT, reason="TTLExpired"),
    scaler.ScaleAccepted(
        because=11,
        slot=SLOT,
        request=Uid("request-1"),
        kind="ScaleIn",
        added=WORKERS,
        leaving=(Member(1, Uid("pod-1")),),
        deadline=90,
        drain=20,
    ),
    scaler.ScaleRejected(because=11, slot=SLOT, request=Uid("request-1"), reason="NoSuchWorker"),
    scaler.HostsPublished(
        because=11, slot=SLOT, version=3, members=((0, 3),), request=Uid("request-1"), reason="ScaleIn", drain=10
    ),
    scaler.ScriptStarted(because=11, slot=SLOT, request=Uid("request-1"), timeout=90),
    scaler.WorkersReleased(because=11, slot=SLOT, request=Uid("request-1"), slots=WORKERS, reason="Drained"),
    scaler.ScaleSucceeded(because=11, slot=SLOT, request=Uid("request-1"), reason="ScalingInSucceeded"),
    scaler.ScaleFailed(because=11, slot=SLOT, request=Uid("request-1"), reason="DeadlineExceeded", released=WORKERS),
    scaler.ScaleCancelled(because=11, slot=SLOT, request=Uid("request-1"), reason="RequestDeleted", released=WORKERS),
    status.JobCreated(because=11, slot=SLOT, reason="TrainingJobCreated", message="taken on"),
    status.JobRunning(because=11, slot=SLOT, reason="TrainingJobRunning", message="it runs"),
    status.JobScaling(because=11, slot=SLOT, reason="ScalingStart", message="it grows"),
    status.JobRestarting(because=11, slot=SLOT, reason="TrainingJobRestarting", message="again"),
    status.JobSuspending(because=11, slot=SLOT, reason="Suspending", message="paused"),
    status.JobSuspended(because=11, slot=SLOT, reason="Suspended", message="paused"),
    status.JobSucceeded(because=11, slot=SLOT, reason="TrainingJobSucceeded", message="done"),
    status.JobFailed(because=11, slot=SLOT, reason="TrainingJobFailed", message="the launcher exited with 1 (Error)"),
    status.JobSealed(
        because=11, first=1, last=11, count=11, hash="7c" * 32, outcome="Succeeded", reason="TrainingJobSucceeded"
    ),
    event.ChangeAttributed(
        of=11,
        write=40,
        user="alice",
        groups=("team-a", "system:authenticated"),
        acting_as="bob",
        agent="kubectl/v1.34.1",
        audit="c7e4ff3b-11b1-486d-a8cf-e5595ec9114a",
    ),
)
