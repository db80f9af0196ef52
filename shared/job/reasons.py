"""The catalogue of reasons: each CamelCase word that says why, with its sentence for people.  Pure.

Conditions, Kubernetes Events, `muster why` and `docs/reasons.md` (`make pages`) take their words
from here.  What is wrong with a spec has a sentence of its own, beside the field (`Problem`).
"""

from collections.abc import Iterable, Mapping

import msgspec

from shared.job import text
from shared.job.spec import Ignored


class Reason(msgspec.Struct, frozen=True):
    """What a word means."""

    sentence: str
    """A sentence, or the rest of one, without a capital and without a full stop."""
    told: str = ""
    """The sentence of a condition, with places for values; empty where `sentence` says as much."""
    final: bool = False
    """Neither time nor another try changes it: a person has to."""


BELOW_MINIMUM = "BelowMinimum"
DEADLINE_EXCEEDED = "DeadlineExceeded"
DISRUPTED = "Disrupted"
HOSTS_NOT_WRITTEN = "HostsNotWritten"
JOB_DELETING = "JobDeleting"
JOB_FINISHED = "JobFinished"
JOB_GONE = "JobGone"
JOB_RESTARTED = "JobRestarted"
JOB_SUSPENDED = "JobSuspended"
NAME_HELD = "NameHeld"
UNKNOWN_FIELD = "UnknownField"
WAITS_FOR_QUOTA = "WaitsForQuota"
LAUNCHER_UNSCHEDULABLE = "LauncherUnschedulable"
LAUNCHER_NEVER_PLACED = "LauncherNeverPlaced"
NO_ROOM = "MinimumUnschedulable"
NO_SCALE = "NoScale"
NOT_OURS = "NotOurs"
NO_LAUNCHER = "NoLauncher"
EXEC_OFF = "ExecOff"
SSH_OFF = "SshOff"
OVERTAKEN = "Overtaken"
REQUEST_DELETED = "RequestDeleted"
RUNTIME_CHANGED = "RuntimeChanged"
SCALING_START = "ScalingStart"
SIZE_NOT_WRITTEN = "SizeNotWritten"
SCHEDULING_TIMEOUT = "SchedulingTimeout"
ENDED_BY_KUBELET = "PodFailed"
INIT_CONTAINER_FAILED = "InitContainerFailed"
PODS_MISSING = "PodsMissing"
PODS_TERMINATING = "PodsTerminating"
SCRIPT_FAILED = "ScriptFailed"
STALLED = "Stalled"
WORKER_FAILED = "WorkerFailed"
GANG_INCOMPLETE = "GangIncomplete"
GANG_TOO_LARGE = "GangTooLarge"
POD_GROUP_MISSING = "PodGroupMissing"
"""Reasons that several modules use; every other reason is written in the one module that uses it."""

FINAL = True

PHASES = {
    "{kind}Created": Reason("the job is taken on"),
    "{kind}WorkersCreated": Reason("every pod is created", "{pods} created"),
    "{kind}WorkerCreated": Reason("every pod is created", "{pods} created"),
    "{kind}WorkersReady": Reason("every pod is Ready"),
    "{kind}LauncherCreated": Reason("the launcher is created"),
    "{kind}Running": Reason("the job runs"),
    "{kind}Deleting": Reason(
        "the job is being deleted",
        "the job was deleted, and its finalizers keep it ({finalizers}); its pods stay until it is gone",
    ),
    OVERTAKEN: Reason("a newer edit asks for fewer workers", final=FINAL),
    "OverBudget": Reason("the namespace has as many bytes in the log, or in memory, as it may; this one waits"),
    "ManyStarting": Reason("many jobs are being made; this one waits for its turn"),
    "TrainingRuntimeNotFound": Reason("the runtime that the job names is not there; the job begins when it comes"),
    "FieldIgnored": Reason("a field of the spec has no effect", "{field} {effect}: {instead}"),
    "{kind}Suspending": Reason("the job is being suspended: its pods are deleted"),
    "{kind}Suspended": Reason("the job is suspended"),
    "{kind}Resumed": Reason("the job is resumed"),
    "{kind}Restarting": Reason("another attempt is due"),
    "{kind}Succeeded": Reason("the job succeeded", final=FINAL),
    "{kind}Failed": Reason("the job failed"),
    "{kind}Evicted": Reason("the node evicted the pod"),
    "{kind}WorkerFailed": Reason("a pod failed"),
    SCALING_START: Reason("the job changes its size"),
    "ScalingInSucceeded": Reason("the job has fewer workers"),
    "ScalingOutSucceeded": Reason("the job has more workers"),
    "ScalingInFailed": Reason("the job keeps its size"),
    "ScalingOutFailed": Reason("the job does not have the workers that were asked for"),
    SIZE_NOT_WRITTEN: Reason("the resource does not have the present size yet"),
    GANG_INCOMPLETE: Reason("fewer pods exist than have to find places together"),
    GANG_TOO_LARGE: Reason(
        "more pods have to find places together than the job has now",
        "{least} pods have to find places together, and the job has {left}; it begins again with those",
    ),
    POD_GROUP_MISSING: Reason("the kube-scheduler waits for the PodGroup of the pods"),
    STALLED: Reason("the training makes no step"),
    PODS_MISSING: Reason("pods are not created yet"),
    PODS_TERMINATING: Reason("pods are being deleted"),
    "RestartRequested": Reason("a person asked for a restart", "a person asked for it"),
    "Adopted": Reason("the history begins in the middle"),
    "AcceptedLoss": Reason("a person accepted the loss of earlier events"),
    "AnotherOperator": Reason("another operator began the job"),
    "BegunByAnother": Reason("another operator began the job and may still act on it"),
    "TTLExpired": Reason("the job was over for ttlSecondsAfterFinished", final=FINAL),
}
"""Where a job stands; `{kind}` is the kind of the job."""

STEPS = {
    "JobCreated": Reason("the first attempt begins"),
    JOB_RESTARTED: Reason("the next attempt begins"),
    "JobRestarting": Reason("the attempt is over"),
    "JobSuspending": Reason("the job is being suspended"),
    JOB_SUSPENDED: Reason("the job is suspended"),
    "Resumed": Reason("the job is resumed"),
    "WorkersReady": Reason("the workers are Ready"),
    "WorkersReplaced": Reason("other workers take the place of lost ones"),
    "NeverPlaced": Reason("the pods had found no node"),
    "NoWorkerLeft": Reason("no worker needs the rendezvous any more"),
    "PodsReplaced": Reason("lost pods are made again under their names"),
    "BeforeTheStart": Reason("the job had not started when a smaller size was asked for"),
    "Drained": Reason("the launcher no longer uses the leaving workers"),
    "DrainTimed": Reason("the drain time passed, and the launcher cannot be asked"),
    "DrainForced": Reason("the timeout of the request passed while the launcher used the leaving workers"),
    "HostsWrittenLate": Reason("the hosts files were in place after the end of the request"),
    "Bound": Reason("the job of the request came"),
    "Deleted": Reason("it was deleted"),
    "ScriptExecuted": Reason("the script ended well"),
    "ScaleRequestCreated": Reason("the request is known"),
}
"""Why a service took a step."""

ENDS = {
    "BackoffLimitExceeded": Reason(
        "as many pods as backoffLimit allows were replaced",
        "{loss}, and backoffLimit ({limit}) allows no further replacement",
        FINAL,
    ),
    BELOW_MINIMUM: Reason("fewer workers than minReplicas", "{running}, {minimum} are needed"),
    DEADLINE_EXCEEDED: Reason("its time was over", "it was active for {seconds} s (activeDeadlineSeconds)", FINAL),
    STALLED: Reason("the training made no step for the time of muster.dev/stall-timeout"),
    DISRUPTED: Reason("a disruption took a pod", "{pod} was disrupted: {why}"),
    LAUNCHER_UNSCHEDULABLE: Reason(
        "the launcher found no node while its workers held theirs",
        "the launcher found no node for {seconds} s while {held} held theirs; they are given back",
    ),
    NO_ROOM: Reason(
        "fewer workers than minReplicas find a node; the job gives its places back, and waits for room for all of them",
        "no node was found for {minimum} (minReplicas); the places that the job holds are given back",
    ),
    LAUNCHER_NEVER_PLACED: Reason(
        "many attempts in a row found no node for the launcher",
        "the launcher found no node in {attempts} attempts in a row, the last time for {seconds} s while {held} held "
        "theirs; a node has to fit its requests, selectors and tolerations, and where room comes later a queue or "
        "schedulingTimeoutSeconds waits for it",
        FINAL,
    ),
    "LauncherLost": Reason("the launcher went before its end was seen"),
    SCHEDULING_TIMEOUT: Reason(
        "its pods were not Ready in time", "it did not run after {seconds} s (schedulingTimeoutSeconds)", FINAL
    ),
    "WorkerExited": Reason("a worker ended too early", "a worker ended before {begin}"),
    "Missing": Reason("the pod vanished while no watcher ran"),
}
"""Why an attempt or a pod is over, in Muster's words."""

PODS = {
    "CrashLoopBackOff": Reason("a container of it failed, and is begun again each time it does"),
    "ErrImagePull": Reason("its image cannot be pulled"),
    "Evicted": Reason("its node ran short of resources"),
    "FailedAttachVolume": Reason("one of its volumes cannot be attached to its node"),
    "FailedCreatePodContainer": Reason("its node cannot set up the cgroup of its containers"),
    "FailedCreatePodSandBox": Reason("its node cannot set up its network"),
    "FailedMapVolume": Reason("one of its volumes cannot be mapped"),
    "FailedMount": Reason("one of its volumes cannot be mounted"),
    "FailedPrepareDynamicResources": Reason("its node cannot prepare the devices that it claims"),
    "FailedResourceClaimCreation": Reason("its claim cannot be made"),
    "NetworkNotReady": Reason("its node has no network for pods yet"),
    "ContainersNotReady": Reason("its container runs and is not Ready"),
    "ImagePullBackOff": Reason("its image cannot be pulled"),
    ENDED_BY_KUBELET: Reason("its kubelet ends it, and has not said why yet"),
    INIT_CONTAINER_FAILED: Reason("a container that has to end before the training began failed"),
    "NodeNotReady": Reason("its node is not ready, and may come back"),
    "NodeUnreachable": Reason("its node is unreachable, and may come back"),
    "OOMKilled": Reason("it used more memory than it may"),
    "RegistryUnavailable": Reason("the registry of its image does not answer"),
    "RunContainerError": Reason("its container cannot be started"),
    "SignatureValidationFailed": Reason("the signature of its image is not accepted"),
    "Unschedulable": Reason("the kube-scheduler finds no node for it"),
}
"""Why a pod waits or ended, in the words of kube-scheduler and kubelet; their own message says it better."""

PREEMPTED = "PreemptionByScheduler"
RENDEZVOUS_LOST = "RendezvousLost"
BY_KUBELET = "TerminationByKubelet"
"""The disruption of a pod that a kubelet ends for its node's sake: pressure, a shutdown, a critical pod."""
END_UNKNOWN = "ContainerStatusUnknown"
"""What a kubelet says of a container that ran and that it finds nowhere: its machine was restarted, for example."""

DISRUPTIONS = {
    END_UNKNOWN: Reason("its node was restarted, or lost its container"),
    "DeletionByPodGC": Reason("its node is gone"),
    "DeletionByTaintManager": Reason("its node is not to run it any more"),
    "DisruptionTarget": Reason("it is about to be deleted"),
    "EvictionByEvictionAPI": Reason("its node is drained, or a client of the eviction API evicts it"),
    "NodeDeleted": Reason("it was deleted"),
    "NodeDisrupted": Reason("its machine is replaced"),
    "NodeOutOfService": Reason("its machine is off for good"),
    "NodeScaledDown": Reason("there are to be fewer nodes"),
    "NodeShutdown": Reason("its machine was shut down"),
    "NodeTainted": Reason("it has a taint that counts as its end"),
    "NodeTerminating": Reason("its machine is taken back"),
    PREEMPTED: Reason("a more important pod needs its room"),
    RENDEZVOUS_LOST: Reason("it ended because the store of its elastic group was lost, or not there yet"),
    "ScheduledMaintenance": Reason("its machine is maintained"),
    "SpotInterruption": Reason("its machine is taken back"),
    BY_KUBELET: Reason("its node runs short of resources, or shuts down"),
}
"""Why a pod or its node is about to go."""

FRAMEWORK_FAILED = "FrameworkFailed"

REFUSALS = {
    "Denied": Reason("a policy, a webhook, Pod Security, a LimitRange, … stands against it"),
    FRAMEWORK_FAILED: Reason("the package of this kind of job failed, or gave a wrong answer"),
    "Forbidden": Reason("a right is missing"),
    "InternalError": Reason("the API server failed on the object"),
    "Invalid": Reason("the API server does not take the object as it is", final=FINAL),
    "LabelsChanged": Reason("an object of the job lacks Muster's labels, or another operator made it"),
    "NameConflict": Reason("an object of another owner has the name"),
    NAME_HELD: Reason("an object that is still being deleted has the name"),
    "NamespaceTerminating": Reason("the namespace is being deleted"),
    "NotAsked": Reason("the resource does not ask for what the log says it does"),
    "NoPriorityClass": Reason("there is no WorkloadPriorityClass of the name in the job's label"),
    NO_SCALE: Reason("the job's kind has no scale subresource", final=FINAL),
    NOT_OURS: Reason("the controller or labels of an object are not the job's"),
    "QuotaExceeded": Reason("the namespace's quota is used up"),
    RUNTIME_CHANGED: Reason("the job's runtime was changed or deleted, its copy is lost"),
    UNKNOWN_FIELD: Reason("a pod template has a field that the API server does not know", final=FINAL),
    SSH_OFF: Reason("the job needs ssh keys, which are off in this cluster"),
    "Timeout": Reason("the API server is ready, but not in time with the object; a webhook may hang"),
    "WebhookFailed": Reason("a webhook that the API server asks first does not answer"),
}
"""Why the API server, or Muster itself, did not carry out an effect."""

REQUESTS = {
    "AboveMaximum": Reason(
        "the job would have more workers than maxReplicas",
        "{workers} would be more than maxReplicas ({maximum})",
        FINAL,
    ),
    "AlreadyThatSize": Reason("the job has that size", final=FINAL),
    "AnotherRequestRuns": Reason("an earlier request is being carried out"),
    "AnotherRequestWaits": Reason("earlier requests come first"),
    "BeingReplaced": Reason(
        "podNames names a worker that leaves anyway: its node is about to go",
        "podNames names {pod}, which is being replaced, because its node is about to go; name another of {workers}",
        FINAL,
    ),
    BELOW_MINIMUM: Reason(
        "the job would have fewer workers than minReplicas",
        "{workers} would be fewer than minReplicas ({minimum})",
        FINAL,
    ),
    "CannotExecute": Reason("no command can be run in the launcher", final=FINAL),
    DEADLINE_EXCEEDED: Reason("the timeout passed first; what was begun was taken back", final=FINAL),
    EXEC_OFF: Reason("commands in launchers are switched off in this cluster; leave the script out", final=FINAL),
    "HistoryLost": Reason("it was under way in a history that was lost", final=FINAL),
    HOSTS_NOT_WRITTEN: Reason("the hosts files were not in place within the timeout", final=FINAL),
    "InvalidEnvironment": Reason("a value of its environment is not in the request", final=FINAL),
    JOB_DELETING: Reason("the job is being deleted"),
    JOB_FINISHED: Reason("the job is over", final=FINAL),
    JOB_GONE: Reason("the job is gone", final=FINAL),
    "JobNotFound": Reason(
        "there is no TrainingJob of that name in this namespace; jobs of other kinds are scaled by `kubectl scale`"
    ),
    "JobNotRunning": Reason("its turn comes once the job is Running"),
    JOB_RESTARTED: Reason("the job began again", final=FINAL),
    JOB_SUSPENDED: Reason("the job was suspended", final=FINAL),
    "NoAnswer": Reason("the launcher's processes cannot be read"),
    NO_LAUNCHER: Reason("there is no launcher for the script to run in", final=FINAL),
    "NoSuchWorker": Reason(
        "podNames names a pod that is no worker of this job",
        "podNames names {pod}, which is no worker of this job; its workers are {workers}",
        FINAL,
    ),
    "NotElastic": Reason(
        "jobs of this kind keep the number of workers that they began with; suspend the job to change it", final=FINAL
    ),
    NOT_OURS: Reason("the launcher is not this job's by its controller and labels", final=FINAL),
    "NothingToAdd": Reason("it asks for no worker", final=FINAL),
    "NothingToDelete": Reason("there is no worker to delete", final=FINAL),
    "OverBudget": Reason("the namespace has as many bytes in the log, or in memory, as it may; this one waits"),
    "OwnedByAnother": Reason("the request belongs to another controller", final=FINAL),
    "RequestChanged": Reason("it was changed after it had been accepted, and its script was not run", final=FINAL),
    REQUEST_DELETED: Reason("the request was deleted", final=FINAL),
    SCRIPT_FAILED: Reason("the script failed", "the script exited with {code}", FINAL),
    "ScriptOutcomeUnknown": Reason(
        "nobody saw how the script ended; it may have run, and is not run again", final=FINAL
    ),
    "ScriptTimedOut": Reason("the script did not end within the timeout", final=FINAL),
    "TimedOut": Reason("the command did not answer in its time"),
    "TooLong": Reason("the launcher has more processes than can be read"),
    "Unreachable": Reason("the API server did not answer in time, and the script was not run", final=FINAL),
    WORKER_FAILED: Reason("a new worker ended before all were Ready; all of them were taken back", final=FINAL),
    WAITS_FOR_QUOTA: Reason("the job's queue has not admitted the size that it asks for yet"),
    "WorkersNotGone": Reason(
        "the workers left the hosts files, and the deletion of their pods was not seen within the timeout", final=FINAL
    ),
}
"""What a ScaleIn, a ScaleOut or an edited number of workers came to, or waits for."""

HISTORIES = {
    "BeyondTheEnd": Reason("the head lies behind the end of this log", final=FINAL),
    "BrokenInvariant": Reason("a service failed on the job: an error in Muster", final=FINAL),
    "Disowned": Reason("an administrator disowned an event that this release counts", final=FINAL),
    "ForeignEvent": Reason("an event has an author who may not write it", final=FINAL),
    "HashMismatch": Reason("the log has another event where the head points", final=FINAL),
    "HistoryBroken": Reason("the log does not lead to the head in the resource or the checkpoint", final=FINAL),
    "HistoryDisputed": Reason("the resource shows another head than log and checkpoint", final=FINAL),
    "HistoryLost": Reason("the log has no event of a job that has a past", final=FINAL),
    "MalformedEvent": Reason("an event cannot be read", final=FINAL),
    "NotConfirmed": Reason("a decision was taken on an event that this history lacks", final=FINAL),
    "NotFenced": Reason("two decisions were taken on the same event", final=FINAL),
    "OtherLog": Reason("the head belongs to another log", final=FINAL),
    "Sealed": Reason("something came after the seal that ended the history", final=FINAL),
    "TooLarge": Reason("an event is larger than the log takes", final=FINAL),
    "UnknownEvent": Reason("an event is of a later release"),
}
"""Why every service, or this one, holds a job."""

CATALOGUE: Mapping[str, Mapping[str, Reason]] = {
    "Where a job stands": PHASES,
    "Why a service took a step": STEPS,
    "Why an attempt or a pod is over": ENDS,
    "What keeps or ends a pod": PODS,
    "Why a pod or its node is about to go": DISRUPTIONS,
    "Why an effect was refused": REFUSALS,
    "What became of a request": REQUESTS,
    "Why a history is held": HISTORIES,
}
"""By what it is about; a word may stand in two parts with a sentence for each."""

_OUTCOMES = {NAME_HELD: "waits", "InternalError": "fails", "Timeout": "fails", "WebhookFailed": "fails"}
"""What becomes of an effect for these reasons; for all others it is refused."""

_EXPLAINED = (ENDS, PODS, DISRUPTIONS, REFUSALS, HISTORIES)
"""Where the word alone does not say it."""


def plain(word: str, message: str = "") -> str:
    """A reason with its author's message, else with its sentence where the word alone does not say it."""
    sentence = message or next((part[word].sentence for part in _EXPLAINED if word in part), "")
    return f"{word}: {sentence}" if sentence else word


def of_refusal(effect: str, reason: str, field: str = "", message: str = "") -> str:
    """What became of an effect: that it was refused, fails or waits, and the other side's words."""
    if reason in (NAME_HELD, UNKNOWN_FIELD) and message:
        # The message says all of it; the effect is of no use to who misspelt a field.
        return text.first(message)
    where = f" ({field})" if field and not message else ""
    said = message or (REFUSALS[reason].sentence if reason in REFUSALS else "")
    return text.with_words(f"{effect} {_OUTCOMES.get(reason, 'was refused')}{where}", said)


def of_job(kind: str, word: str) -> str:
    """The sentence for a job's condition; the word itself where the catalogue does not have it."""
    known = PHASES.get(word) or (PHASES.get("{kind}" + word.removeprefix(kind)) if word.startswith(kind) else None)
    known = known or next((part[word] for part in (*_EXPLAINED, STEPS) if word in part), None)
    return known.sentence if known is not None else word


def of_request(word: str) -> str:
    """The sentence for a request's condition; empty where the catalogue does not have the word."""
    return REQUESTS[word].sentence if word in REQUESTS else ""


def told(part: Mapping[str, Reason], word: str, **values: object) -> str:
    """The sentence of a condition with these values put in."""
    return part[word].told.format(**values)


def without_effect(fields: Iterable[Ignored]) -> str:
    """The sentences about fields of a spec that Muster does not act upon."""
    told_of = (
        told(PHASES, "FieldIgnored", field=known.field, effect=known.effect, instead=known.message) for known in fields
    )
    return "; ".join(told_of)
