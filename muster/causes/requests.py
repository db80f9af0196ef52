"""What scale requests come to, and the hosts files.  Pure."""

from muster.causes.ledger import Ledger
from muster.causes.link import Link, newest
from muster.causes.words import listing, names_of
from shared.job.events.scaler import (
    HostsPublished,
    ScaleAccepted,
    ScaleCancelled,
    ScaleFailed,
    ScaleRejected,
    ScaleSucceeded,
    WorkersReleased,
)
from shared.job.naming import Slot
from shared.job.request import Request
from shared.job.spec import WORKER
from shared.job.state import Job
from shared.job.views import each


def files_in_place(ledger: Ledger, version: int, before: Job, here: Link) -> None:
    if version in ledger.in_place:
        return
    ledger.in_place[version] = link = here.says(f"the hosts files of version {version} are in place", ledger.hosts)
    request = before.scaling.open_request
    if request is not None and request.published == version:
        ledger.add(request.uid, link)


def published(ledger: Ledger, event: HostsPublished, before: Job, after: Job, here: Link) -> None:
    joined, left = after.listed_workers - before.listed_workers, before.listed_workers - after.listed_workers
    request = before.scaling.requests.get(event.request)
    come = [Slot(after.attempt.number, WORKER, index) for index in sorted(joined)]
    went = [Slot(after.attempt.number, WORKER, index) for index in sorted(left)]
    words = [f"{names_of(before, come)} joined"] * bool(come) + [f"{names_of(before, went)} left"] * bool(went)
    text = f"{' and '.join(words) or 'nobody joined or left'}: {listing(after)} of version {event.version}"
    if request is not None:
        ready = ledger.pods.newest_ready(request.added) if request.kind == "ScaleOut" else None
        cause = ready or ledger.last(event)
    else:
        cause = newest(map(ledger.pods.why_left, went)) or ledger.pods.newest_ready(come)
    ledger.hosts = link = ledger.decided(here, text, cause, event.reason)
    ledger.pods.tell((*come, *went), link)
    if request is not None:
        ledger.add(event.request, link)
        ledger.sized = link


def accepted(ledger: Ledger, event: ScaleAccepted, before: Job, here: Link) -> None:
    leaving = [Slot(before.attempt.number, WORKER, member.index) for member in event.leaving]
    text = (
        f"{names_of(before, each(event.added))} shall join"
        if event.added
        else f"{names_of(before, leaving)} shall leave"
    )
    link = ledger.decided(here, f"accepted: {text} within {event.deadline} s", ledger.last(event))
    ledger.pods.assigned(each(event.added), link)
    ledger.pods.tell(leaving, link)
    ledger.add(event.request, link)


def let_go(ledger: Ledger, event: WorkersReleased, before: Job, here: Link) -> None:
    slots = each(event.slots)
    request = before.scaling.requests.get(event.request)
    cause: Link | None
    if request is None:
        cause = newest(map(ledger.pods.why_left, sorted(slots)))
    else:
        late = ledger.in_place.get(request.published) if event.reason == "HostsWrittenLate" else None
        cause = late or ledger.last(event)
    link = ledger.decided(here, f"{names_of(before, slots)} released", cause, event.reason)
    ledger.pods.released(slots, link)
    ledger.add(event.request, link)


def over(
    ledger: Ledger,
    event: ScaleRejected | ScaleSucceeded | ScaleFailed | ScaleCancelled,
    before: Job,
    after: Job,
    here: Link,
) -> None:
    request, now = before.scaling.requests.get(event.request), after.scaling.requests.get(event.request)
    what = f"{request.kind} {request.name}" if request else "the request"
    how = {ScaleRejected: "was rejected", ScaleSucceeded: "is done", ScaleFailed: "failed"}.get(
        type(event), "was cancelled"
    )
    why = now.conditions[-1].message if now and now.conditions else ""
    cause = _why_over(ledger, event, before, request) or ledger.last(event)
    link = ledger.decided(here, f"{what} {how}", cause, event.reason, why)
    if not isinstance(event, (ScaleRejected, ScaleSucceeded)):
        ledger.pods.released(each(event.released), link)
    ledger.add(event.request, link)
    ledger.request_ended = link


def _why_over(
    ledger: Ledger,
    event: ScaleRejected | ScaleSucceeded | ScaleFailed | ScaleCancelled,
    before: Job,
    request: Request | None,
) -> Link | None:
    if request is None:
        return None
    if isinstance(event, ScaleSucceeded):
        leaving = [Slot(before.attempt.number, WORKER, member.index) for member in request.leaving]
        return ledger.pods.newest_end(leaving) if request.kind == "ScaleIn" else None
    match event.reason:
        case "WorkerFailed":
            ill = {pod.slot for uid, pod in before.pods.items() if uid in before.disrupted} | before.attempt.spent
            return newest(ledger.pods.why_left(slot) for slot in sorted(request.added & ill))
        case "JobFinished" | "JobSuspended" | "JobRestarted":
            return ledger.phase
        case "JobGone":
            return ledger.going
    refused = before.refusals.get("CreatePod")
    return ledger.refusals.get("CreatePod") if refused is not None and refused.reason == event.reason else None
