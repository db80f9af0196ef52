"""The fold's one step: a job, an event, and where the event stands, give the next job.

Total: no fact is refused, and a fact that no longer applies leaves the job as it is.  Rules live in `decide`.
Every type is named here; a new one fails the type check until someone has taken a stand.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from shared.job.conditions import with_condition, with_milestones
from shared.job.events import (
    AnyEvent,
    ChildGone,
    ChildrenObserved,
    DisruptionNoticed,
    DrainChecked,
    EffectRefused,
    HeadForged,
    HistoryAccepted,
    HistoryBroken,
    HostsPublished,
    JobAdopted,
    JobCreated,
    JobDeleting,
    JobExpired,
    JobFailed,
    JobGone,
    JobObserved,
    JobRestarted,
    JobRestarting,
    JobRunning,
    JobScaling,
    JobSucceeded,
    JobSuspended,
    LauncherLost,
    LogCreated,
    PhaseEntered,
    PodsGone,
    PodsObserved,
    ScaleAccepted,
    ScaleCancelled,
    ScaleFailed,
    ScaleRejected,
    ScaleRequested,
    ScaleRequestGone,
    ScaleSucceeded,
    ScriptFinished,
    ScriptStarted,
    SlotsAssigned,
    SlotsReleased,
    TimePassed,
    WorkersReleased,
)
from shared.job.naming import Slot, Uid
from shared.job.spec import LAUNCHER, WORKER
from shared.job.state import (
    KEPT_FAILURES,
    At,
    Condition,
    Failure,
    Job,
    Phase,
    Refusal,
    Request,
    Tally,
    ended,
    hosts_seen,
)
from shared.job.views import PodView, Slots, each, indices

replace = msgspec.structs.replace
K = TypeVar("K")
V = TypeVar("V")


def evolve(job: Job, event: AnyEvent, at: At) -> Job:
    """What is true of `job` after `event`."""
    match event:
        case PodsObserved():
            return _pods_observed(job, event, at)
        case PodsGone():
            return _enough(_pods_gone(job, event.uids, at), at)
        case LauncherLost():
            lost = event.uid in job.pods and not job.over
            return replace(_pods_gone(job, (event.uid,), at), launcher_lost=job.launcher_lost or lost)
        case ChildrenObserved():
            children = dict(job.children)
            for child in event.children:
                known = children.get((child.kind, child.name))
                if known is None or known.uid != child.uid or known.version < child.version or event.epoch > job.epoch:
                    children[child.kind, child.name] = child
            return _seen(replace(job, children=children, epoch=max(job.epoch, event.epoch)), at)
        case ChildGone():
            held = job.children.get((event.kind, event.name))
            if held is None or held.uid != event.uid:
                return job
            return replace(job, children=_without(job.children, (event.kind, event.name)))
        case JobObserved():
            return _job_observed(job, event, at)
        case JobDeleting():
            return replace(
                job, deleting=True, orphan=job.orphan or event.orphan, version=max(job.version, event.version)
            )
        case JobGone():
            return replace(job, gone=True)
        case JobAdopted():
            return replace(
                job,
                attempt=event.attempt,
                restarts=event.restarts,
                slots=each(event.slots),
                spent=frozenset(),
                next_index=event.next_index,
            )
        case ScaleRequested():
            return _requested(job, event, at)
        case ScaleRequestGone():
            return _request_gone(job, event)
        case TimePassed():
            return _time_passed(job, event)
        case EffectRefused():
            return _refused(job, event, at)
        case SlotsAssigned():
            slots = each(event.slots)
            return replace(job, slots=job.slots | slots, next_index=_next_index(job, slots))
        case SlotsReleased():
            return _released(job, event.slots)
        case JobRestarted():
            return replace(
                job,
                attempt=event.attempt,
                restarts=job.restarts + event.counted,
                slots=frozenset(),
                spent=frozenset(),
                next_index=0,
                launcher_lost=False,
                tallies={},
                members=frozenset(),
                leaving=frozenset(),
                below_minimum=0,
            )
        case HostsPublished():
            return _hosts_published(job, event)
        case ScaleAccepted():
            return _accepted(job, event, at)
        case ScaleRejected():
            return _request_over(job, event.request, at, success=False, reason=event.reason)
        case ScaleSucceeded():
            return _request_over(job, event.request, at, success=True, reason=event.reason)
        case ScaleFailed() | ScaleCancelled():
            job = _released(job, event.released)
            return _request_over(job, event.request, at, success=False, reason=event.reason)
        case WorkersReleased():
            job = _with_request(_released(job, event.slots), event.request, released=True)
            return replace(job, leaving=job.leaving - {slot.index for slot in each(event.slots)})
        case JobCreated():
            job = replace(job, start_time=job.start_time or at.time)
            return _phase(job, "Created", "Created", event, at)
        case JobRunning():
            job = _phase(job, "Running", "Running", event, at)
            return replace(job, conditions=_no_longer(job, "Scaling", event.reason, at))
        case JobScaling():
            return _phase(job, "Scaling", "Scaling", event, at)
        case JobRestarting():
            job = replace(job, conditions=_no_longer(job, "Running", event.reason, at))
            return _phase(job, "Restarting", "Restarting", event, at)
        case JobSuspended():
            job = replace(job, conditions=_no_longer(job, "Running", event.reason, at))
            return _phase(job, "Suspended", "Suspended", event, at)
        case JobSucceeded():
            return _finished(job, "Succeeded", event, at)
        case JobFailed():
            return _finished(job, "Failed", event, at)
        case JobExpired():
            return replace(job, expired=True)
        case HistoryBroken():
            head = f"{event.sequence}:{event.hash}"
            return job if head in job.accepted_heads else replace(job, broken=f"{event.log}/{head}")
        case HeadForged():
            return replace(job, forged=at.sequence)
        case HistoryAccepted():
            head = f"{event.sequence}:{event.hash}"
            accepted = job.broken.endswith(f"/{head}")
            return replace(job, broken="" if accepted else job.broken, accepted_heads=job.accepted_heads | {head})
        case LogCreated() | DisruptionNoticed() | ScriptStarted() | ScriptFinished() | DrainChecked():
            # Recorded for people and for later releases; nothing is decided from them yet.
            return job


def _job_observed(job: Job, event: JobObserved, at: At) -> Job:
    if event.epoch < job.epoch or (event.epoch == job.epoch and event.version < job.version):
        return job
    conditions = job.conditions
    if event.problems:
        first = event.problems[0]
        conditions = with_condition(
            conditions, "Created", at, status=bool(job.phase), reason=first.reason, message=_sentence(event)
        )
    return replace(
        job,
        kind=event.kind,
        api_version=event.api_version,
        generation=event.generation,
        version=event.version,
        epoch=event.epoch,
        # On a job that runs the last valid spec holds.
        spec=event.spec if event.spec is not None else job.spec,
        problems=event.problems,
        conditions=conditions,
        gone=False,
    )


def _sentence(event: JobObserved | ScaleRequested) -> str:
    first = event.problems[0]
    more = f" (and {len(event.problems) - 1} more)" if len(event.problems) > 1 else ""
    return (f"{first.field}: {first.message}" if first.field else first.message) + more


def _pods_observed(job: Job, event: PodsObserved, at: At) -> Job:
    if event.epoch < job.epoch:
        return job
    pods = dict(job.pods)
    slots, spent, tallies, failures = job.slots, job.spent, dict(job.tallies), job.failures
    fresh = 0
    for pod in event.pods:
        known = pods.get(pod.uid)
        if known is not None and known.version >= pod.version and event.epoch == job.epoch:
            continue
        pods[pod.uid] = pod
        fresh += known is None and pod.slot in slots
        if ended(pod) and pod.slot in slots and not (known is not None and ended(known)):
            slots, spent = slots - {pod.slot}, spent | {pod.slot}
            if not pod.deleting:
                tallies[pod.role] = _counted(tallies.get(pod.role, Tally()), pod)
            if pod.role == WORKER and (pod.deleting or pod.phase == "Failed"):
                failures = (*failures, _failure(pod, at))
    job = replace(
        job,
        pods=pods,
        epoch=event.epoch,
        slots=slots,
        spent=spent,
        tallies=tallies,
        failures=failures[-KEPT_FAILURES:],
        refusals=_progress(job, fresh),
    )
    return _enough(_seen(with_milestones(job, at), at), at)


def _counted(tally: Tally, pod: PodView) -> Tally:
    if pod.phase == "Succeeded":
        return replace(tally, succeeded=tally.succeeded + 1)
    return replace(tally, failed=tally.failed + 1)


def _failure(pod: PodView, at: At) -> Failure:
    first = next((end for end in pod.exits if end.code), None)
    reason = pod.reason or (first.reason if first else "") or ("Deleted" if pod.deleting else "Failed")
    return Failure(pod.name, reason, first.code if first else None, at)


def _pods_gone(job: Job, uids: Iterable[Uid], at: At) -> Job:
    pods = dict(job.pods)
    slots, spent, failures = job.slots, job.spent, job.failures
    for uid in uids:
        pod = pods.pop(uid, None)
        if pod is not None and pod.slot in slots:
            # Nobody released this slot, so its pod was taken from us.
            slots, spent = slots - {pod.slot}, spent | {pod.slot}
            if pod.role == WORKER:
                failures = (*failures, _failure(replace(pod, deleting=True), at))
    return replace(job, pods=pods, slots=slots, spent=spent, failures=failures[-KEPT_FAILURES:])


def _enough(job: Job, at: At) -> Job:
    """Note since when a running job has fewer workers than its minimum."""
    if job.spec is None or job.phase not in ("Running", "Scaling"):
        return job
    short = len(job.workers) < job.spec.role(WORKER).min_replicas
    if short and not job.below_minimum:
        return replace(job, below_minimum=at.sequence)
    return job if short or not job.below_minimum else replace(job, below_minimum=0)


def _requested(job: Job, event: ScaleRequested, at: At) -> Job:
    known = job.requests.get(event.uid)
    if known is None:
        conditions = with_condition((), "Created", at, reason="ScaleRequestCreated")
        known = Request(uid=event.uid, name=event.name, kind=event.kind, order=at.sequence, conditions=conditions)
    if known.phase == "Pending":
        known = replace(known, spec=event.spec, problems=event.problems)
    # A request that came back after it left (its job went and another came) waits again under this job.
    known = replace(known, owner=event.owner or known.owner, gone=False)
    return replace(job, requests={**job.requests, event.uid: known})


def _request_gone(job: Job, event: ScaleRequestGone) -> Job:
    known = job.requests.get(event.uid)
    if known is None:
        return job
    if known.phase == "Pending":
        return replace(job, requests=_without(job.requests, event.uid))
    return _with_request(job, event.uid, gone=True)


def _accepted(job: Job, event: ScaleAccepted, at: At) -> Job:
    request = job.requests.get(event.request)
    if request is None:
        return job
    added = each(event.added)
    request = replace(
        request,
        phase="Scaling",
        accepted=at.sequence,
        added=added,
        leaving=event.leaving,
        deadline=event.deadline,
        drain=event.drain,
        conditions=with_condition(request.conditions, "Scaling", at, reason="ScalingStart"),
    )
    return replace(
        job,
        requests={**job.requests, event.request: request},
        scaling=event.request,
        slots=job.slots | added,
        next_index=_next_index(job, added),
    )


def _hosts_published(job: Job, event: HostsPublished) -> Job:
    members = indices(event.members)
    job = replace(job, members=members, hosts_version=event.version)
    request = job.requests.get(event.request)
    if request is None:
        return job
    job = _with_request(job, event.request, published=event.version)
    return replace(job, leaving=job.leaving | {member.index for member in request.leaving})


def _request_over(job: Job, uid: Uid, at: At, *, success: bool, reason: str) -> Job:
    request = job.requests.get(uid)
    if request is None:
        return job
    kind = "ScaleSucceeded" if success else "ScaleFailed"
    conditions = request.conditions
    if any(condition.type == "Scaling" for condition in conditions):
        conditions = with_condition(conditions, "Scaling", at, status=False, reason=reason)
    conditions = with_condition(conditions, kind, at, reason=reason)
    if job.scaling == uid:
        # The reasons of the job's own conditions are et-operator's; why exactly is the request's to say.
        direction = "ScalingIn" if request.kind == "ScaleIn" else "ScalingOut"
        theirs = f"{direction}{'Succeeded' if success else 'Failed'}"
        message = "" if success else f"{request.kind} {request.name}: {reason}"
        job = replace(
            job, scaling=Uid(""), conditions=with_condition(job.conditions, kind, at, reason=theirs, message=message)
        )
    return _with_request(job, uid, phase="Succeeded" if success else "Failed", reason=reason, conditions=conditions)


def _with_request(job: Job, uid: Uid, **changes: object) -> Job:
    request = job.requests.get(uid)
    if request is None:
        return job
    return replace(job, requests={**job.requests, uid: replace(request, **changes)})


def _seen(job: Job, at: At) -> Job:
    """Note when the hosts files of the open request were first seen in place."""
    request = job.open_request
    if request is None or not request.published or request.seen or not hosts_seen(job, request.published):
        return job
    return _with_request(job, request.uid, seen=at.sequence)


def _released(job: Job, groups: tuple[Slots, ...]) -> Job:
    slots = each(groups)
    return replace(job, slots=job.slots - slots, spent=job.spent - slots) if slots else job


def _next_index(job: Job, slots: Iterable[Slot]) -> int:
    return max([job.next_index, *(slot.index + 1 for slot in slots if slot.role == WORKER)])


def _refused(job: Job, event: EffectRefused, at: At) -> Job:
    known = job.refusals.get(event.effect)
    refusal = Refusal(
        reason=event.reason,
        field=event.field,
        permanent=event.permanent,
        count=known.count + 1 if known else 1,
        at=at,
    )
    job = replace(job, refusals={**job.refusals, event.effect: refusal})
    if job.phase != "Created":
        return job
    concerned = any(slot.role == LAUNCHER for slot in each(event.slots)) or event.effect in (
        "WriteHosts",
        "NudgeLauncher",
    )
    where = f" ({event.field})" if event.field else ""
    return replace(
        job,
        conditions=with_condition(
            job.conditions,
            "LauncherCreated" if concerned else "WorkersCreated",
            at,
            status=False,
            reason=event.reason,
            message=f"{event.effect} was refused{where}",
        ),
    )


def _progress(job: Job, fresh: int) -> Mapping[str, Refusal]:
    """Pods came after a refusal: the next round may make twice as many; none are missing, and it is forgotten."""
    refusal = job.refusals.get("CreatePod")
    if refusal is None or not fresh or not refusal.due:
        return job.refusals
    filled = {pod.slot for pod in job.pods.values()}
    if len(job.slots - filled) <= fresh:
        return _without(job.refusals, "CreatePod")
    return {**job.refusals, "CreatePod": replace(refusal, probe=refusal.probe * 2)}


def _time_passed(job: Job, event: TimePassed) -> Job:
    refusals = {
        effect: replace(refusal, due=True)
        if refusal.at.sequence == event.anchor and event.timer == f"BackOff:{effect}"
        else refusal
        for effect, refusal in job.refusals.items()
    }
    return replace(job, passed=job.passed | {(event.anchor, event.timer)}, refusals=refusals)


def _phase(job: Job, phase: Phase, kind: str, event: PhaseEntered, at: At) -> Job:
    conditions = with_condition(job.conditions, kind, at, reason=event.reason, message=event.message)
    return replace(job, phase=phase, conditions=conditions)


def _finished(job: Job, phase: Phase, event: PhaseEntered, at: At) -> Job:
    for kind in ("Running", "Scaling"):
        job = replace(job, conditions=_no_longer(job, kind, event.reason, at))
    return replace(_phase(job, phase, phase, event, at), completion_time=at.time)


def _no_longer(job: Job, kind: str, reason: str, at: At) -> tuple[Condition, ...]:
    if not any(condition.type == kind and condition.status for condition in job.conditions):
        return job.conditions
    return with_condition(job.conditions, kind, at, status=False, reason=reason)


def _without(mapping: Mapping[K, V], key: K) -> dict[K, V]:
    return {kept: value for kept, value in mapping.items() if kept != key}
