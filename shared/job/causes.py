"""What made a decision: the event that its rule waited for last, found in the state.  Pure.

Each rule returns its cause with its decision; of several events for which it waited, the newest made it.
"""

from collections.abc import Iterable, Iterator

from shared.job.conditions import since
from shared.job.events.event import UNKNOWN, Cause
from shared.job.naming import Slot
from shared.job.scaling import Request
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER
from shared.job.state import Job


def newest(*causes: Cause | Iterable[Cause]) -> Cause:
    """The newest of these; of several in one event, the last."""
    found = UNKNOWN
    for one in causes:
        known = one if isinstance(one, Cause) else newest(*one)
        found = known if known.sequence >= found.sequence else found
    return found


def timer(job: Job, anchor: int, name: str) -> Cause:
    """The expiry of a timer; unknown while it runs."""
    return Cause(job.efforts.timers_passed.get((anchor, name), 0))


def of_pods(job: Job, slots: Iterable[Slot]) -> Iterator[Cause]:
    """The newest event of each of these slots' pods, or the loss of the pod."""
    attempt = job.attempt
    for slot in sorted(slots):
        vacancy = attempt.vacancies.get(slot)
        yield Cause(vacancy.at.sequence if vacancy is not None else attempt.news.get(slot, 0), slot)


def of_launcher(job: Job) -> Cause:
    """The end of the launcher, or its newest event."""
    attempt = job.attempt
    slot = Slot(attempt.number, LAUNCHER, 0)
    # A launcher that was missing when the job was adopted has no other news.
    return Cause(attempt.launcher_ended or attempt.news.get(slot, 0) or attempt.since, slot)


def of_beginning(job: Job) -> Cause:
    """The beginning of the attempt: the job's admission, adoption or restart."""
    return Cause(job.attempt.since or (job.status.active.sequence if job.status.active is not None else 0))


def of_interruption(job: Job) -> Cause:
    """The end or suspension of the job, or the end of its attempt."""
    if job.status.ended is not None:
        return Cause(job.status.ended.sequence)
    if job.retries.restarting is not None:
        return Cause(job.retries.restarting.at.sequence)
    if job.status.active is not None and job.retries.paused:
        # The job was resumed before its slots were released.
        return Cause(job.status.active.sequence)
    return Cause(
        since(job.status.conditions, "Suspending") or since(job.status.conditions, "Suspended") or job.attempt.since
    )


def of_request(job: Job, request: Request) -> Cause:
    """The last step of a request: its turn, its pods, its script, the hosts files, or the end of its leaving pods."""
    pods: SortedSet[Slot] = SortedSet()
    if not request.published:
        pods = request.added
    elif request.released:
        pods = SortedSet(job.attempt.worker_slot(member.index) for member in request.leaving)
    return newest(of_steps(request), of_pods(job, pods))


def of_steps(request: Request) -> Iterator[Cause]:
    """The steps of a request so far."""
    yield from map(Cause, (request.order, request.accepted, request.seen))
    if request.script is not None:
        yield Cause(request.script.ended)
