"""`because`: the earlier event that made a decision, found in the state before the decision.  Pure.

The newest event for which a decision waited made it; so each function here yields the possible causes.
The runtime writes the cause into each decision; `muster why` finds the slot that counts besides.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from shared.job import reasons, timers
from shared.job.attempt import Members
from shared.job.conditions import since
from shared.job.events import scaler, scheduler, status
from shared.job.events.catalog import Decision
from shared.job.naming import RESTART_REQUESTED, Slot
from shared.job.policies import nodes, replacement
from shared.job.policies.verdict import verdict
from shared.job.scaling import Request
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, JobSpec
from shared.job.state import Job, exit_of
from shared.job.views import alive, each, ended, indices


class Cause(NamedTuple):
    """An earlier event; for an event about pods, the slot of the pod that counts."""

    sequence: int
    slot: Slot | None = None


UNKNOWN = Cause(0)


def because(job: Job, decision: Decision) -> int:
    """The sequence of the event that made this decision; 0 if it is unknown."""
    return cause(job, decision).sequence


def cause(job: Job, decision: Decision) -> Cause:
    """The event that made this decision; `job` is the state before it."""
    match decision:
        case status.JobCreated() | status.JobSuspending():
            return Cause(max(job.edited, job.queued))
        case status.JobSuspended():
            return _newest(_paused(job))
        case status.JobRunning():
            return _newest(_scaled(job) if job.phase == "Scaling" else _started(job))
        case status.JobScaling():
            request = job.scaling.open_request
            return Cause(request.accepted) if request is not None else UNKNOWN
        case status.JobRestarting() if decision.reason == RESTART_REQUESTED:
            return Cause(job.restart_wanted)
        case status.JobRestarting() | status.JobFailed() | status.JobSucceeded():
            return _newest(_ended(job, decision))
        case scheduler.SlotsAssigned():
            return _newest(_assigned(job, decision))
        case scheduler.SlotsReleased():
            return _interrupted(job)
        case scheduler.JobRestarted():
            return _newest(_restarted(job))
        case scheduler.JobExpired():
            return _timer(job, job.ended.sequence if job.ended is not None else 0, timers.TIME_TO_LIVE)
        case scaler.HostsPublished():
            return _newest(_published(job, decision))
        case scaler.WorkersReleased():
            return _newest(_released(job, decision))
        case scaler.ScaleAccepted(added=added) if added and job.queued:
            request = job.scaling.requests.get(decision.request)
            return _newest((*_next_step(job, request), Cause(job.queued))) if request is not None else UNKNOWN
        case scaler.ScaleAccepted() | scaler.ScriptStarted() | scaler.ScaleSucceeded():
            request = job.scaling.requests.get(decision.request)
            return _newest(_next_step(job, request)) if request is not None else UNKNOWN
        case scaler.ScaleRejected() | scaler.ScaleFailed() | scaler.ScaleCancelled():
            request = job.scaling.requests.get(decision.request)
            return _newest(_unsuccessful(job, request, decision.reason)) if request is not None else UNKNOWN


def cause_of_refill(job: Job, slot: Slot) -> Cause:
    """The cause of filling a slot again: the loss of its pod, the end of its back-off, or a notice before it."""
    vacancy = job.attempt.vacancies.get(slot)
    if vacancy is None:
        return Cause(job.attempt.news.get(slot, 0), slot) if slot in job.attempt.slots else UNKNOWN
    waited = _timer(job, vacancy.at.sequence, replacement.timer_name(vacancy.wait))
    return waited if waited.sequence else Cause(vacancy.at.sequence, slot)


def _newest(causes: Iterable[Cause]) -> Cause:
    """The newest cause; of several in one event, the last."""
    found = UNKNOWN
    for one in causes:
        found = one if one.sequence >= found.sequence else found
    return found


def _timer(job: Job, anchor: int, name: str) -> Cause:
    """The expiry of a timer; unknown while it runs."""
    return Cause(job.timers_passed.get((anchor, name), 0))


def _news(job: Job, slots: Iterable[Slot]) -> Iterator[Cause]:
    """The newest event of each of these slots' pods, or the loss of the pod."""
    attempt = job.attempt
    for slot in sorted(slots):
        vacancy = attempt.vacancies.get(slot)
        yield Cause(vacancy.at.sequence if vacancy is not None else attempt.news.get(slot, 0), slot)


def _begun(job: Job) -> Cause:
    """The beginning of the attempt: the job's admission, adoption or restart."""
    return Cause(job.attempt.since or (job.active.sequence if job.active is not None else 0))


def _interrupted(job: Job) -> Cause:
    """The end or suspension of the job, or the end of its attempt."""
    if job.ended is not None:
        return Cause(job.ended.sequence)
    if job.restarting is not None:
        return Cause(job.restarting.at.sequence)
    if job.active is not None and job.paused:
        # The job was resumed before its slots were released.
        return Cause(job.active.sequence)
    return Cause(since(job.conditions, "Suspending") or since(job.conditions, "Suspended") or job.attempt.since)


def _paused(job: Job) -> Iterator[Cause]:
    """`JobSuspended`: a person's edit, the queue's answer, the last pod's end, or the wait for unseen pods."""
    yield Cause(max(job.edited, job.queued))
    yield from _news(job, job.attempt.news)
    yield _timer(job, job.unseen.since, timers.UNSEEN)


def _launcher(job: Job) -> Cause:
    """The end of the launcher, or its newest event."""
    attempt = job.attempt
    slot = Slot(attempt.number, LAUNCHER, 0)
    # A launcher that was missing when the job was adopted has no other news.
    return Cause(attempt.launcher_ended or attempt.news.get(slot, 0) or attempt.since, slot)


def _scaled(job: Job) -> Iterator[Cause]:
    """`JobRunning` after a scaling: the end of the request."""
    for kind in ("ScaleSucceeded", "ScaleFailed"):
        yield Cause(since(job.conditions, kind))


def _started(job: Job) -> Iterator[Cause]:
    """`JobRunning` of a new attempt: the start of the launcher, or of the pods of the leader role that count."""
    if job.spec is None or job.spec.has_launcher:
        yield _launcher(job)
    else:
        running = SortedSet(pod.slot for pod in job.pods.values() if pod.phase == "Running")
        yield from _news(job, _leaders(job, job.spec) & (running | job.attempt.spent))


def _leaders(job: Job, spec: JobSpec) -> SortedSet[Slot]:
    """The slots of the leader role that decide when the job runs and ends."""
    first = spec.handling.succeeds == "First"
    return SortedSet(
        slot for slot in job.attempt.unreleased if slot.role == spec.handling.leader and not (first and slot.index)
    )


def _ended(job: Job, decision: status.JobRestarting | status.JobFailed | status.JobSucceeded) -> Iterator[Cause]:
    """The end of an attempt: a limit, a refusal, or the end of pods."""
    limit = _limit(job, decision.reason)
    if limit.sequence:
        yield limit
        return
    spec, launcher = job.spec, job.seen_launcher
    if job.attempt.launcher_lost or (launcher is not None and (ended(launcher) or exit_of(job, launcher) is not None)):
        yield _launcher(job)
        return
    vacancies = job.attempt.vacancies
    if isinstance(decision, status.JobSucceeded):
        ends = [slot for slot, vacancy in vacancies.items() if vacancy.succeeded]
        yield from _news(job, _leaders(job, spec) & ends if spec is not None else ends)
        return
    replaced = replacement.replaceable(job)
    lost = [slot for slot, vacancy in sorted(vacancies.items()) if not vacancy.succeeded and slot not in replaced]
    end = verdict(job)
    # Before the job ran even an exit with 0 ends the attempt.
    yield from _news(job, [end.slot] if end is not None and end.slot is not None else lost or vacancies)


def _limit(job: Job, reason: str) -> Cause:
    """The timer or the refusal that ended the attempt."""
    attempt = job.attempt
    match reason:
        case reasons.BELOW_MINIMUM:
            timer = _timer(job, attempt.below_minimum, timers.BELOW_MINIMUM)
            return timer if timer.sequence else Cause(attempt.below_minimum)
        case reasons.DEADLINE_EXCEEDED if job.active is not None:
            timer = _timer(job, job.active.sequence, timers.ACTIVE_DEADLINE)
        case reasons.LAUNCHER_UNSCHEDULABLE | reasons.LAUNCHER_NEVER_PLACED if attempt.launcher_waits is not None:
            timer = _timer(job, attempt.launcher_waits.sequence, timers.LAUNCHER_WAIT)
        case reasons.SCHEDULING_TIMEOUT if attempt.assigned is not None:
            timer = _timer(job, attempt.assigned.sequence, timers.SCHEDULING)
        case _:
            timer = UNKNOWN
    refused = (known.at.sequence for known in job.refusals.values() if known.permanent and known.reason == reason)
    return timer if timer.sequence else Cause(next(refused, 0))


def _assigned(job: Job, decision: scheduler.SlotsAssigned) -> Iterator[Cause]:
    """`SlotsAssigned`: the loss of pods, the beginning of the attempt, or the hosts files for the launcher."""
    replaced = each(decision.replaces)
    if replaced:
        yield from (cause_of_refill(job, slot) for slot in replaced)
    elif all(slot.role == LAUNCHER for slot in each(decision.slots)) and isinstance(job.membership, Members):
        yield _begun(job)
        yield Cause(job.membership.written)
    else:
        yield _begun(job)


def _restarted(job: Job) -> Iterator[Cause]:
    """`JobRestarted`: the end of the back-off, a person's restart, or the resumption of the job."""
    why = job.restarting
    if why is None:
        yield Cause(job.active.sequence if job.active is not None else 0)
        return
    yield Cause(why.at.sequence)
    yield _timer(job, why.at.sequence, timers.RESTART)
    yield Cause(job.restart_wanted)


def _published(job: Job, decision: scaler.HostsPublished) -> Iterator[Cause]:
    """`HostsPublished`: the request's progress, or workers that became Ready, were lost or are disrupted."""
    yield _begun(job)
    request = job.scaling.requests.get(decision.request)
    if request is not None:
        yield from _next_step(job, request)
        return
    changed = indices(decision.members) ^ job.listed_workers
    yield from _news(job, map(job.attempt.worker_slot, changed))
    for uid in job.notices:
        for at, seconds in nodes.may_stay(job, uid):
            yield _timer(job, at.sequence, nodes.notice_timer(seconds))


def _released(job: Job, decision: scaler.WorkersReleased) -> Iterator[Cause]:
    """`WorkersReleased`: the launcher no longer uses the workers, or their drain time has passed."""
    slots = each(decision.slots)
    request = job.scaling.requests.get(decision.request)
    departures = [departure for slot in slots if (departure := job.departures.get(slot)) is not None]
    for departure in departures:
        yield Cause(departure.seen)
        yield _timer(job, departure.seen, timers.DISRUPTION_DRAIN)
    if request is None:
        yield from _news(job, slots)
        return
    yield from _steps(request)
    yield _timer(job, request.seen, timers.DRAIN)
    yield _timer(job, request.waits_since, timers.SCALING_DEADLINE)
    if request.look is not None:
        yield Cause(request.look.at)
    if not alive(job.launcher):
        yield _launcher(job)


def _steps(request: Request) -> Iterator[Cause]:
    """The steps of a request so far."""
    yield from map(Cause, (request.order, request.accepted, request.seen))
    if request.script is not None:
        yield Cause(request.script.ended)


def _next_step(job: Job, request: Request) -> Iterator[Cause]:
    """The next step of a request: its turn, its pods, its script, or the hosts files."""
    yield from _steps(request)
    if not request.published:
        yield from _news(job, request.added)
    elif request.released:
        yield from _news(job, (job.attempt.worker_slot(member.index) for member in request.leaving))


def _unsuccessful(job: Job, request: Request, reason: str) -> Iterator[Cause]:
    """The failure, rejection or cancellation of a request."""
    if request.script is not None and request.script.failure == reason:
        # Its script may learn that an object is gone before any watch shows it.
        yield Cause(request.script.ended)
        return
    match reason:
        case reasons.REQUEST_DELETED:
            yield Cause(request.gone)
        case reasons.JOB_GONE:
            yield Cause(job.gone)
        case reasons.JOB_FINISHED | reasons.JOB_SUSPENDED | reasons.JOB_RESTARTED:
            yield _interrupted(job)
        case reasons.NO_LAUNCHER:
            yield _launcher(job)
        case reasons.OVERTAKEN:
            yield from (Cause(known.order) for known in job.scaling.requests.values() if known.phase == "Pending")
        case reasons.WORKER_FAILED:
            disrupted = [pod.slot for uid, pod in job.pods.items() if uid in job.disrupted]
            yield from _news(job, request.added & (job.attempt.spent | disrupted))
        case _ if refused := [known.at.sequence for known in job.refusals.values() if known.reason == reason]:
            yield Cause(max(refused))
        case _:
            yield from _steps(request)
            yield _timer(job, request.waits_since, timers.SCALING_DEADLINE)
            if request.script is not None:
                yield _timer(job, request.script.started, timers.SCRIPT_DEADLINE)
