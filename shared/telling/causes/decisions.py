"""Decisions in plain words, and the slots that they concern.  Pure."""

from collections.abc import Iterable
from typing import get_args

from shared.job.events import scaler, scheduler, status
from shared.job.events.catalog import Decision
from shared.job.naming import Slot
from shared.job.state import Job
from shared.job.views import each
from shared.telling.causes.words import because as why
from shared.telling.causes.words import listing, names_of, of_at_most

PHASES = get_args(status.Decision)

_PHASES = {
    "JobCreated": "the job is admitted",
    "JobRunning": "the job runs",
    "JobScaling": "the job changes its size",
    "JobRestarting": "another attempt is due",
    "JobSuspending": "the job is being suspended: its pods are deleted",
    "JobSuspended": "the job is suspended",
    "JobSucceeded": "the job succeeded",
    "JobFailed": "the job failed",
}
_OUTCOMES = {"ScaleRejected": "was rejected", "ScaleSucceeded": "is done", "ScaleFailed": "failed"}


def told(event: Decision, before: Job, after: Job) -> tuple[str, Iterable[Slot]]:
    """The words for a decision, and the slots that it concerns."""
    match event:
        case scheduler.SlotsAssigned():
            slots = each(event.slots)
            return f"{names_of(before, slots)} assigned{why(event.reason)}", slots
        case scheduler.SlotsReleased() | scaler.WorkersReleased():
            slots = each(event.slots)
            return f"{names_of(before, slots)} released{why(event.reason)}", slots
        case scheduler.JobRestarted():
            limit = of_at_most(after.spec.backoff_limit if after.spec else 0)
            counted = f"restart {after.restarts}{limit}" if event.counted else "not counted as a restart"
            return f"attempt {event.attempt + 1} begins, {counted}{why(event.reason)}", ()
        case scheduler.JobExpired():
            return f"it is deleted{why(event.reason)}", ()
        case scaler.HostsPublished():
            joined, left = after.listed_workers - before.listed_workers, before.listed_workers - after.listed_workers
            come, went = ([*map(after.attempt.worker_slot, indices)] for indices in (joined, left))
            words = [f"{names_of(before, come)} joined"] * bool(come) + [f"{names_of(before, went)} left"] * bool(went)
            change = " and ".join(words) or "no worker joined or left"
            return f"{change}: {listing(after)} of version {event.version}{why(event.reason)}", (*come, *went)
        case scaler.ScaleAccepted():
            leaving = [before.attempt.worker_slot(member.index) for member in event.leaving]
            those, direction = ([*each(event.added)], "join") if event.added else (leaving, "leave")
            be = "is" if len({*those}) == 1 else "are"
            return f"accepted: {names_of(before, those)} {be} to {direction} within {event.deadline} s", those
        case scaler.ScriptStarted():
            return "the script of the request was started", ()
        case scaler.ScaleRejected() | scaler.ScaleSucceeded() | scaler.ScaleFailed() | scaler.ScaleCancelled():
            request = after.scaling.requests.get(event.request)
            what = f"{request.kind} {request.name}" if request else "the request"
            sentence = request.conditions[-1].message if request and request.conditions else ""
            how = _OUTCOMES.get(type(event).__name__, "was cancelled")
            released = () if isinstance(event, (scaler.ScaleRejected, scaler.ScaleSucceeded)) else each(event.released)
            return f"{what} {how}{why(event.reason, sentence)}", released
        case _:
            return _PHASES[type(event).__name__] + why(event.reason, event.message), ()


def refilled(job: Job, slot: Slot, old: Slot, reason: str) -> str:
    """The words for a slot that replaces another one, or that is filled again."""
    name = names_of(job, [slot])
    change = f"takes the place of {names_of(job, [old])}" if slot != old else "is made again"
    return f"{name} {change}{why(reason)}"
