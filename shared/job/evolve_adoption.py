"""Folds `JobAdopted`: the job as another operator, or a lost log, left it.  Pure; called by `evolve`."""

from collections.abc import Iterable

import msgspec

from shared.job.attempt import Attempt
from shared.job.conditions import Condition
from shared.job.events.event import At
from shared.job.events.watcher import JobAdopted, PodsObserved
from shared.job.evolve_attempts import interrupted
from shared.job.evolve_pods import pods_already_seen, pods_observed
from shared.job.losses import Tally, Vacancy
from shared.job.membership import Members, Unknown
from shared.job.naming import Slot
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, WORKER
from shared.job.state import Job, with_attempt, with_scaling
from shared.job.views import Reached, each, ended, indices

replace = msgspec.structs.replace

ANOTHER_OPERATOR = "AnotherOperator"
"""The source of a job that was taken over."""


def adopted(job: Job, event: JobAdopted, at: At) -> Job:
    """The job with the slots, the members and the end that it had.

    Known times stay: activeDeadlineSeconds counts from the first start, ttlSecondsAfterFinished from the recorded end.
    """
    if job.attempt.begun and event.source != ANOTHER_OPERATOR and not event.phase:
        if event.attempt == job.attempt.number:
            return _with_more(job, event, at)
        job = replace(interrupted(job, event, at), phase="Restarting", restarting=None, paused=False)
    slots, lost, known = each(event.slots), each(event.lost), job.attempt.news
    workers = sum(slot.role == WORKER for slot in slots)
    members = indices(event.members)
    began = At(at.sequence, event.start_time) if event.start_time else at
    taken_over = event.source == ANOTHER_OPERATOR
    attempt = Attempt(
        number=event.attempt,
        since=at.sequence,
        assigned=began if slots or lost else None,
        slots=slots,
        spent=lost,
        # A log that was lost knew which workers had failed.
        spoilt=0 if taken_over else event.next_index,
        inherited=SortedSet(job.pods) if taken_over else SortedSet(),
    )
    job = replace(
        with_scaling(job, size=event.size or workers),
        attempt=attempt,
        membership=Members(version=0, indices=members) if members else Unknown(job.membership.version),
        restarts=event.restarts,
        start_time=event.start_time or job.start_time,
        another=False,
        obstacle="",
        conditions=_conditions(event.conditions, at) if event.conditions else job.conditions,
    )
    if taken_over:
        job = replace(job, adopted=True, active=began if event.start_time else None)
    if event.phase:
        return _finished(job, event, at)
    missed = {slot: Vacancy(at=at, reason="Missing", taken=True) for slot in lost if slot.role != LAUNCHER}
    launcher_lost = any(slot.role == LAUNCHER for slot in lost)
    job = with_attempt(job, vacancies=missed, launcher_lost=launcher_lost)
    # The pods are folded as if seen for the first time: those that had ended leave their slots.
    seen = PodsObserved(pods=tuple(job.pods.values()), epoch=job.epoch)
    job = pods_observed(replace(job, pods={}), seen, at)
    # The news of the pods are older than the adoption.
    news = {**job.attempt.news, **known}
    ended_at = news.get(Slot(event.attempt, LAUNCHER, 0), 0) if job.attempt.launcher_gone is not None else 0
    return with_attempt(job, news=news, launcher_ended=ended_at)


def _with_more(job: Job, event: JobAdopted, at: At) -> Job:
    """The attempt with slots that the log had lost besides those that it knew."""
    attempt, new = job.attempt, each(event.slots) - job.attempt.slots
    attempt = replace(
        attempt,
        slots=attempt.slots | new,
        spent=attempt.spent - new,
        spoilt=max(attempt.spoilt, event.next_index),
        vacancies={slot: vacancy for slot, vacancy in attempt.vacancies.items() if slot not in new},
    )
    return pods_already_seen(with_scaling(replace(job, attempt=attempt), size=event.size), new, at)


def _finished(job: Job, event: JobAdopted, at: At) -> Job:
    """A job that had ended stays ended; its tallies are those that the other operator wrote."""
    over = SortedSet(pod.slot for pod in job.pods.values() if ended(pod))
    done = At(at.sequence, event.completion_time) if event.completion_time else at
    job = with_attempt(
        job,
        slots=job.attempt.slots - over,
        spent=job.attempt.spent | (over & job.attempt.slots),
        tallies={count.role: Tally(count.succeeded, count.failed) for count in event.counts},
    )
    return replace(job, phase=event.phase, ended=done, completion_time=done.time)


def _conditions(reached: Iterable[Reached], at: At) -> tuple[Condition, ...]:
    found = [(known, At(at.sequence, known.time) if known.time else at) for known in reached]
    return tuple(Condition(known.type, known.status, known.reason, "", then, then) for known, then in found)
