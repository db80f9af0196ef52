"""What happens to a job as a whole: its resource, its phases, its attempts and their size.  Pure."""

from muster.causes.ledger import UNRECORDED, Ledger
from muster.causes.link import Link
from muster.causes.words import applied, changed, names_of, of_at_most, problem_line
from muster.words import counted
from shared.job.events.scheduler import JobRestarted, SlotsAssigned
from shared.job.events.status import (
    JobCreated,
    JobRestarting,
    JobRunning,
    JobScaling,
    JobSucceeded,
    JobSuspended,
    PhaseEntered,
)
from shared.job.events.watcher import JobObserved
from shared.job.naming import Slot
from shared.job.policies import replacement
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, WORKER, JobSpec
from shared.job.state import Job, needed_workers
from shared.job.timing import ACTIVE_DEADLINE, BELOW_MINIMUM, RESTART, SCHEDULING
from shared.job.verdict import verdict
from shared.job.views import alive, each


def observed(ledger: Ledger, event: JobObserved, before: Job, after: Job, here: Link) -> None:
    if event.problems:
        ledger.spec = here.says(f"somebody applied what cannot be acted upon: {problem_line(event.problems)}")
        return
    was, now = before.spec, after.spec
    if now is None or was == now:
        return
    ledger.spec = link = here.says(applied(now) if was is None else changed(was, now, event.generation))
    if now.suspend != (was is not None and was.suspend):
        ledger.pause = link
    if was is not None and now.restart != was.restart:
        ledger.restart = link
    for uid in after.scaling.requests:
        if uid not in before.scaling.requests:
            # The edit of a size waits in the same queue as requests do.
            ledger.asks(uid, link)


def assigned(ledger: Ledger, event: SlotsAssigned, before: Job, here: Link) -> None:
    slots, replaced = sorted(each(event.slots)), sorted(each(event.replaces))
    if replaced:
        for slot, old in zip(slots, replaced, strict=False):
            again = f"{names_of(before, [slot])} is made again"
            text = f"{names_of(before, [slot])} takes the place of {names_of(before, [old])}" if slot != old else again
            vacancy = before.attempt.vacancies.get(old)
            name = replacement.timer_name(replacement.delay(before, old, vacancy)) if vacancy else ""
            waited = ledger.timers.get((vacancy.at.sequence, name)) if vacancy else None
            cause = waited or ledger.pods.why_empty(old)
            ledger.pods.assigned([slot], ledger.decided(here, text, cause, event.reason))
        return
    first = any(slot.role != LAUNCHER for slot in slots)
    begun = ledger.attempt if before.attempt.number else None
    cause = (begun or ledger.phase) if first else (ledger.in_place.get(before.membership.version) or ledger.hosts)
    link = ledger.decided(here, f"{names_of(before, slots)} assigned", cause, event.reason)
    ledger.pods.assigned(slots, link)
    ledger.at[here.sequence] = link


def restarted(ledger: Ledger, event: JobRestarted, before: Job, after: Job, here: Link) -> None:
    waited = ledger.timers.get((before.restarting.at.sequence, RESTART)) if before.restarting else None
    limit = of_at_most(after.spec.backoff_limit if after.spec else 0)
    counted = f", restart {after.restarts}{limit}" if event.counted else ", not counted as a restart"
    ledger.attempt = ledger.decided(
        here, f"attempt {event.attempt + 1} begins{counted}", waited or ledger.phase, event.reason
    )
    ledger.hosts = ledger.below = None


def entered(ledger: Ledger, event: PhaseEntered, before: Job, here: Link) -> None:
    cause: Link | None
    match event:
        case JobCreated():
            text, cause = "the job is taken on", ledger.pause if before.phase == "Suspended" else ledger.spec
        case JobRunning():
            text = "the job runs"
            cause = ledger.request_ended if before.phase == "Scaling" else _judge_started(ledger, before)
        case JobScaling():
            taken_up = ledger.requests.get(before.scaling.open, ())
            text, cause = "the job changes its size", next(iter(taken_up[-1:]), None)
        case JobSuspended():
            text, cause = "the job is paused and gives its pods back", ledger.pause
        case JobSucceeded():
            text, cause = "the job succeeded", _judge_ended(ledger, before)
        case JobRestarting():
            text = "another attempt is due"
            end = verdict(before)
            wished = before.restart_wanted and (end is None or end.reason != event.reason)
            cause = ledger.restart if wished else _why_ended(ledger, before, event.reason)
        case _:
            text, cause = "the job failed", _why_ended(ledger, before, event.reason)
    ledger.phase = ledger.at[here.sequence] = ledger.decided(here, text, cause, event.reason, event.message)


def _why_ended(ledger: Ledger, job: Job, reason: str) -> Link | None:
    """What ended an attempt, in the order in which the verdict judges."""
    if reason == "BelowMinimum":
        return ledger.timers.get((job.attempt.below_minimum, BELOW_MINIMUM)) or ledger.below
    if reason == "DeadlineExceeded" and job.active is not None:
        timer = ledger.timers.get((job.active.sequence, ACTIVE_DEADLINE))
        if timer is not None:
            return timer
    if reason == "SchedulingTimeout" and job.attempt.assigned is not None:
        return ledger.timers.get((job.attempt.assigned.sequence, SCHEDULING))
    for effect, refusal in job.refusals.items():
        if refusal.permanent and refusal.reason == reason:
            return ledger.refusals.get(effect)
    return _judge_ended(ledger, job) or ledger.pods.newest_loss(job.attempt.spent)


def _judge_started(ledger: Ledger, job: Job) -> Link | None:
    """The start of the pod whose running is the job's: the launcher's, or the newest one of the role that judges."""
    if job.spec is None or job.spec.has_launcher:
        return ledger.pods.started(job.seen_launcher)
    return ledger.pods.newest_start(_judges(job, job.spec))


def _judge_ended(ledger: Ledger, job: Job) -> Link | None:
    """The end of the pod whose end is the job's.  What failed and is to be replaced is no end of it."""
    if job.spec is None or job.spec.has_launcher:
        return ledger.pods.end_of(job.seen_launcher)
    return ledger.pods.newest_loss(_judges(job, job.spec) & job.attempt.spent)


def _judges(job: Job, spec: JobSpec) -> SortedSet[Slot]:
    places = SortedSet(slot for slot in job.attempt.places if slot.role == spec.handling.judge)
    first = SortedSet(slot for slot in places if slot.index == 0)
    return first if spec.handling.succeeds == "First" else places


def note_minimum(ledger: Ledger, before: Job, after: Job, here: Link) -> None:
    if not after.attempt.below_minimum:
        ledger.below = None
    elif after.attempt.below_minimum != before.attempt.below_minimum:
        least = needed_workers(after)
        pods = after.by_slot()
        running = {slot for slot in after.attempt.workers if alive(pods.get(slot)) and pods[slot].phase == "Running"}
        absent = {slot for slot in after.attempt.workers | after.attempt.spent if slot.role == WORKER} - running
        without = f" without {names_of(after, absent)}" if len(absent) > 1 else ""
        text = f"{counted(len(running), 'running worker')} left{without}, and minReplicas is {least}"
        loss = ledger.pods.newest_end(absent) or ledger.phase
        if loss is not None and loss.sequence == here.sequence:
            ledger.below = here.says(f"{loss.text}; {text}", loss.cause, unknown=loss.unknown)
        else:
            ledger.below = here.says(text, loss, unknown="" if loss else UNRECORDED)
        ledger.at[here.sequence] = ledger.below
