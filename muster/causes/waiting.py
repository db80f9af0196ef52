"""What timers ran out on, and what is waited for.  Pure."""

from collections.abc import Iterable

from muster.causes.ledger import Ledger
from muster.causes.link import Link
from muster.causes.words import timer_line
from shared.job.events.watcher import TimePassed
from shared.job.naming import Slot
from shared.job.policies import replacement
from shared.job.request import Request
from shared.job.sorted_set import SortedSet
from shared.job.state import Job, hosts_seen
from shared.job.timing import DRAIN, SCALING_DEADLINE, SCHEDULING, SCRIPT_DEADLINE, next_due

_TIMERS_OF_REQUESTS = frozenset({SCALING_DEADLINE, SCRIPT_DEADLINE, DRAIN})


def passed(ledger: Ledger, event: TimePassed, before: Job, here: Link) -> None:
    running = next((due for due in next_due(before) if (due.anchor, due.name) == (event.anchor, event.timer)), None)
    text = timer_line(event.timer, running.seconds if running else None)
    cause = ledger.at.get(event.anchor)
    request = before.scaling.open_request
    if event.timer == SCHEDULING:
        cause = _awaited(ledger, before, _first(before)) or cause
    elif event.timer.startswith(replacement.TIMER):
        cause = ledger.pods.loss_at(event.anchor) or cause
    elif event.timer == SCALING_DEADLINE and request is not None:
        cause = _awaited_by(ledger, before, request) or ledger.last_of(request.uid)
    ledger.timers[event.anchor, event.timer] = ledger.at[here.sequence] = link = here.says(text, cause)
    if request is not None and event.timer in _TIMERS_OF_REQUESTS:
        ledger.add(request.uid, link)


def waits_for(ledger: Ledger, job: Job) -> Link | None:
    """What a job that has not begun to run waits for, where the log knows."""
    if job.integrity.doubt is not None:
        return ledger.broken
    if job.another:
        return ledger.another
    if job.gone or job.over or job.phase == "Suspended":
        return None
    if job.problems and not job.phase:
        return ledger.spec
    if job.phase == "Restarting" and not job.attempt.slots:
        # A new attempt uses the old names: it begins once those who have them are gone.
        return ledger.pods.newest_end(pod.slot for pod in job.pods.values())
    if not job.starting:
        return None
    for effect in ("CreateSecret", "CreateService", "WriteHosts"):
        if effect in job.refusals:
            return ledger.refusals.get(effect)
    return _awaited(ledger, job, _first(job)) or _awaited(ledger, job, job.attempt.slots)


def request_waits_for(ledger: Ledger, job: Job, request: Request) -> Link | None:
    """What a request that is not over waits for: its turn, the job, pods, or the hosts files."""
    if request.over or job.gone or request.uid not in job.scaling.requests:
        return None
    if request.phase == "Scaling":
        return _awaited_by(ledger, job, request)
    if job.scaling.open:
        return ledger.last_of(job.scaling.open)
    if job.phase != "Running":
        return ledger.phase
    return ledger.refusals.get("OwnRequest") if "OwnRequest" in job.refusals else None


def _first(job: Job) -> SortedSet[Slot]:
    """The places that all else waits for: the workers' before the launcher's, all where there is no launcher."""
    return job.attempt.workers if job.spec is None or job.spec.has_launcher else job.attempt.slots


def _awaited(ledger: Ledger, job: Job, slots: Iterable[Slot]) -> Link | None:
    """What the first of these places waits for that is not Ready."""
    pods = job.by_slot()
    for slot in sorted(slots):
        pod = pods.get(slot)
        if pod is None:
            return ledger.refusals.get("CreatePod") if "CreatePod" in job.refusals else ledger.pods.why_there(slot)
        if not pod.ready:
            return ledger.pods.state_of(pod)
    return None


def _awaited_by(ledger: Ledger, job: Job, request: Request) -> Link | None:
    if request.published and not hosts_seen(job, request.published):
        return ledger.refusals.get("WriteHosts") if "WriteHosts" in job.refusals else ledger.hosts
    if request.kind == "ScaleOut":
        return _awaited(ledger, job, request.added)
    return ledger.pods.newest_end(job.attempt.worker_slot(member.index) for member in request.leaving)
