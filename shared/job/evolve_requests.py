"""Folds the events of scale requests and of the hosts files: the requests' phases, and the job's slots, members and
conditions.  Pure; called by `evolve`.
"""

from collections.abc import Iterable, Mapping

import msgspec

from shared.job import reasons, text
from shared.job.attempt import Departure, Members, Unseen
from shared.job.conditions import holds, with_condition
from shared.job.events.event import At
from shared.job.events.scaler import (
    DrainChecked,
    HostsPublished,
    ScaleAccepted,
    ScriptFinished,
    ScriptStarted,
)
from shared.job.events.status import JobScaling
from shared.job.events.watcher import ScaleRequested, ScaleRequestGone
from shared.job.naming import EDL_FOLDER, HOSTFILE, NO_UID, Slot, Uid
from shared.job.scaling import MOST_FINISHED, TIMED_OUT, DrainLook, Request, Script
from shared.job.spec import WORKER, JobSpec
from shared.job.state import (
    Job,
    held_by_others,
    hosts_seen,
    with_attempt,
    with_efforts,
    with_pods,
    with_scaling,
    with_status,
    with_success,
    without,
)
from shared.job.timers import DRAIN_CHECK
from shared.job.views import Actor, Slots, each, indices

replace = msgspec.structs.replace


def departed(job: Job, event: HostsPublished) -> Mapping[Slot, Departure]:
    """All workers that left the hosts files, including this event's; `job` has the members before the event."""
    if not isinstance(job.membership, Members):
        return {}
    departures = job.membership.departures
    left = job.membership.indices - indices(event.members)
    if not left and not departures:
        return departures
    kept = {slot: departure for slot, departure in departures.items() if slot in job.attempt.slots}
    pods = job.worker_pods() if left else {}
    for index in left:
        pod = pods[index].uid if index in pods else Uid("")
        kept[job.attempt.worker_slot(index)] = Departure(event.version, event.drain, pod=pod)
    return kept


def departures_seen(job: Job, at: At) -> Job:
    """Note when hosts files without these workers were first seen in place."""
    if not isinstance(job.membership, Members):
        return job
    due = {
        slot: replace(departure, seen=at.sequence)
        for slot, departure in job.membership.departures.items()
        if not departure.seen and hosts_seen(job, departure.version)
    }
    if not due:
        return job
    return replace(job, membership=replace(job.membership, departures={**job.membership.departures, **due}))


DRAIN_FORCED = "DrainForced"
"""The reason of a `WorkersReleased` whose workers the launcher may still have used."""

SCRIPT_OUTCOME_UNKNOWN = "ScriptOutcomeUnknown"

MANAGER = "muster"
"""The name that Muster's services give themselves at the API server."""

_READ_ONLY = (
    f"if it writes {EDL_FOLDER}/{HOSTFILE}, leave that out: Muster writes the hosts files itself, and they are "
    "read-only in the launcher"
)
_NOT_THERE = "its `script` is the path of a file in the launcher, which `sh` runs"

ADVICE = {1: _READ_ONLY, 2: f"{_NOT_THERE}; {_READ_ONLY}", 126: _NOT_THERE, 127: _NOT_THERE}
"""What ends a shell with one of these codes; the script's own words are not kept."""

JOB_NOT_FOUND = "JobNotFound"
NEVER_BOUND = (
    "no TrainingJob of that name came within the timeout; create the request again once it is there; jobs of other "
    "kinds are scaled by `kubectl scale`"
)


def requested(job: Job, event: ScaleRequested, at: At) -> Job:
    known = job.scaling.requests.get(event.uid)
    if known is None:
        conditions = with_condition((), "Created", at, reason="ScaleRequestCreated")
        known = Request(
            uid=event.uid,
            name=event.name,
            kind=event.kind,
            order=at.sequence,
            by=event.by,
            conditions=conditions,
        )
    if known.phase == "Pending" and (event.spec is not None or event.problems):
        known = replace(known, spec=event.spec, problems=event.problems)
    # A request can return to a history that it had left: its job was deleted and created again.
    known = replace(known, version=event.version, owner=event.owner or known.owner, gone=0)
    return with_scaling(job, requests={**job.scaling.requests, event.uid: known})


def request_gone(job: Job, event: ScaleRequestGone, at: At) -> Job:
    known = job.scaling.requests.get(event.uid)
    if known is None:
        return job
    if known.phase == "Pending" or job.key.uid == NO_UID:
        # A refusal to own it is none of the next request.
        job = with_success(job, "OwnRequest") if known is job.scaling.next_request else job
        return with_scaling(job, requests=without(job.scaling.requests, event.uid))
    return with_request(job, event.uid, gone=at.sequence)


def never_bound(job: Job, order: int, at: At) -> Job:
    """No job came within the timeouts of the requests whose first event is `order`."""
    for request in job.scaling.requests.values():
        if request.order == order and request.phase == "Pending":
            reason, told = JOB_NOT_FOUND, NEVER_BOUND
            if request.problems:
                reason, told = request.problems[0].reason, ""
            job = request_over(job, request.uid, at, success=False, reason=reason, told=told)
    return job


def accepted(job: Job, event: ScaleAccepted, at: At) -> Job:
    request = job.scaling.requests.get(event.request)
    if request is None:
        return job
    added = each(event.added)
    request = replace(
        request,
        kind=event.kind,
        phase="Scaling",
        accepted=at.sequence,
        added=added,
        leaving=event.leaving,
        deadline=event.deadline,
        drain=event.drain,
        conditions=with_condition(request.conditions, "Scaling", at, reason=reasons.SCALING_START),
    )
    request = replace(request, before=job.scaling.size, after=_sized(job, request))
    conditions = job.status.conditions
    for kind in ("ScaleSucceeded", "ScaleFailed"):
        # The outcome of the last request becomes false, so that this one's gets a transition time of its own.
        if holds(conditions, kind):
            conditions = with_condition(conditions, kind, at, status=False, reason=reasons.SCALING_START)
    slots = job.attempt.slots | added
    # Who had these indices before is another worker.
    news = {slot: sequence for slot, sequence in job.attempt.news.items() if slot not in added}
    refilled = {slot: filled for slot, filled in job.attempt.refilled.items() if slot not in added}
    if len(news) > len(slots) + len(job.attempt.spent):
        # No decision depends on pods of released slots once they are gone.
        kept = {*slots, *job.attempt.spent, *(pod.slot for pod in job.pods.views.values())}
        news = {slot: sequence for slot, sequence in news.items() if slot in kept}
    return replace(
        job,
        status=replace(job.status, conditions=conditions),
        attempt=replace(job.attempt, slots=slots, news=news, refilled=refilled),
        scaling=replace(job.scaling, requests={**job.scaling.requests, event.request: request}, open=event.request),
    )


def scaling(job: Job, event: JobScaling, at: At) -> Job:
    """The open request shows from which size to which it takes the job, as the decision says."""
    request = job.scaling.open_request
    if request is None or not event.message:
        return job
    conditions = with_condition(request.conditions, "Scaling", at, reason=event.reason, message=event.message)
    return with_request(job, request.uid, conditions=conditions)


def hosts_published(job: Job, event: HostsPublished, at: At) -> Job:
    request = job.scaling.requests.get(event.request)
    going = [member.index for member in request.leaving] if request is not None else []
    before, members = job.membership, indices(event.members)
    grew = None
    if isinstance(before, Members):
        grew = at if before.edited or len(members) > len(before.indices) else before.grew
    membership = Members(
        version=event.version,
        indices=members,
        leaving=job.leaving | going,
        departures=departed(job, event),
        grew=grew,
    )
    job = replace(job, membership=membership)
    if request is None:
        return job
    if not request.published:
        job = with_scaling(job, size=_sized(job, request))
    return with_request(job, event.request, published=event.version)


def _sized(job: Job, request: Request) -> int:
    if request.resize is not None:
        return request.resize
    wanted = max(job.scaling.size + len(request.added) - len(request.leaving), 1)
    most = job.spec.worker.max_replicas if job.spec is not None else None
    # The size still counts workers that were lost and not replaced.
    return wanted if most is None else min(wanted, most)


def resized(job: Job, before: JobSpec | None, by: tuple[Actor, ...], at: At) -> Job:
    """Note an edit of the number of workers of an admitted job, by these clients if they are known.

    `job` has the new spec, `before` is the last one.  An edit waits in the queue of scale requests and replaces a
    waiting edit; a job without workers begins with the new size.
    """
    if before is None or job.spec is None or not job.status.phase or job.over:
        return job
    replicas, follows = job.spec.worker.replicas, job.spec.worker.follows
    if replicas == before.worker.replicas:
        return job if follows else with_scaling(job, least=0)
    if _is_written_back(job, replicas, by):
        # An edit that failed had moved the minimum that follows it.
        least = min(job.scaling.least or before.worker.min_replicas, replicas)
        job = with_success(job, "WriteSize")
        return with_scaling(job, least=least if follows else 0)
    job = with_scaling(job, least=0)
    requests = job.scaling.requests
    others = {uid: known for uid, known in requests.items() if known.resize is None or known.phase != "Pending"}
    job = with_scaling(job, requests=others)
    if job.between_attempts or not job.attempt.begun:
        # Before the first slots the job has no size: they follow the spec.
        return with_scaling(job, size=replicas if job.scaling.size else 0)
    return with_edit(job, replicas, at, by)


def _is_written_back(job: Job, replicas: int, by: tuple[Actor, ...]) -> bool:
    """True if the resource got the size that the job has, and not a new wish.

    While a request waits, the same number from another client is a wish that comes after it.
    """
    scaling, request = job.scaling, job.scaling.open_request
    if job.spec is None or not job.spec.worker.written or replicas != scaling.size:
        return False
    if request is not None and not request.published:
        return False
    waiting = [known for known in scaling.requests.values() if not known.over and known is not request]
    if any(known.resize is not None for known in waiting):
        return False
    return not waiting or not by or any(actor.manager == MANAGER for actor in by)


def with_edit(job: Job, replicas: int, at: At, by: tuple[Actor, ...] = (), *, attempt: int = 0) -> Job:
    """The job with an edit in its queue that asks for this number of workers.

    An `attempt` that begins with fewer asks for the rest of a size that an earlier one may have had.
    """
    uid = Uid(f"replicas-{job.resource.generation}" + (f"-{attempt}" if attempt else ""))
    if uid in job.scaling.requests:
        # A restored store counts generations again, and the edit of that generation may be under way.
        uid = Uid(f"{uid}-{at.sequence}")
    request = Request(
        uid=uid,
        name=uid,
        kind="ScaleOut",
        order=at.sequence,
        owner=job.key.uid,
        resize=replicas,
        by=by,
        conditions=with_condition((), "Created", at, reason="ScaleRequestCreated"),
    )
    return with_scaling(job, requests={**job.scaling.requests, uid: request})


def settled_by_pause(job: Job) -> Job:
    """A job that is being suspended: its next attempt begins with the size of the newest edit that is not over."""
    edits = [known for known in job.scaling.requests.values() if known.resize is not None and not known.over]
    if not edits or not job.scaling.size:
        return job
    kept = {uid: known for uid, known in job.scaling.requests.items() if known not in edits or known.accepted}
    return with_scaling(job, requests=kept, size=edits[-1].resize)


def script_started(job: Job, event: ScriptStarted, at: At) -> Job:
    return with_request(job, event.request, script=Script(started=at.sequence, timeout=event.timeout))


def script_finished(job: Job, event: ScriptFinished, at: At) -> Job:
    request = job.scaling.requests.get(event.request)
    if request is None or request.over or request.script is None or request.script.ended:
        return job
    failure = _failure(event)
    conditions = with_condition(
        request.conditions,
        "ScriptExecuted",
        at,
        status=not failure,
        reason=failure or "ScriptExecuted",
        message=_exited(event.exit_code) if failure else "",
    )
    script = replace(request.script, ended=at.sequence, failure=failure, exit_code=event.exit_code)
    return with_request(job, event.request, script=script, conditions=conditions)


def _failure(event: ScriptFinished) -> str:
    if event.exit_code is not None:
        return reasons.SCRIPT_FAILED if event.exit_code else ""
    if event.reason == TIMED_OUT:
        return "ScriptTimedOut"
    return event.reason or SCRIPT_OUTCOME_UNKNOWN


def _exited(code: int | None) -> str:
    if code is None:
        return ""
    told = reasons.told(reasons.REQUESTS, reasons.SCRIPT_FAILED, code=code)
    return "; ".join(filter(None, (told, ADVICE.get(code, ""))))


def drain_checked(job: Job, event: DrainChecked, at: At) -> Job:
    request = job.scaling.requests.get(event.request)
    if request is None or request.released:
        return job
    before = request.look
    if before is not None:
        if at.sequence <= before.at:
            return job
        # A long drain has many checks; only the timer of the newest is kept.
        job = with_efforts(job, timers_passed=without(job.efforts.timers_passed, (before.at, DRAIN_CHECK)))
    count = before.count + 1 if before is not None else 1
    look = DrainLook(at=at.sequence, count=count, in_use=event.in_use, unknown=event.reason)
    return with_request(job, event.request, look=look)


def request_over(job: Job, uid: Uid, at: At, *, success: bool, reason: str, told: str = "", more: str = "") -> Job:
    """The job after the end of a request.

    `told` replaces the sentence of the reason, and `more` is added to the sentence.
    """
    request = job.scaling.requests.get(uid)
    if request is None:
        return job
    kind = "ScaleSucceeded" if success else "ScaleFailed"
    conditions = request.conditions
    began = next((condition for condition in conditions if condition.type == "Scaling"), None)
    sizes = began.message if began is not None else ""
    if began is not None:
        conditions = with_condition(conditions, "Scaling", at, status=False, reason=reason)
    message = sizes if success else told or _message(job, request, reason)
    if more:
        message = told = f"{message or reason}; {more}"
    conditions = with_condition(conditions, kind, at, reason=reason, message=message)
    if success and request.resize is not None:
        job = with_scaling(job, size=request.resize)
    job = with_efforts(job, refusals=without(job.efforts.refusals, "OwnRequest"))
    # An edit of the job has no object of its own to show why it failed.
    edit = request.resize is not None and not success and not job.over
    if job.scaling.open == uid or edit:
        # The job's conditions have et-operator's reasons; the message has the request's own.
        direction = "ScalingIn" if request.kind == "ScaleIn" else "ScalingOut"
        theirs = f"{direction}{'Succeeded' if success else 'Failed'}"
        why = sizes if success else text.with_words(f"{request.kind} {request.name}: {reason}", told)
        over = with_condition(job.status.conditions, kind, at, reason=theirs, message=why)
        job = with_status(job, conditions=over)
        if job.scaling.open == uid:
            job = with_scaling(job, open=Uid(""))
    return with_request(job, uid, phase="Succeeded" if success else "Failed", reason=reason, conditions=conditions)


def _message(job: Job, request: Request, reason: str) -> str:
    problem = next((known for known in request.problems if known.reason == reason), None)
    if problem is not None:
        return f"{problem.field}: {problem.message}" if problem.field else problem.message
    if reason == reasons.SCRIPT_FAILED and request.script is not None:
        return _exited(request.script.exit_code)
    refusals = [job.efforts.refusals.get(effect) for effect in ("CreatePod", "OwnRequest")]
    refused = next((known.message for known in refusals if known is not None and known.reason == reason), "")
    return refused or reasons.of_request(reason)


def with_request(job: Job, uid: Uid, **changes: object) -> Job:
    """The job with a changed request, and without the oldest of many that are finished."""
    request = job.scaling.requests.get(uid)
    if request is None:
        return job
    requests = {**job.scaling.requests, uid: replace(request, **changes)}
    if requests[uid].finished:
        for old in [known.uid for known in requests.values() if known.finished][:-MOST_FINISHED]:
            del requests[old]
    return with_scaling(job, requests=requests)


def seen(job: Job, at: At) -> Job:
    """Note when the cluster first had the hosts files of the open request."""
    job = departures_seen(job, at)
    request = job.scaling.open_request
    if request is None or not request.published or request.seen or not hosts_seen(job, request.published):
        return job
    return with_request(job, request.uid, seen=at.sequence)


def released(job: Job, groups: tuple[Slots, ...], at: At) -> Job:
    """The job without these slots; it remembers those in which no pod was seen yet, for its next attempt."""
    slots = each(groups)
    if not slots:
        return job
    unseen = (job.attempt.slots & slots) - {pod.slot for pod in job.pods.views.values()}
    if unseen and not job.over:
        job = with_pods(job, unseen=Unseen(job.pods.unseen.slots | unseen, at.sequence))
    vacancies = {slot: vacancy for slot, vacancy in job.attempt.vacancies.items() if slot not in slots}
    job = with_attempt(
        spoiling(job, [slot for slot in slots if slot in job.attempt.spent or slot not in job.attempt.news]),
        slots=job.attempt.slots - slots,
        spent=job.attempt.spent - slots,
        vacancies=vacancies,
    )
    if not job.attempt.slots - {pod.slot for pod in job.pods.views.values()}:
        # Without missing pods the back-off of their creation ends.
        return with_success(job, "CreatePod")
    if (held := job.held_names) is not None and held.slots & slots:
        job = with_efforts(job, refusals=held_by_others(job.efforts.refusals, held, slots))
    return job


def spoiling(job: Job, lost: Iterable[Slot]) -> Job:
    """The job in whose attempt no later worker gets the index of one of these; those of an earlier one are free."""
    mine = [slot.index + 1 for slot in lost if (slot.attempt, slot.role) == (job.attempt.number, WORKER)]
    return with_attempt(job, spoilt=max([job.attempt.spoilt, *mine]))
