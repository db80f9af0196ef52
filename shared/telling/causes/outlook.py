"""The first sentence of `muster why`: why a job or a request is as it is, and what happens next and when.  Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from shared.frameworks.scale_requests import waiting_for
from shared.frameworks.statuses import with_losses
from shared.job import reasons, timers
from shared.job.naming import NO_UID, Slot
from shared.job.policies import nodes, replacement
from shared.job.scaling import Request
from shared.job.state import Job
from shared.job.text import counted, in_a_row
from shared.job.timers import Timer
from shared.job.timing import next_due
from shared.job.views import occupies
from shared.job.waiting import told, waiting
from shared.telling.causes.links import Links, at_time, awaited_by, minimum_line, problem_line, waits_for, waits_of
from shared.telling.shown import Shown

_TRIES = {
    timers.RESTART: "attempt {attempt} begins {when}",
    timers.UNSEEN: "attempt {attempt} begins {when}",
    timers.REPLACEMENT: "{what} is made again {when}",
    timers.BACK_OFF: "{what} is tried again {when}",
}
"""What Muster does when a timer ends; of those that run, the first to end is told."""

_LIMITS = {
    timers.TIME_TO_LIVE: "it is deleted {when} (ttlSecondsAfterFinished)",
    timers.SCALING_DEADLINE: "the time of the request is over {when}",
    timers.JOB_WAIT: "the request fails {when} unless the job comes before",
    timers.STALL: "it counts as stalled {when} unless it makes a step before",
    timers.BELOW_MINIMUM: "the attempt ends {when} unless enough workers run before",
    timers.LAUNCHER_WAIT: "the attempt ends {when} unless there is room before",
    timers.SCHEDULING: "it fails {when} unless its pods are Ready before (schedulingTimeoutSeconds)",
    timers.ACTIVE_DEADLINE: "it fails {when} unless it ends before (activeDeadlineSeconds)",
}
"""What ends, if nothing else happens before; the first is told, too."""


def of_job(causes: Links, shown: Shown, label: str) -> str:
    """The cause of a job's state and what happens next, as the rest of a sentence; `label` is its KIND/NAME."""
    job = causes.job
    why = dict.fromkeys(filter(None, _causes(causes, shown)))
    ahead = [*_ahead(causes, next_due(job))] or [*_without_time(job, label)]
    return _rest(list(why), ahead)


def of_request(causes: Links, request: Request) -> str:
    """Why a request is in its phase and what happens next, as the rest of a sentence."""
    job = causes.job
    if request.uid not in job.scaling.requests or request.over or not request.shown:
        return _rest([_said(request)], [])
    if request.phase == "Pending":
        reason = waiting_for(job, request)
        problem = next((known.message for known in request.problems if known.reason == reason), "")
        waits = problem or reasons.of_request(reason)
        mine = [due for due in next_due(job) if (due.anchor, due.name) == (request.order, timers.JOB_WAIT)]
        return _rest([f"{reason}: {waits}" if reason else ""], [*_ahead(causes, mine)])
    link = awaited_by(causes, job, request)
    mine = [due for due in next_due(job) if due.name == timers.SCALING_DEADLINE or due.name.startswith(_PREFIXES)]
    return _rest([request.wish, link.text if link is not None else ""], [*_ahead(causes, mine)])


def _rest(why: Sequence[str], ahead: Sequence[str]) -> str:
    told = "; ".join([*filter(None, why), *ahead])
    return f": {told}" if any(why) else f"; {told}" if told else ""


def _said(request: Request) -> str:
    """What a request that is over came to."""
    said = request.conditions[-1].message if request.conditions else ""
    return said or (reasons.of_request(request.reason) if request.reason else "")


def _causes(causes: Links, shown: Shown) -> Iterator[str]:
    job = causes.job
    if job.key.uid == NO_UID:
        yield reasons.of_request("JobNotFound")
    elif job.resource.gone:
        yield "its ttlSecondsAfterFinished was over" if causes.newest.get("JobExpired") else causes.deletion
    elif job.deleting:
        yield causes.newest["JobDeleting"].text
    elif job.halted:
        return
    elif not job.status.phase:
        yield problem_line(job.resource.problems) if job.resource.problems else ""
    else:
        yield _message(causes, shown)
        if not job.over:
            yield from _hindrances(causes, shown)
        elif (wait := told(job)) is not None:
            yield wait.sentence


def _message(causes: Links, shown: Shown) -> str:
    """The message of the phase that the status shows."""
    job = causes.job
    if shown.phase != job.status.phase:
        # Pods of a job that runs are replaced.
        return shown.message
    true = (known for known in job.status.conditions if known.type == job.status.phase and known.status)
    said = next((with_losses(job, known).message for known in true), "")
    if said or causes.phase is None:
        return said
    if job.status.phase == "Succeeded":
        # Its condition says no more than that.
        return causes.phase.cause.text if causes.phase.cause is not None else ""
    if not job.suspended:
        return ""
    return next((link.text for link in causes.phase.chain() if link.type == "JobObserved"), "")


def _hindrances(causes: Links, shown: Shown) -> Iterator[str]:
    """What keeps a job from what it is to be."""
    job = causes.job
    if job.resource.problems:
        problems = job.resource.problems
        yield f"its newest edit {waits_of(problems) or 'is not acted upon'}: {problem_line(problems)}"
    # What comes next names the pods of the last attempt.
    waits, known = waiting(job), told(job)
    wait = waits if job.attempt.begun and not job.between_attempts else known
    request = job.scaling.open_request
    if wait is not None:
        # The message of the phase that the status shows of a job whose pods are replaced tells the same.
        sentence = wait.sentence if known is not None else wait.message
        is_told = wait.reason == reasons.BELOW_MINIMUM or (
            shown.phase != job.status.phase and sentence in shown.message
        )
        yield "" if is_told else sentence
    elif waits is None and (link := waits_for(causes)) is not None:
        # What Muster itself decided is no hindrance.
        yield link.text if link.type not in ("SlotsAssigned", "SlotsReleased") and not job.suspended else ""
    elif request is not None and (link := awaited_by(causes, job, request)) is not None:
        yield link.text
    if job.attempt.below_minimum:
        yield minimum_line(job)
    yield from nodes.of_avoided(job)


_PREFIXES = (timers.REPLACEMENT, timers.BACK_OFF)


def _ahead(causes: Links, due: Sequence[Timer]) -> Iterator[str]:
    """What the first timers to end will do."""
    if causes.job.attempt.slots:
        # A pod of a scale-out that was given up may still come, and no attempt waits for it.
        due = [each for each in due if each.name != timers.UNSEEN]
    for table in (_TRIES, _LIMITS):
        known = [each for each in due if _kind(each) in table and (each.since or each.anchor in causes.times)]
        first = min(known, key=lambda each: _end(causes, each), default=None)
        if first is None:
            continue
        # A promise goes on through restarts of the watcher; anything else starts anew then.
        when = at_time(*_due(causes, first))
        when += "" if first.since else " at the earliest"
        yield table[_kind(first)].format(
            when=when, attempt=causes.job.attempt.number + 2, what=_what(causes.job, first)
        )


def _kind(timer: Timer) -> str:
    return next((prefix for prefix in _PREFIXES if timer.name.startswith(prefix)), timer.name)


def _due(causes: Links, timer: Timer) -> tuple[str, int]:
    """Since when it runs, and for how many seconds."""
    return timer.since or causes.times[timer.anchor], timer.seconds - timer.ahead


def _end(causes: Links, timer: Timer) -> datetime:
    since, seconds = _due(causes, timer)
    return datetime.fromisoformat(since) + timedelta(seconds=seconds)


def _what(job: Job, timer: Timer) -> str:
    if timer.name.startswith(timers.BACK_OFF):
        return timer.name.removeprefix(timers.BACK_OFF)
    lost: list[Slot] = [
        slot
        for slot, vacancy in replacement.replaceable(job).items()
        if vacancy.at.sequence == timer.anchor and timer.name == replacement.timer_name(vacancy.wait)
    ]
    return in_a_row([job.pod_name(slot) for slot in lost[:3]] + [f"{len(lost) - 3} more"] * (len(lost) > 3))


def _without_time(job: Job, label: str) -> Iterator[str]:
    """What has to happen first, where no timer runs."""
    if job.resource.gone or job.halted:
        return
    if job.deleting:
        if job.resource.finalizers and not job.resource.orphan:
            yield "it is gone once they are removed"
    elif not job.status.phase:
        if job.resource.problems:
            yield ("it begins by itself" if waits_of(job.resource.problems) else "it begins once its spec is corrected")
    elif job.over:
        run_on = sum(occupies(pod) and not pod.deleting for pod in job.pods.views.values())
        kept = run_on if job.spec is not None and job.spec.clean_pod_policy == "None" else 0
        pods = f"{counted(kept, 'pod')} {'runs' if kept == 1 else 'run'} on (cleanPodPolicy: None)"
        yield "it stays until it is deleted" + (f", and {pods}" if kept else "")
    elif job.status.phase == "Suspending":
        yield "it is Suspended once its last pod is gone"
    elif job.status.phase == "Suspended":
        asked = job.spec is not None and job.spec.suspend
        begins = "begins its next attempt" if job.attempt.begun else "starts it"
        yield f"`muster resume {label}` {begins}" if asked else "it goes on once its queue admits it"
    elif job.between_attempts:
        # A new attempt uses the same pod names.
        left = ", ".join(sorted(pod.name for pod in job.pods.views.values())[:3])
        yield f"attempt {job.attempt.number + 2} begins once its last pods are gone" + (f" ({left})" if left else "")
    elif job.starting and told(job) is not None:
        yield "it starts by itself once that is over, and no limit of time ends the wait"
