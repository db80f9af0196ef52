"""Folds the events of attempts: slots assigned and released, restarts, suspensions; and `JobAdopted`, the job as
another operator, or a lost log, left it.  Pure; called by `evolve`.
"""

from collections.abc import Iterable, Mapping

import msgspec

from shared.job import reasons, text
from shared.job.attempt import Attempt, Members, Refill, Tally, Unknown, Unseen, Vacancy
from shared.job.conditions import MILESTONES, Condition, no_longer
from shared.job.events.event import At
from shared.job.events.scaler import WorkersReleased
from shared.job.events.scheduler import JobRestarted, SlotsAssigned
from shared.job.events.status import JobCreated, JobRestarting, JobSuspended, JobSuspending
from shared.job.events.watcher import JobAdopted, PodsObserved
from shared.job.evolve_pods import pods_already_seen, pods_observed
from shared.job.evolve_requests import released, spoiling, with_edit, with_request
from shared.job.naming import Slot
from shared.job.policies import quota
from shared.job.policies.replacement import losses_before
from shared.job.policies.retries import ASKED_FOR, before_start
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, WORKER, JobSpec
from shared.job.state import (
    Job,
    Restarting,
    with_attempt,
    with_pods,
    with_resource,
    with_retries,
    with_scaling,
    with_status,
)
from shared.job.timers import STEADY, passed
from shared.job.views import Reached, each, ended, indices

replace = msgspec.structs.replace

DRAINED = frozenset({"Drained", "DrainTimed"})
"""The reasons of a `WorkersReleased` whose workers were not in use."""


def assigned(job: Job, event: SlotsAssigned, at: At) -> Job:
    """New slots: the first of an attempt, the launcher's, or replacements."""
    slots, replaced = each(event.slots), each(event.replaces)
    vacancies = job.attempt.vacancies
    own_fault = sum(
        1 for slot in replaced - job.scaling.arriving if slot in vacancies and not vacancies[slot].blameless
    )
    refilled = _refilled(job, slots, replaced, at)
    first = bool(slots) and not job.attempt.begun
    queued = quota.in_queue(job) if first else job.attempt.queued
    job = _for_request(job, slots, replaced & job.scaling.arriving)
    workers = sum(slot.role == WORKER for slot in slots)
    wanted = job.scaling.size or (job.spec.worker.replicas if job.spec is not None else workers)
    if first and wanted != workers:
        # The size was edited between the decision and this event: the edit waits in the queue.
        job = with_scaling(with_edit(job, wanted, at, attempt=job.attempt.number), size=workers)
    ahead = (job.attempt.replaced_ahead | replaced) & job.attempt.slots - slots
    # The pod that a replacement follows ended before.
    new = slots - replaced
    attempt = replace(
        job.attempt,
        replaced_ahead=ahead,
        slots=job.attempt.slots | slots,
        spent=job.attempt.spent - slots,
        assigned=at if first else job.attempt.assigned,
        queued=queued,
        gang=event.gang if first else job.attempt.gang,
        news={slot: sequence for slot, sequence in job.attempt.news.items() if slot not in new},
        vacancies={slot: vacancy for slot, vacancy in vacancies.items() if slot not in replaced},
        refilled=refilled,
        replaced=job.attempt.replaced + own_fault,
    )
    if any(slot.role == LAUNCHER for slot in new):
        # A launcher that had gone before was of a decision that the log has lost.
        attempt = replace(attempt, launcher_gone=None, launcher_ended=0)
    scaling = replace(job.scaling, size=job.scaling.size or workers)
    job = replace(
        job, attempt=attempt, scaling=scaling, pods=replace(job.pods, unseen=Unseen() if first else job.pods.unseen)
    )
    return pods_already_seen(job, new, at)


def _refilled(job: Job, slots: SortedSet[Slot], replaced: SortedSet[Slot], at: At) -> Mapping[Slot, Refill]:
    kept = {slot: filled for slot, filled in job.attempt.refilled.items() if slot in job.attempt.slots}
    for slot, before in _with_replaced(job, slots, replaced):
        vacancy = job.attempt.vacancies[before]
        why = text.with_last_words(f"{job.pod_name(before)} {vacancy.how}", vacancy.message)
        kept[slot] = Refill(at, vacancy.losses + vacancy.blameless, vacancy.cause, why)
    return kept


def _with_replaced(job: Job, slots: SortedSet[Slot], replaced: SortedSet[Slot]) -> Iterable[tuple[Slot, Slot]]:
    """Each new slot with the slot that it replaces, which may be the same one."""
    if not replaced:
        return ()
    if job.spec is not None and job.spec.handling.in_place:
        return [(slot, slot) for slot in slots & replaced & job.attempt.vacancies.keys()]
    # The lowest new slots belong to the open request.
    old = sorted(replaced & job.attempt.vacancies.keys(), key=lambda slot: (slot not in job.scaling.arriving, slot))
    return zip(slots, old, strict=False)


def _for_request(job: Job, slots: SortedSet[Slot], replaced: SortedSet[Slot]) -> Job:
    """The open scale-out with the slots that replace its own lost workers."""
    request = job.scaling.open_request
    if request is None or not replaced:
        return job
    in_place = job.spec is not None and job.spec.handling.in_place
    # `replaces` is in the order of the indices.
    new = replaced if in_place else [*slots][: len(replaced)]
    added = request.added - replaced | new
    return with_request(job, request.uid, added=added, replaced=request.replaced + len(replaced))


def workers_released(job: Job, event: WorkersReleased, at: At) -> Job:
    """Release workers; without a request their slots become vacancies, but for those that were replaced ahead."""
    if event.request:
        return released(_with_drained(job, event), event.slots, at)
    slots = each(event.slots) & job.attempt.unreleased
    job = spoiling(released(job, event.slots, at), slots)
    vacancies = dict(job.attempt.vacancies)
    for slot in slots - job.attempt.replaced_ahead:
        losses = losses_before(job, slot)
        vacancies[slot] = Vacancy(at=at, reason=event.reason, disrupted=True, losses=losses, wait=before_start(losses))
    return with_attempt(job, vacancies=vacancies)


def _with_drained(job: Job, event: WorkersReleased) -> Job:
    """Note the pods that nothing uses any more.  Without hosts files a worker learns of its leave by its SIGTERM."""
    if event.reason not in DRAINED or job.spec is None or not job.spec.handling.hosts_files:
        return job
    slots = each(event.slots)
    return with_pods(job, drained=job.pods.drained | [pod.uid for pod in job.pods.views.values() if pod.slot in slots])


def interrupted(job: Job, event: JobRestarting | JobSuspending | JobSuspended | JobAdopted, at: At) -> Job:
    """The conditions of the interrupted attempt become false."""
    conditions = no_longer(job.status.conditions, event.reason, at, "Running", "Scaling", "Restarting", *MILESTONES)
    return with_retries(with_status(with_attempt(job, below_minimum=0), conditions=conditions), restart_wanted=0)


def suspended(job: Job, event: JobSuspending | JobSuspended, at: At) -> Job:
    """The pods are deleted, or gone; conditions that `JobSuspending` made false get the reason of `JobSuspended`."""
    job = interrupted(job, event, at)
    pausing = next((known.reason for known in job.status.conditions if known.type == "Suspending" and known.status), "")
    conditions = no_longer(job.status.conditions, event.reason, at, "Suspending")
    if pausing:
        conditions = tuple(
            replace(known, reason=event.reason, updated=at) if known.reason == pausing else known
            for known in conditions
        )
    return with_retries(with_status(job, conditions=conditions, active=None), paused=job.attempt.begun)


def restarted(job: Job, event: JobRestarted, at: At) -> Job:
    """A new attempt, without slots."""
    spec = job.spec
    if spec is not None and job.scaling.size and not (spec.handling.elastic and spec.has(WORKER)):
        # A kind that is not elastic applies an edit of its size with the next attempt.  A removed role has no template.
        job = with_scaling(job, size=spec.worker.replicas)
    return replace(
        job,
        attempt=Attempt(number=event.attempt, since=at.sequence),
        membership=Unknown(job.membership.version),
        retries=replace(
            job.retries, restarts=job.retries.restarts + event.counted, restarting=None, restart_wanted=0, paused=False
        ),
        efforts=replace(
            job.efforts,
            # The new attempt tries every effect at once: quotas and templates may have changed.
            refusals={},
        ),
    )


def attempt_ended(job: Job, event: JobRestarting, at: At) -> Job:
    """The attempt failed, was disrupted, or a person asked for another; only a failure counts against backoffLimit."""
    counted = event.counted and event.reason not in ASKED_FOR
    disruptions = job.retries.disruptions
    if not event.counted:
        assigned_at = job.attempt.assigned
        steady = assigned_at is not None and passed(job, assigned_at.sequence, STEADY)
        disruptions = 1 if steady else disruptions + 1
    return with_retries(
        interrupted(job, event, at),
        restarting=Restarting(at, event.reason, counted),
        disruptions=disruptions,
        unplaced=job.retries.unplaced + 1 if event.reason == reasons.LAUNCHER_UNSCHEDULABLE else 0,
    )


def active_again(job: Job, event: JobCreated, at: At) -> Job:
    """The job is admitted or resumed."""
    conditions = no_longer(job.status.conditions, event.reason, at, "Suspending", "Suspended")
    start, active = job.status.start_time or at.time, job.status.active or at
    return with_status(job, start_time=start, active=active, conditions=conditions)


def with_restart_wanted(job: Job, before: JobSpec | None, at: At) -> Job:
    """Note that a person changed the restart annotation of a job that runs or waits for its next attempt."""
    if before is None or job.spec is None or not job.spec.restart or job.spec.restart == before.restart:
        return job
    runs = job.status.phase in ("Running", "Scaling") or (job.starting and job.attempt.begun)
    # Between attempts the request ends the back-off.
    return with_retries(
        job, restart_wanted=at.sequence if runs or job.retries.restarting is not None else 0, unplaced=0
    )


ANOTHER_OPERATOR = "AnotherOperator"
"""The source of a job that was taken over."""


def adopted(job: Job, event: JobAdopted, at: At) -> Job:
    """The job with the slots, the members and the end that it had.

    Known times stay: activeDeadlineSeconds counts from the first start, ttlSecondsAfterFinished from the recorded end.
    """
    if job.attempt.begun and event.source != ANOTHER_OPERATOR and not event.phase:
        if event.attempt == job.attempt.number:
            return _with_more(job, event, at)
        job = with_retries(with_status(interrupted(job, event, at), phase="Restarting"), restarting=None, paused=False)
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
        inherited=SortedSet(job.pods.views) if taken_over else SortedSet(),
    )
    job = with_resource(
        with_status(
            with_retries(
                replace(
                    with_scaling(job, size=event.size or workers),
                    attempt=attempt,
                    membership=Members(version=0, indices=members) if members else Unknown(job.membership.version),
                ),
                restarts=event.restarts,
            ),
            start_time=event.start_time or job.status.start_time,
            conditions=_conditions(event.conditions, at) if event.conditions else job.status.conditions,
        ),
        another=False,
        obstacle="",
    )
    if taken_over:
        job = with_status(with_resource(job, adopted=True), active=began if event.start_time else None)
    if event.phase:
        return _ended(job, event, at)
    missed = {slot: Vacancy(at=at, reason="Missing", taken=True) for slot in lost if slot.role != LAUNCHER}
    launcher_lost = any(slot.role == LAUNCHER for slot in lost)
    job = with_attempt(job, vacancies=missed, launcher_lost=launcher_lost)
    # The pods are folded as if seen for the first time: those that had ended leave their slots.
    seen = PodsObserved(pods=tuple(job.pods.views.values()), epoch=job.resource.epoch)
    job = pods_observed(with_pods(job, views={}), seen, at)
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


def _ended(job: Job, event: JobAdopted, at: At) -> Job:
    """A job that had ended stays ended; its tallies are those that the other operator wrote."""
    over = SortedSet(pod.slot for pod in job.pods.views.values() if ended(pod))
    done = At(at.sequence, event.completion_time) if event.completion_time else at
    job = with_attempt(
        job,
        slots=job.attempt.slots - over,
        spent=job.attempt.spent | (over & job.attempt.slots),
        tallies={count.role: Tally(count.succeeded, count.failed) for count in event.counts},
    )
    return with_status(job, phase=event.phase, ended=done, completion_time=done.time)


def _conditions(reached: Iterable[Reached], at: At) -> tuple[Condition, ...]:
    found = [(known, At(at.sequence, known.time) if known.time else at) for known in reached]
    return tuple(Condition(known.type, known.status, known.reason, "", then, then) for known, then in found)
