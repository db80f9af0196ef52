"""What scale requests change in a job: their phases, its slots, members and conditions.  Pure; called by `evolve`."""

from collections.abc import Iterable

import msgspec

from shared.job.conditions import holds, with_condition
from shared.job.events import HostsPublished, ScaleAccepted, ScaleRequested, ScaleRequestGone
from shared.job.naming import Slot, Uid
from shared.job.spec import WORKER
from shared.job.state import At, Job, Request, hosts_seen, without
from shared.job.views import Slots, each, indices

replace = msgspec.structs.replace


def requested(job: Job, event: ScaleRequested, at: At) -> Job:
    known = job.requests.get(event.uid)
    if known is None:
        conditions = with_condition((), "Created", at, reason="ScaleRequestCreated")
        known = Request(uid=event.uid, name=event.name, kind=event.kind, order=at.sequence, conditions=conditions)
    if known.phase == "Pending":
        known = replace(known, spec=event.spec, problems=event.problems)
    # A request that came back after it left (its job went and another came) waits again under this job.
    known = replace(known, version=event.version, owner=event.owner or known.owner, gone=False)
    return replace(job, requests={**job.requests, event.uid: known})


def request_gone(job: Job, event: ScaleRequestGone) -> Job:
    known = job.requests.get(event.uid)
    if known is None:
        return job
    if known.phase == "Pending":
        return replace(job, requests=without(job.requests, event.uid))
    return with_request(job, event.uid, gone=True)


def accepted(job: Job, event: ScaleAccepted, at: At) -> Job:
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
    conditions = job.conditions
    for kind in ("ScaleSucceeded", "ScaleFailed"):
        # How the last one ended is over, so that the end of this one is a change again, with a time of its own.
        if holds(conditions, kind):
            conditions = with_condition(conditions, kind, at, status=False, reason="ScalingStart")
    return replace(
        job,
        conditions=conditions,
        requests={**job.requests, event.request: request},
        scaling=event.request,
        slots=job.slots | added,
        next_index=next_index(job, added),
    )


def hosts_published(job: Job, event: HostsPublished) -> Job:
    members = indices(event.members)
    job = replace(job, members=members, hosts_version=event.version)
    request = job.requests.get(event.request)
    if request is None:
        return job
    job = with_request(job, event.request, published=event.version)
    return replace(job, leaving=job.leaving | {member.index for member in request.leaving})


def request_over(job: Job, uid: Uid, at: At, *, success: bool, reason: str) -> Job:
    request = job.requests.get(uid)
    if request is None:
        return job
    kind = "ScaleSucceeded" if success else "ScaleFailed"
    conditions = request.conditions
    if any(condition.type == "Scaling" for condition in conditions):
        conditions = with_condition(conditions, "Scaling", at, status=False, reason=reason)
    message = _message(request, reason)
    conditions = with_condition(conditions, kind, at, reason=reason, message=message)
    if job.scaling == uid:
        # The reasons of the job's own conditions are et-operator's; why exactly is the request's to say.
        direction = "ScalingIn" if request.kind == "ScaleIn" else "ScalingOut"
        theirs = f"{direction}{'Succeeded' if success else 'Failed'}"
        why = "" if success else f"{request.kind} {request.name}: {reason}"
        job = replace(
            job, scaling=Uid(""), conditions=with_condition(job.conditions, kind, at, reason=theirs, message=why)
        )
    return with_request(job, uid, phase="Succeeded" if success else "Failed", reason=reason, conditions=conditions)


_SENTENCES = {
    "AboveMaximum": "the job would have more workers than maxReplicas",
    "BelowMinimum": "the job would have fewer workers than minReplicas",
    "NoSuchWorker": "podNames names a pod that is no worker of this job",
    "ScriptNotSupported": "leave the script out: this release cannot run it",
    "DeadlineExceeded": "the timeout passed first; what was begun was taken back",
    "WorkerFailed": "a new worker ended before all were Ready; all of them were taken back",
    "HostsNotWritten": "the hosts files were not in place within the timeout",
    "WorkersNotGone": "the workers left the hosts files, and their pods were not gone within the timeout",
    "JobFinished": "the job is over",
    "OwnedByAnother": "the request belongs to another controller",
    "HistoryLost": "it was under way in a history that was lost",
}
"""What a person should know besides the reason; the problems of a request bring their own sentence."""


def _message(request: Request, reason: str) -> str:
    problem = next((known for known in request.problems if known.reason == reason), None)
    if problem is not None:
        return f"{problem.field}: {problem.message}" if problem.field else problem.message
    return _SENTENCES.get(reason, "")


def with_request(job: Job, uid: Uid, **changes: object) -> Job:
    request = job.requests.get(uid)
    if request is None:
        return job
    return replace(job, requests={**job.requests, uid: replace(request, **changes)})


def seen(job: Job, at: At) -> Job:
    """Note when the hosts files of the open request were first seen in place."""
    request = job.open_request
    if request is None or not request.published or request.seen or not hosts_seen(job, request.published):
        return job
    return with_request(job, request.uid, seen=at.sequence)


def released(job: Job, groups: tuple[Slots, ...]) -> Job:
    """The job without these slots."""
    slots = each(groups)
    if not slots:
        return job
    job = replace(job, slots=job.slots - slots, spent=job.spent - slots)
    if job.slots <= {pod.slot for pod in job.pods.values()}:
        # No pod is missing any more: the next one that is asked for waits for no back-off of those before.
        job = replace(job, refusals=without(job.refusals, "CreatePod"))
    return job


def next_index(job: Job, slots: Iterable[Slot]) -> int:
    return max([job.next_index, *(slot.index + 1 for slot in slots if slot.role == WORKER)])
