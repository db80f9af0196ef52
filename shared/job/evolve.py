"""One step of the fold: a job and an event give the next job.

It rejects no event: a fact that no longer applies leaves the job as it is.  The rules are in each service's `decide`.
Every type of event is named here, so mypy fails for a new one without a case.
"""

import msgspec

from shared.job import text
from shared.job.conditions import holds, no_longer, with_condition
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import At
from shared.job.events.refused import EffectRefused
from shared.job.events.scaler import (
    DrainChecked,
    HostsPublished,
    ScaleAccepted,
    ScaleCancelled,
    ScaleFailed,
    ScaleRejected,
    ScaleSucceeded,
    ScriptFinished,
    ScriptStarted,
    WorkersReleased,
)
from shared.job.events.scheduler import JobExpired, JobRestarted, SlotsAssigned, SlotsReleased
from shared.job.events.setup import LogCreated
from shared.job.events.status import (
    JobCreated,
    JobFailed,
    JobRestarting,
    JobRunning,
    JobScaling,
    JobSucceeded,
    JobSuspended,
    JobSuspending,
    PhaseEntered,
)
from shared.job.events.watcher import (
    ChildGone,
    ChildrenObserved,
    DisruptionNoticed,
    HeadForged,
    HistoryAccepted,
    HistoryBroken,
    HistoryDisputed,
    JobAdopted,
    JobDeleting,
    JobGone,
    JobObserved,
    JobOfAnother,
    LauncherLost,
    PodsGone,
    PodsObserved,
    ScaleRequested,
    ScaleRequestGone,
    TimePassed,
)
from shared.job.evolve_adoption import adopted
from shared.job.evolve_attempts import (
    active_again,
    asked_to_restart,
    assigned,
    given_up,
    let_go,
    restarted,
    set_down,
    suspended,
)
from shared.job.evolve_pods import enough, in_epoch, noticed, pods_gone, pods_observed
from shared.job.evolve_requests import (
    DRAIN_FORCED,
    accepted,
    drain_checked,
    hosts_published,
    rejected,
    released,
    request_gone,
    request_over,
    requested,
    resized,
    scaling,
    script_finished,
    script_started,
    seen,
    with_request,
)
from shared.job.integrity import evolved
from shared.job.membership import Members
from shared.job.spec import LAUNCHER
from shared.job.state import Job, Phase, Refusal, with_attempt, without
from shared.job.timing import BACK_OFF
from shared.job.views import each

replace = msgspec.structs.replace


def evolve(job: Job, event: AnyEvent, at: At) -> Job:
    """The job after the event."""
    match event:
        case PodsObserved():
            return pods_observed(job, event, at)
        case PodsGone():
            return enough(pods_gone(job, event.uids, at), at)
        case LauncherLost():
            pod = job.pods.get(event.uid)
            lost = pod is not None and pod.attempt == job.attempt.number and not job.over
            job = pods_gone(job, (event.uid,), at)
            return with_attempt(job, launcher_lost=job.attempt.launcher_lost or lost)
        case ChildrenObserved():
            return _children_observed(job, event, at)
        case ChildGone():
            held = job.children.get((event.kind, event.name))
            if held is None or held.uid != event.uid:
                return job
            return replace(job, children=without(job.children, (event.kind, event.name)))
        case JobObserved():
            return _job_observed(job, event, at)
        case JobDeleting():
            return replace(
                job, deleting=True, orphan=job.orphan or event.orphan, version=max(job.version, event.version)
            )
        case JobGone():
            return replace(job, gone=job.gone or at.sequence)
        case JobOfAnother():
            return replace(job, another=True)
        case JobAdopted():
            return adopted(job, event, at)
        case ScaleRequested():
            return requested(job, event, at)
        case ScaleRequestGone():
            return request_gone(job, event, at)
        case TimePassed():
            return _time_passed(job, event, at)
        case EffectRefused():
            return _refused(job, event, at)
        case SlotsAssigned():
            return assigned(job, event, at)
        case SlotsReleased():
            return set_down(job, event, at)
        case JobRestarted():
            return restarted(job, event, at)
        case HostsPublished():
            # A job without hosts files has its new members in effect at once.
            return seen(hosts_published(job, event), at)
        case ScaleAccepted():
            return accepted(job, event, at)
        case ScaleRejected():
            return rejected(job, event, at)
        case ScaleSucceeded():
            return request_over(job, event.request, at, success=True, reason=event.reason)
        case ScaleFailed() | ScaleCancelled():
            # Refusals of the request's pods explain why it ended; they are dropped with the slots.
            job = request_over(job, event.request, at, success=False, reason=event.reason)
            return released(job, event.released)
        case WorkersReleased():
            forced = at.sequence if event.reason == DRAIN_FORCED else 0
            job = with_request(let_go(job, event, at), event.request, released=True, forced=forced)
            if not isinstance(job.membership, Members):
                return job
            leaving = job.leaving - {slot.index for slot in each(event.slots)}
            return replace(job, membership=replace(job.membership, leaving=leaving))
        case JobCreated():
            return active_again(_phase(job, "Created", "Created", event, at), event, at)
        case JobRunning():
            # Workers that were lost before the job was Running count from now on.
            job = enough(_phase(job, "Running", "Running", event, at), at)
            for kind in ("Scaling", "Restarting"):
                job = replace(job, conditions=no_longer(job.conditions, kind, event.reason, at))
            return job
        case JobScaling():
            return scaling(_phase(job, "Scaling", "Scaling", event, at), event, at)
        case JobRestarting():
            return _phase(given_up(job, event, at), "Restarting", "Restarting", event, at)
        case JobSuspending():
            return _phase(suspended(job, event, at), "Suspending", "Suspending", event, at)
        case JobSuspended():
            return _phase(suspended(job, event, at), "Suspended", "Suspended", event, at)
        case JobSucceeded():
            return _finished(job, "Succeeded", event, at)
        case JobFailed():
            return _finished(job, "Failed", event, at)
        case JobExpired():
            return replace(job, expired=True)
        case HistoryBroken():
            kind, api_version = (job.kind, job.api_version) if job.kind else (event.kind, event.api_version)
            return replace(job, kind=kind, api_version=api_version, integrity=evolved(job.integrity, event, at))
        case HistoryDisputed() | HeadForged() | HistoryAccepted():
            return replace(job, integrity=evolved(job.integrity, event, at))
        case DisruptionNoticed():
            return noticed(job, event, at)
        case ScriptStarted():
            return script_started(job, event, at)
        case ScriptFinished():
            return script_finished(job, event, at)
        case DrainChecked():
            return drain_checked(job, event, at)
        case LogCreated():
            # LogCreated is for people and later releases; no decision depends on it.
            return job


def _job_observed(job: Job, event: JobObserved, at: At) -> Job:
    if event.epoch < job.epoch or (event.epoch == job.epoch and event.version < job.version):
        return job
    # A resource that came back, or is in a restored store, may no longer be terminating.
    deleting = job.deleting and not job.gone and event.epoch == job.epoch
    job = in_epoch(job, event.epoch)
    conditions = job.conditions
    if event.problems:
        first = event.problems[0]
        conditions = with_condition(
            conditions, "Created", at, status=bool(job.phase), reason=first.reason, message=_sentence(event)
        )
    elif job.problems and holds(conditions, "Created"):
        conditions = with_condition(conditions, "Created", at, reason=f"{job.kind}Created")
    before = job.spec
    job = replace(
        job,
        kind=event.kind,
        api_version=event.api_version,
        generation=event.generation,
        version=event.version,
        # A running job keeps its last valid spec.
        spec=event.spec if event.spec is not None else job.spec,
        edited=at.sequence if event.spec not in (None, job.spec) else job.edited,
        problems=event.problems,
        conditions=conditions,
        deleting=deleting,
        orphan=job.orphan and deleting,
        gone=0,
    )
    # An edit of minReplicas may change whether enough workers run.
    return enough(resized(asked_to_restart(job, before, at), before, at), at)


def _children_observed(job: Job, event: ChildrenObserved, at: At) -> Job:
    if event.epoch < job.epoch:
        return job
    job = in_epoch(job, event.epoch)
    children = dict(job.children)
    for child in event.children:
        known = children.get((child.kind, child.name))
        if known is None or known.uid != child.uid or known.version < child.version:
            children[child.kind, child.name] = child
    made = {_MADE_BY[child.kind] for child in event.children if child.kind in _MADE_BY}
    refusals = {effect: refusal for effect, refusal in job.refusals.items() if effect not in made}
    return seen(_written(replace(job, children=children, refusals=refusals), at), at)


def _written(job: Job, at: At) -> Job:
    """Note when the cluster first had the newest hosts files."""
    members, hosts = job.membership, job.hosts
    if not isinstance(members, Members) or members.written or hosts is None or hosts.hosts < members.version:
        return job
    return replace(job, membership=replace(members, written=at.sequence))


def _sentence(event: JobObserved | ScaleRequested) -> str:
    first = event.problems[0]
    more = f" (and {len(event.problems) - 1} more)" if len(event.problems) > 1 else ""
    return (f"{first.field}: {first.message}" if first.field else first.message) + more


_MADE_BY = {"Service": "CreateService", "Secret": "CreateSecret", "ConfigMap": "WriteHosts"}
"""The effect that makes each kind of object: seeing one ends the effect's back-off."""

_MILESTONES = {
    "CreatePod": "WorkersCreated",
    "CreateSecret": "WorkersCreated",
    "CreateService": "LauncherCreated",
    "WriteHosts": "LauncherCreated",
    "NudgeLauncher": "LauncherCreated",
}
"""The milestone that a refused effect prevents."""


def _refused(job: Job, event: EffectRefused, at: At) -> Job:
    known = job.refusals.get(event.effect)
    refusal = Refusal(
        reason=event.reason,
        field=event.field,
        permanent=event.permanent,
        message=event.message,
        count=known.count + 1 if known else 1,
        at=at,
    )
    job = replace(job, refusals={**job.refusals, event.effect: refusal})
    if not job.starting or event.effect not in _MILESTONES:
        return job
    launcher = any(slot.role == LAUNCHER for slot in each(event.slots))
    where = f" ({event.field})" if event.field and not event.message else ""
    return replace(
        job,
        conditions=with_condition(
            job.conditions,
            "LauncherCreated" if launcher else _MILESTONES[event.effect],
            at,
            status=False,
            reason=event.reason,
            message=text.with_words(f"{event.effect} was refused{where}", event.message),
        ),
    )


def _time_passed(job: Job, event: TimePassed, at: At) -> Job:
    refusals = {
        effect: replace(refusal, due=True)
        if refusal.at.sequence == event.anchor and event.timer == BACK_OFF + effect
        else refusal
        for effect, refusal in job.refusals.items()
    }
    if event.timer.startswith(BACK_OFF):
        # A back-off is kept in `Refusal.due`: the mapping would grow with each refusal, for weeks.
        return replace(job, refusals=refusals)
    timer = (event.anchor, event.timer)
    passed = job.timers_passed.get(timer, at.sequence)
    return replace(job, timers_passed={**job.timers_passed, timer: passed})


def _phase(job: Job, phase: Phase, kind: str, event: PhaseEntered, at: At) -> Job:
    conditions = with_condition(job.conditions, kind, at, reason=event.reason, message=event.message)
    # The refusal is forgotten: the API server may accept the status document of the new phase.
    return replace(job, phase=phase, conditions=conditions, refusals=without(job.refusals, "PatchStatus"))


def _finished(job: Job, phase: Phase, event: PhaseEntered, at: At) -> Job:
    for kind in ("Running", "Scaling", "Restarting"):
        job = replace(job, conditions=no_longer(job.conditions, kind, event.reason, at))
    return replace(_phase(job, phase, phase, event, at), completion_time=at.time, ended=at, restart_wanted=0)
