"""One step of the fold: a job and an event give the next job.

It rejects no event: a fact that no longer applies leaves the job as it is.  The rules are in each service's `decide`.
Every type of event is named here, so mypy fails for a new one without a case.
"""

from sys import intern

import msgspec

from shared.job import evolve_attempts as attempts
from shared.job import evolve_requests as requests
from shared.job import training
from shared.job.attempt import Members, Tally
from shared.job.conditions import holds, no_longer, with_condition
from shared.job.events import scaler, scheduler, status, watcher
from shared.job.events.catalog import AnyEvent, Decision, Fact
from shared.job.events.event import At, ChangeAttributed, Decided, EffectRefused, EventDisowned, LogCreated
from shared.job.evolve_attempts import adopted
from shared.job.evolve_pods import (
    in_epoch,
    node_back,
    node_lost,
    noticed,
    pods_gone,
    pods_observed,
    well_again,
    with_minimum_checked,
)
from shared.job.integrity import evolved
from shared.job.naming import Uid, config_name
from shared.job.policies import replacement
from shared.job.reasons import NAME_HELD
from shared.job.spec import JobSpec, Wishes, going_on
from shared.job.state import (
    Job,
    Phase,
    Refusal,
    refusal_key,
    running_pods,
    with_attempt,
    with_efforts,
    with_objects,
    with_pods,
    with_resource,
    with_retries,
    with_status,
    with_success,
    without,
)
from shared.job.timers import AVOIDED, BACK_OFF, JOB_WAIT, WELL, with_passed
from shared.job.views import ChildView, PodView, each

replace = msgspec.structs.replace


def evolve(job: Job, event: AnyEvent, at: At) -> Job:
    """The job after the event."""
    after = _decided(job, event, at) if isinstance(event, Decided) else _observed(job, event, at)
    if after.training.reported is None:
        return after
    match event:
        case scaler.HostsPublished() | scheduler.SlotsAssigned() | status.JobRestarting() | status.JobSuspending():
            anew = isinstance(event, status.JobRestarting | status.JobSuspending)
            return replace(after, training=training.regrouped(after.training, at, anew=anew))
        case watcher.PodsObserved() if any(_begins_to_run(job, pod) for pod in event.pods):
            return replace(after, training=replace(after.training, stands=at))
    return after


def _begins_to_run(job: Job, pod: PodView) -> bool:
    known = job.pods.views.get(pod.uid)
    return pod.phase == "Running" and (known is None or known.phase != "Running")


def _observed(job: Job, event: Fact, at: At) -> Job:
    match event:
        case watcher.PodsObserved():
            return pods_observed(job, event, at)
        case watcher.ProgressReported() | watcher.CheckpointTaken():
            return replace(job, training=training.told(job.training, event, at))
        case watcher.PodsGone():
            return with_minimum_checked(pods_gone(job, event.uids, at), at)
        case watcher.LauncherLost():
            pod = job.pods.views.get(event.uid)
            lost = pod is not None and pod.attempt == job.attempt.number and not job.over
            job = pods_gone(job, (event.uid,), at)
            return with_attempt(job, launcher_lost=job.attempt.launcher_lost or lost)
        case watcher.ChildrenObserved():
            return _children_observed(job, event, at)
        case watcher.ChildGone():
            held = job.objects.children.get((event.kind, event.name))
            if held is None or held.uid != event.uid:
                return job
            queued = at.sequence if held.workload is not None else job.objects.queued
            children = without(job.objects.children, (event.kind, event.name))
            return with_success(with_objects(job, children=children, queued=queued), *_DELETIONS)
        case watcher.JobObserved():
            return _job_observed(job, event, at)
        case watcher.JobRelabelled():
            if event.version < job.resource.version:
                return job
            return with_resource(job, version=event.version, labels=_interned(event.labels), blank=False)
        case watcher.JobDeleting():
            return with_resource(
                job,
                deletion=job.resource.deletion or at,
                finalizers=event.finalizers or job.resource.finalizers,
                orphan=job.resource.orphan or event.orphan,
                version=max(job.resource.version, event.version),
                blank=False,
            )
        case watcher.JobGone():
            # `muster history accept` annotates the resource, and that is gone.
            return replace(
                job,
                resource=replace(job.resource, gone=job.resource.gone or at.sequence),
                integrity=replace(job.integrity, doubt=None),
            )
        case watcher.JobOfAnother():
            return with_resource(_of_kind(job, event), another=True, obstacle=event.obstacle)
        case watcher.JobAdopted():
            return adopted(job, event, at)
        case watcher.ScaleRequested():
            return requests.requested(job, event, at)
        case watcher.ScaleRequestGone():
            return requests.request_gone(job, event, at)
        case watcher.TimePassed():
            return _time_passed(job, event, at)
        case EffectRefused():
            return _refused(job, event, at)
        case scheduler.SecretMade():
            secrets = {**job.objects.secrets, event.attempt: event.uid}
            return with_success(with_objects(job, secrets=secrets), "CreateSecret")
        case scheduler.AutoscalerMade():
            return with_success(with_objects(job, autoscaler=event.uid), "CreateAutoscaler")
        case scheduler.AutoscalerGone():
            return with_success(with_objects(job, autoscaler=Uid("")), "DeleteAutoscaler")
        case scheduler.SecretGone():
            secrets = without(job.objects.secrets, event.attempt)
            return with_success(with_objects(job, secrets=secrets), "DeleteSecret")
        case watcher.HistoryBroken():
            return replace(_of_kind(job, event), integrity=evolved(job.integrity, event, at))
        case watcher.HistoryDisputed() | watcher.HistoryAccepted():
            return replace(job, integrity=evolved(job.integrity, event, at))
        case watcher.DisruptionNoticed():
            return noticed(job, event, at)
        case watcher.NodeLost():
            return node_lost(job, event, at)
        case watcher.NodeBack():
            return node_back(job, event, at)
        case scaler.ScriptFinished():
            return requests.script_finished(job, event, at)
        case scaler.DrainChecked():
            return requests.drain_checked(job, event, at)
        case LogCreated() | EventDisowned() | ChangeAttributed():
            # The log's beginning and who made a change are for people; what is disowned holds its history no more.
            return job


def _decided(job: Job, event: Decision, at: At) -> Job:
    match event:
        case scheduler.SlotsAssigned():
            return attempts.assigned(job, event, at)
        case scheduler.SlotsReleased():
            return requests.released(job, event.slots, at)
        case scheduler.JobRestarted():
            return attempts.restarted(job, event, at)
        case scaler.HostsPublished():
            # A job without hosts files has its new members in effect at once.
            return requests.seen(requests.hosts_published(job, event, at), at)
        case scaler.ScaleAccepted():
            return requests.accepted(job, event, at)
        case scaler.ScaleRejected():
            return requests.request_over(job, event.request, at, success=False, reason=event.reason, told=event.message)
        case scaler.ScaleSucceeded():
            return requests.request_over(job, event.request, at, success=True, reason=event.reason)
        case scaler.ScaleFailed() | scaler.ScaleCancelled():
            # Refusals of the request's pods explain why it ended; they are dropped with the slots.
            more = event.remains or event.awaited if isinstance(event, scaler.ScaleFailed) else ""
            job = requests.request_over(job, event.request, at, success=False, reason=event.reason, more=more)
            return requests.released(job, event.released, at)
        case scaler.WorkersReleased():
            forced = at.sequence if event.reason == requests.DRAIN_FORCED else 0
            job = requests.with_request(
                attempts.workers_released(job, event, at), event.request, released=True, forced=forced
            )
            if not isinstance(job.membership, Members):
                return job
            leaving = job.leaving - {slot.index for slot in each(event.slots)}
            return replace(job, membership=replace(job.membership, leaving=leaving))
        case status.JobCreated():
            return attempts.active_again(_phase(job, "Created", "Created", event, at), event, at)
        case status.JobRunning():
            if job.starting and job.attempt.launcher_waits is not None:
                # A minimum that a training misses has another limit than one that its start misses.
                job = with_attempt(job, launcher_waits=at)
            # Workers that were lost before the job was Running count from now on.
            job = with_minimum_checked(_phase(job, "Running", "Running", event, at), at)
            conditions = no_longer(job.status.conditions, event.reason, at, "Scaling", "Restarting")
            return with_retries(with_status(job, conditions=conditions), unplaced=0)
        case status.JobScaling():
            return requests.scaling(_phase(job, "Scaling", "Scaling", event, at), event, at)
        case status.JobRestarting():
            return _phase(attempts.attempt_ended(job, event, at), "Restarting", "Restarting", event, at)
        case status.JobSuspending():
            return _phase(_suspended(job, event, at), "Suspending", "Suspending", event, at)
        case status.JobSuspended():
            return _phase(_suspended(job, event, at), "Suspended", "Suspended", event, at)
        case status.JobSucceeded():
            return _finished(job, "Succeeded", event, at)
        case status.JobFailed():
            return _finished(job, "Failed", event, at)
        case scheduler.JobExpired():
            return with_status(job, expired=True)
        case scaler.ScriptStarted():
            return requests.script_started(job, event, at)
        case status.JobSealed():
            # It ends the history, and the job with it.
            return job


def _suspended(job: Job, event: status.JobSuspending | status.JobSuspended, at: At) -> Job:
    return requests.settled_by_pause(attempts.suspended(job, event, at))


def _of_kind(job: Job, event: watcher.JobOfAnother | watcher.HistoryBroken) -> Job:
    """The job with the kind that its first event names."""
    return job if job.resource.kind else with_resource(job, kind=event.kind, api_version=event.api_version)


def _comes_too_late(job: Job, event: watcher.JobObserved, spec: JobSpec | None) -> bool:
    """True for an edit after the end of something that no longer has an effect.

    The number of workers does not count: autoscalers change it, and the scaler writes it back.
    """
    if not job.over or job.spec is None or spec is None or event.generation <= job.resource.generation:
        return False
    still = {
        name: getattr(spec, name)
        for name in ("roles", "clean_pod_policy", "ttl_seconds_after_finished", "force_delete_after")
    }
    return replace(job.spec, **still) != spec


def _keeps_templates(job: Job, event: watcher.JobObserved) -> bool:
    """True if nothing was written but the size that the job has, through the scale subresource."""
    if event.generation == job.resource.generation:
        return True
    scaled = bool(event.by) and all(actor.subresource == "scale" for actor in event.by)
    return scaled and event.spec is not None and event.spec.worker.replicas == job.scaling.size


def _interned(labels: tuple[tuple[str, str], ...] | None) -> tuple[tuple[str, str], ...] | None:
    """Labels as they are kept: thousands of jobs have the same ones."""
    return tuple((intern(name), intern(value)) for name, value in labels) if labels is not None else None


def _job_observed(job: Job, event: watcher.JobObserved, at: At) -> Job:
    if event.epoch < job.resource.epoch or (event.epoch == job.resource.epoch and event.version < job.resource.version):
        return job
    # A resource that came back, or is in a restored store, may no longer be terminating.
    deleting = job.deleting and not job.resource.gone and event.epoch == job.resource.epoch
    job = in_epoch(job, event.epoch)
    conditions = job.status.conditions
    if event.problems:
        first = event.problems[0]
        conditions = with_condition(
            conditions, "Created", at, status=bool(job.status.phase), reason=first.reason, message=_sentence(event)
        )
    elif job.resource.problems and holds(conditions, "Created"):
        conditions = with_condition(conditions, "Created", at, reason=f"{job.resource.kind}Created")
    before, spec = job.spec, event.spec
    if before is not None and spec is not None and not job.follows(spec.runtime):
        # The watcher had not read the first slots yet when it recorded another runtime.  The number of workers may be
        # that runtime's: the watcher records the resource's next.
        wishes = Wishes(suspend=spec.suspend, restart=spec.restart, deadline=spec.active_deadline_seconds)
        spec = going_on(before, wishes)
    job = replace(
        job,
        resource=replace(
            job.resource,
            kind=event.kind,
            api_version=event.api_version,
            generation=event.generation,
            templates=job.resource.templates if _keeps_templates(job, event) else event.generation,
            version=event.version,
            blank=event.blank,
            labels=_interned(event.labels),
            edited=at.sequence if spec not in (None, job.spec) else job.resource.edited,
            late_edit=at if _comes_too_late(job, event, spec) else job.resource.late_edit,
            problems=event.problems,
            deletion=job.resource.deletion if deleting else None,
            finalizers=job.resource.finalizers if deleting else (),
            orphan=job.resource.orphan and deleting,
            gone=0,
        ),
        # A running job keeps its last valid spec.
        spec=spec if spec is not None else job.spec,
        retries=replace(
            job.retries,
            # An edit of a pod template changes no other part of the spec that the log has.
            unplaced=job.retries.unplaced if event.generation == job.resource.generation else 0,
        ),
        status=replace(job.status, conditions=conditions),
    )
    # An edit of minReplicas may change whether enough workers run.
    return with_minimum_checked(
        requests.resized(attempts.with_restart_wanted(job, before, at), before, event.by, at), at
    )


def _children_observed(job: Job, event: watcher.ChildrenObserved, at: At) -> Job:
    if event.epoch < job.resource.epoch:
        return job
    job = in_epoch(job, event.epoch)
    children = dict(job.objects.children)
    for child in event.children:
        known = children.get((child.kind, child.name))
        if known is None or known.uid != child.uid or known.version < child.version:
            children[child.kind, child.name] = child
    made = [effect for child in event.children for effect in _MADE_BY.get(child.kind, ())]
    if not any(child.name == config_name(job.key.name) for child in event.children):
        # A ConfigMap may be the copy of a runtime, which another effect makes.
        made = [effect for effect in made if effect != "WriteHosts"]
    queued = at.sequence if any(_is_answer(job, child) for child in event.children) else job.objects.queued
    before = job.hosts
    job = with_success(with_objects(job, children=children, queued=queued), *made)
    return requests.seen(_written(_edited(job, before, at), at), at)


def _is_answer(job: Job, child: ChildView) -> bool:
    """True if a Workload is new, or Kueue has decided something about it."""
    known = job.objects.children.get((child.kind, child.name))
    before = known.workload if known is not None and known.uid == child.uid else None
    return child.workload is not None and (before is None or before.answer != child.workload.answer)


def _edited(job: Job, before: ChildView | None, at: At) -> Job:
    """Note that another client changed the newest hosts files, of which Muster writes each version once."""
    members, now = job.membership, job.hosts
    if not isinstance(members, Members) or before is None or now is None or before.uid != now.uid:
        return job
    again = before.version < now.version and before.hosts == now.hosts == members.version
    return replace(job, membership=replace(members, edited=at.sequence)) if again and now.hosts else job


def _written(job: Job, at: At) -> Job:
    """Note when the cluster first had the newest hosts files."""
    members, hosts = job.membership, job.hosts
    if not isinstance(members, Members) or members.written or hosts is None or hosts.hosts < members.version:
        return job
    return replace(job, membership=replace(members, written=at.sequence))


def _sentence(event: watcher.JobObserved) -> str:
    first = event.problems[0]
    more = f" (and {len(event.problems) - 1} more)" if len(event.problems) > 1 else ""
    return (f"{first.field}: {first.message}" if first.field else first.message) + more


_MADE_BY = {
    "Service": ("CreateService",),
    "ConfigMap": ("WriteHosts",),
    "PodGroup": ("CreatePodGroup",),
    "Workload": ("WriteWorkload", "ShrinkWorkload", "ReturnQuota", "ReadyWorkload", "FinishWorkload"),
}
"""The effects that make or change each kind of object: seeing one changed ends their back-off."""

_DELETIONS = ("DeleteService", "DeleteHosts", "DeleteWorkload", "FinishWorkload", "DeletePodGroup")
"""The effects that an object's end shows to have succeeded."""


def _refused(job: Job, event: EffectRefused, at: At) -> Job:
    key, slots = refusal_key(event.effect, event.reason), each(event.slots)
    if event.effect == "CreatePod" and slots and not (slots := slots & job.attempt.slots):
        # The slots were released while the API server answered: nothing tries it again.
        return job
    known = job.efforts.refusals.get(key)
    same = known is not None and known.reason == event.reason
    if known is not None and event.reason == NAME_HELD:
        slots |= known.slots
    refusal = Refusal(
        effect=event.effect,
        reason=event.reason,
        field=event.field,
        permanent=event.permanent,
        message=event.message,
        count=known.count + 1 if known else 1,
        at=at,
        since=known.since if known is not None and same else at,
        slots=slots,
    )
    return with_efforts(job, refusals={**job.efforts.refusals, key: refusal})


def _time_passed(job: Job, event: watcher.TimePassed, at: At) -> Job:
    if event.timer.startswith(BACK_OFF):
        # A back-off is kept in `Refusal.due`: the mapping would grow with each refusal, for weeks.
        key, refusals = event.timer.removeprefix(BACK_OFF), job.efforts.refusals
        if key not in refusals or refusals[key].at.sequence != event.anchor:
            return job
        return with_efforts(job, refusals={**refusals, key: replace(refusals[key], due=True)})
    if event.timer.startswith(WELL):
        return well_again(job, event)
    if event.timer == AVOIDED:
        kept = {node: each for node, each in job.pods.failures_on.items() if each.at.sequence != event.anchor}
        return with_pods(job, failures_on=kept)
    if event.timer == JOB_WAIT:
        return requests.never_bound(job, event.anchor, at)
    return with_passed(job, event.anchor, event.timer, at.sequence)


def _phase(job: Job, phase: Phase, kind: str, event: status.PhaseEntered, at: At) -> Job:
    conditions = with_condition(job.status.conditions, kind, at, reason=event.reason, message=event.message)
    # The refusal is forgotten: the API server may accept the status document of the new phase.
    return with_efforts(
        with_status(job, phase=phase, conditions=conditions), refusals=without(job.efforts.refusals, "PatchStatus")
    )


def _finished(job: Job, phase: Phase, event: status.PhaseEntered, at: At) -> Job:
    final = _final(job) if phase == "Succeeded" else {}
    conditions = no_longer(job.status.conditions, event.reason, at, "Running", "Scaling", "Restarting")
    job = _phase(with_status(job, conditions=conditions), phase, phase, event, at)
    return with_retries(with_status(job, completion_time=at.time, ended=at, final=final), restart_wanted=0)


def _final(job: Job) -> dict[str, Tally]:
    ends = {role.name: replacement.outcome(job, role.name) for role in (job.spec.roles if job.spec is not None else ())}
    return {role: Tally(end.succeeded + running_pods(job, role), end.failed) for role, end in ends.items()}
