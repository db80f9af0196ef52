"""A history that begins in the middle: what another operator, or a lost log, left of a job.  Pure.

Called by `evolve`.
"""

from collections.abc import Iterable

import msgspec

from shared.job.conditions import Condition
from shared.job.events.event import At
from shared.job.events.watcher import JobAdopted, PodsObserved
from shared.job.evolve_pods import pods_observed
from shared.job.losses import Tally, Vacancy
from shared.job.spec import LAUNCHER, WORKER
from shared.job.state import Job
from shared.job.views import Reached, each, ended, indices

replace = msgspec.structs.replace

ANOTHER_OPERATOR = "AnotherOperator"
"""The source of a job that was taken over."""


def adopted(job: Job, event: JobAdopted, at: At) -> Job:
    """The job with what is there: its slots, and what it had reached; pods that had ended count as such.

    Instants of that time, as far as they are known, stay what they were: a deadline counts from the true beginning,
    a time to live from the true end.
    """
    slots, lost = each(event.slots), each(event.lost)
    workers = sum(slot.role == WORKER for slot in slots)
    members = indices(event.members)
    job = replace(
        job,
        attempt=event.attempt,
        restarts=event.restarts,
        slots=slots,
        spent=lost,
        next_index=event.next_index,
        size=event.size or workers,
        another=False,
        members=members,
        listed=bool(members),
        assigned=At(at.sequence, event.start_time or at.time) if slots or lost else None,
        conditions=_conditions(event.conditions, at) if event.conditions else job.conditions,
    )
    if event.source == ANOTHER_OPERATOR:
        began = At(at.sequence, event.start_time or at.time)
        job = replace(
            job,
            adopted=True,
            inherited=frozenset(job.pods),
            active=began if event.start_time else None,
            start_time=event.start_time,
        )
    if event.phase:
        return _finished(job, event, at)
    missed = {slot: Vacancy(at=at, reason="Missing", taken=True) for slot in lost if slot.role != LAUNCHER}
    launcher_lost = any(slot.role == LAUNCHER for slot in lost)
    job = replace(job, vacancies=missed, launcher_lost=launcher_lost)
    # As if they were seen now for the first time: those that had ended leave their slots.
    return pods_observed(replace(job, pods={}), PodsObserved(pods=tuple(job.pods.values()), epoch=job.epoch), at)


def _finished(job: Job, event: JobAdopted, at: At) -> Job:
    """It is over and stays so; its end was counted by those who saw it."""
    over = frozenset(pod.slot for pod in job.pods.values() if ended(pod))
    done = At(at.sequence, event.completion_time or at.time)
    return replace(
        job,
        phase=event.phase,
        ended=done,
        completion_time=done.time,
        slots=job.slots - over,
        spent=job.spent | (over & job.slots),
        tallies={count.role: Tally(count.succeeded, count.failed) for count in event.counts},
    )


def _conditions(reached: Iterable[Reached], at: At) -> tuple[Condition, ...]:
    found = [(known, At(at.sequence, known.time or at.time)) for known in reached]
    return tuple(Condition(known.type, known.status, known.reason, "", then, then) for known, then in found)
