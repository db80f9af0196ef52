"""Time as a fact: the timers that a job waits for.  Pure; the watcher measures them and appends `TimePassed`.

A *judgement* runs on a monotonic clock while the watches deliver, and starts anew after the watcher's restart: a
watcher that saw nothing lets no job fail for that.  A *promise* goes on through restarts, from the time at which the
log stored its anchor.
"""

from collections.abc import Iterable, Iterator

from shared.backoff import doubled
from shared.job import timers
from shared.job.events.event import At
from shared.job.naming import NO_UID
from shared.job.policies import capacity, nodes, replacement, retries, verdict
from shared.job.policies.retries import before_effect
from shared.job.policies.stalls import stall_timer
from shared.job.reasons import NAME_HELD
from shared.job.scaling import Request
from shared.job.state import Job, Refusal
from shared.job.timers import Timer, passed
from shared.job.waiting import WAITING_SECONDS, waiting

CREATED_WITHIN_SECONDS = 15
"""The API server creates a pod within this time of the call's arrival, or never.

Webhooks are part of that time; they have 10 s each unless their configuration says otherwise.
"""

UNSEEN_SECONDS = CREATED_WITHIN_SECONDS + 5
"""How long the next attempt waits for pods that were not seen when the attempt ended.

After that none comes any more: what arrived before the end was created within its time or never, and working watches
show a pod within a tenth of a second.  The rest is for the way to the server.
"""

JOB_WAIT_SECONDS = 60
"""How long a request with mistakes waits for its job; one without waits for its own timeout."""

SCRIPT_GRACE_SECONDS = 5
"""How long after the script's own timeout its outcome is awaited."""

LONGEST_DRAIN_CHECK_SECONDS = 10
"""The longest wait between two checks of a launcher that still uses leaving workers."""


def next_due(job: Job) -> tuple[Timer, ...]:
    """The timers that run for `job` now, without those that expired."""
    if job.halted:
        return ()
    if job.resource.gone:
        return (*_pending(job, [*_of_refusals(job), *_of_stuck_pods(job)]),)
    if job.key.uid == NO_UID:
        return (*_of_refusals(job), *_of_requests_without_a_job(job))
    found = [*_of_refusals(job)]
    request = job.scaling.open_request
    if request is not None:
        found += _of_scaling(request)
    if job.attempt.below_minimum and not job.over and job.spec is not None:
        found.append(Timer(job.attempt.below_minimum, timers.BELOW_MINIMUM, job.spec.seconds_below_minimum))
    found += [
        Timer(departure.seen, timers.DISRUPTION_DRAIN, departure.drain)
        for slot, departure in job.departures.items()
        if departure.seen and departure.drain and slot in job.attempt.slots and not job.over
    ]
    found += _of_notices(job)
    found += _of_the_end(job) if job.over else [*_of_limits(job), *_of_attempts(job)]
    found += _of_stuck_pods(job)
    found += _of_capacity(job)
    wait = waiting(job)
    if (stall := stall_timer(job)) is not None:
        found.append(stall)
    if wait is not None and wait.usual:
        found.append(Timer(wait.since.sequence, timers.WAITING, WAITING_SECONDS))
    return (*_pending(job, found),)


def _pending(job: Job, found: Iterable[Timer]) -> Iterator[Timer]:
    # Workers that left in one event share a timer.
    return (timer for timer in dict.fromkeys(found) if not passed(job, timer.anchor, timer.name))


def _of_notices(job: Job) -> Iterator[Timer]:
    if job.over:
        return
    for uid in job.pods.notices:
        for at, seconds in nodes.may_stay(job, uid):
            yield promise(at, nodes.notice_timer(seconds), seconds)


def _of_capacity(job: Job) -> Iterator[Timer]:
    if job.over or job.between_attempts:
        return
    settles, seconds = capacity.settle_wait(job)
    if seconds:
        yield Timer(settles, timers.SETTLE, seconds)
    if (wait := capacity.growth_wait(job)) is not None:
        since, seconds = wait
        yield promise(since, timers.GROW, seconds)


def _of_stuck_pods(job: Job) -> Iterator[Timer]:
    for pod, known, since in nodes.stuck(job):
        if (seconds := nodes.force_delay(job, pod, known)) is not None:
            # The node may come back while no watcher sees it, and then the pod ends by itself.
            yield Timer(since.sequence, nodes.forced_deletion_timer(seconds), seconds, of_nodes=True)


def _of_requests_without_a_job(job: Job) -> Iterator[Timer]:
    for request in job.scaling.requests.values():
        if request.phase == "Pending" and not request.gone:
            seconds = request.spec.timeout_seconds if request.spec is not None else JOB_WAIT_SECONDS
            yield Timer(request.order, timers.JOB_WAIT, seconds)


def _of_refusals(job: Job) -> Iterator[Timer]:
    for effect, refusal in job.efforts.refusals.items():
        if not refusal.due and _retried(job, effect, refusal):
            yield promise(refusal.at, timers.BACK_OFF + effect, before_effect(refusal.count))


def _retried(job: Job, effect: str, refusal: Refusal) -> bool:
    """True if a refused effect is tried again after its back-off.

    A permanent refusal ends a job before it is under way; later the effect is tried again, because a person may fix
    the cause.  A status document that was refused for good waits for the next phase; that of a request whose job is
    gone has none, and keeps the history from its seal until it shows the end.
    """
    if job.resource.gone:
        return effect == "PatchStatus" and any(each.over and each.shown for each in job.scaling.requests.values())
    if refusal.reason == NAME_HELD:
        # The scheduler looks every few seconds: nothing else tells it of the end of another job's pod.
        return False
    if not refusal.permanent:
        return True
    return effect not in ("PatchStatus", "WriteSize") and job.under_way and not job.over


def _of_scaling(request: Request) -> Iterator[Timer]:
    yield Timer(request.waits_since, timers.SCALING_DEADLINE, request.deadline)
    script = request.script
    if script is not None and not script.ended:
        yield Timer(script.started, timers.SCRIPT_DEADLINE, script.timeout + SCRIPT_GRACE_SECONDS)
    if request.kind == "ScaleIn" and request.seen and not request.released:
        yield Timer(request.seen, timers.DRAIN, request.drain)
        look = request.look
        if look is not None and look.again:
            yield Timer(look.at, timers.DRAIN_CHECK, doubled(1, look.count, LONGEST_DRAIN_CHECK_SECONDS))


def _of_limits(job: Job) -> Iterator[Timer]:
    if job.spec is None:
        return
    if job.spec.active_deadline_seconds is not None and job.status.active is not None:
        yield promise(job.status.active, timers.ACTIVE_DEADLINE, job.spec.active_deadline_seconds)
    limit = job.spec.scheduling_timeout_seconds
    if limit is not None and job.starting and job.attempt.assigned is not None:
        yield Timer(job.attempt.assigned.sequence, timers.SCHEDULING, limit)


def _of_attempts(job: Job) -> Iterator[Timer]:
    waits = job.attempt.launcher_waits
    if waits is not None and (limit := nodes.launcher_wait(job)) is not None:
        yield Timer(waits.sequence, timers.LAUNCHER_WAIT, limit)
    if job.retries.restarting is not None and (seconds := retries.restart_delay(job, job.retries.restarting)):
        yield promise(job.retries.restarting.at, timers.RESTART, seconds)
    slots = job.attempt.slots
    if job.pods.unseen.slots:
        yield Timer(job.pods.unseen.since, timers.UNSEEN, UNSEEN_SECONDS)
    for vacancy in replacement.replaceable(job).values():
        if vacancy.wait:
            yield promise(vacancy.at, replacement.timer_name(vacancy.wait), vacancy.wait)
    # Only a slot or a job with earlier losses needs the timer that ends their count.
    steady = {filled.at.sequence for slot, filled in job.attempt.refilled.items() if filled.losses and slot in slots}
    if job.retries.disruptions and job.attempt.assigned is not None and job.status.phase == "Running":
        steady.add(job.attempt.assigned.sequence)
    for anchor in sorted(steady):
        yield Timer(anchor, timers.STEADY, replacement.STEADY_SECONDS)
    for failures in nodes.avoided(job).values():
        yield promise(failures.at, timers.AVOIDED, nodes.AVOIDED_SECONDS)


def _of_the_end(job: Job) -> list[Timer]:
    if job.status.ended is None or job.spec is None:
        return []
    found = (
        [promise(job.status.ended, timers.WINDING_DOWN, verdict.WINDING_DOWN_SECONDS)]
        if verdict.winds_down(job)
        else []
    )
    seconds = job.spec.ttl_seconds_after_finished
    return [*found, promise(job.status.ended, timers.TIME_TO_LIVE, seconds)] if seconds is not None else found


def promise(anchor: At, name: str, seconds: int) -> Timer:
    return Timer(anchor.sequence, name, seconds, since=anchor.logged or anchor.time)
