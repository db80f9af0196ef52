"""One event of every type, with nothing left at its default: the shape in which this release writes it."""

from shared.job import events
from shared.job.events import AnyEvent
from shared.job.naming import Uid
from shared.job.spec import LAUNCHER, WORKER, JobSpec, Problem, RoleSpec, ScaleSpec
from shared.job.views import ChildView, Exit, Member, PodView, Slots

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
    pod_names=("resnet-worker-1",),
    timeout_seconds=90,
    backoff_limit=2,
    script=True,
)
WORKERS = (Slots(1, WORKER, ((0, 3), (7, 7))),)

EXAMPLES: tuple[AnyEvent, ...] = (
    events.LogCreated(),
    events.JobObserved(
        kind="TrainingJob",
        api_version="kai.alibabacloud.com/v1alpha1",
        generation=2,
        version=40,
        epoch=1,
        spec=SPEC,
        problems=(PROBLEM,),
    ),
    events.JobDeleting(version=50, orphan=True),
    events.JobGone(version=60, reason="Deleted"),
    events.JobAdopted(
        source="AcceptedLoss", attempt=1, restarts=2, slots=WORKERS, next_index=8, reason="AdoptedAfterLoss"
    ),
    events.PodsObserved(pods=(POD,), epoch=1),
    events.PodsGone(uids=(Uid("pod-1"), Uid("pod-2"))),
    events.LauncherLost(uid=Uid("pod-launcher"), reason="LauncherLost"),
    events.ChildrenObserved(
        children=(ChildView(kind="ConfigMap", name="resnet-config", uid=Uid("config"), version=7, ours=True, hosts=3),),
        epoch=1,
    ),
    events.ChildGone(kind="Service", name="resnet", uid=Uid("service")),
    events.ScaleRequested(
        kind="ScaleIn",
        name="in",
        uid=Uid("request-1"),
        version=70,
        owner=Uid("uid-1"),
        spec=REQUEST,
        problems=(PROBLEM,),
    ),
    events.ScaleRequestGone(uid=Uid("request-1"), reason="Bound"),
    events.DisruptionNoticed(node="node-3", uids=(Uid("pod-1"),), reason="SpotReclaim"),
    events.TimePassed(anchor=12, timer="ScalingDeadline"),
    events.HistoryBroken(log="log-2", sequence=90, hash="ab12", reason="BeyondTheEnd"),
    events.HeadForged(log="log-1", sequence=91, hash="cd34"),
    events.HistoryAccepted(sequence=90, hash="ab12"),
    events.EffectRefused(effect="CreatePod", reason="Invalid", slots=WORKERS, field="spec.containers", permanent=True),
    events.ScriptFinished(request=Uid("request-1"), exit_code=1, reason="ScriptFailed"),
    events.DrainChecked(request=Uid("request-1"), in_use=(1, 2), reason="NoShell"),
    events.SlotsAssigned(slots=WORKERS, replaces=WORKERS, reason="WorkersReplaced"),
    events.SlotsReleased(slots=WORKERS, reason="Suspended"),
    events.JobRestarted(attempt=1, counted=False, reason="Resumed"),
    events.JobExpired(reason="TTLExpired"),
    events.ScaleAccepted(
        request=Uid("request-1"),
        kind="ScaleIn",
        added=WORKERS,
        leaving=(Member(1, Uid("pod-1")),),
        deadline=90,
        drain=20,
    ),
    events.ScaleRejected(request=Uid("request-1"), reason="NoSuchWorker"),
    events.HostsPublished(version=3, members=((0, 3),), request=Uid("request-1"), reason="ScaleIn", drain=10),
    events.ScriptStarted(request=Uid("request-1"), timeout=90),
    events.WorkersReleased(request=Uid("request-1"), slots=WORKERS, reason="Drained"),
    events.ScaleSucceeded(request=Uid("request-1"), reason="ScalingInSucceeded"),
    events.ScaleFailed(request=Uid("request-1"), reason="DeadlineExceeded", released=WORKERS),
    events.ScaleCancelled(request=Uid("request-1"), reason="RequestDeleted", released=WORKERS),
    events.JobCreated(reason="TrainingJobCreated", message="taken on"),
    events.JobRunning(reason="TrainingJobRunning", message="it runs"),
    events.JobScaling(reason="ScalingStart", message="it grows"),
    events.JobRestarting(reason="TrainingJobRestarting", message="again"),
    events.JobSuspended(reason="Suspended", message="paused"),
    events.JobSucceeded(reason="TrainingJobSucceeded", message="done"),
    events.JobFailed(reason="TrainingJobFailed", message="the launcher exited with 1 (Error)"),
)
