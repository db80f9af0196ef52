"""The names of timers, and whether one expired.  Pure.

`timing.py` says which timers run, by the rules of `policies`; these ask here.
"""

from collections.abc import Iterator, Mapping

import msgspec

from shared.job.attempt import Members
from shared.job.events.event import At
from shared.job.naming import Uid
from shared.job.state import Job, with_efforts

SCALING_DEADLINE = "ScalingDeadline"
JOB_WAIT = "JobWait"
SCRIPT_DEADLINE = "ScriptDeadline"
DRAIN = "Drain"
DRAIN_CHECK = "DrainCheck"
ACTIVE_DEADLINE = "ActiveDeadline"
SCHEDULING = "Scheduling"
RESTART = "Restart"
UNSEEN = "Unseen"
TIME_TO_LIVE = "TimeToLive"
DISRUPTION_DRAIN = "DisruptionDrain"
BELOW_MINIMUM = "BelowMinimum"
WINDING_DOWN = "WindingDown"
"""The timer after which pods that still run after their job's success are cleaned up."""
STALL = "Stall"
"""The timer after which a job whose training makes no step counts as stalled."""
SEAL = "Seal"
"""The timer after which the history of a job that is gone may be sealed."""
WAITING = "Waiting"
"""The timer after which people are told what a job waits for."""
STEADY = "Steady"
"""The timer after which a replaced slot, or an attempt after a disruption, is steady."""

REPLACEMENT = "Replacement:"
"""The prefix of a replacement's timer; the seconds follow, because pods of one event may wait for different times."""

FORCED_DELETION = "ForcedDeletion:"
"""The prefix of the timer of a forced deletion; the seconds follow, because pods have different grace periods."""

LAUNCHER_WAIT = "LauncherWait"
"""The timer after which workers that wait for their launcher, or for more of them, give their places back."""

SETTLE = "Settle"
"""The timer after which a job starts with the workers that are Ready, or gives one place back for its launcher."""
GROW = "Grow"
"""The timer after which more workers may join those that train."""

NOTICE = "Notice:"
"""The prefix of the timer of an announced end of a node; the seconds follow, because notices have different lengths."""

WELL = "Well:"
"""The prefix of the timer of a pod whose containers crashed and run again; its uid and their restarts follow."""

AVOIDED = "Avoided"
"""The timer after which a node where pods failed again and again is as any other."""

BACK_OFF = "BackOff:"
"""The prefix of a refused effect's timer."""


class Timer(msgspec.Struct, frozen=True):
    """`seconds` after the event with the sequence `anchor`, `TimePassed(anchor, name)` is due."""

    anchor: int
    name: str
    seconds: int
    since: str = ""
    """When a promise's anchor was logged; empty for a judgement."""
    ahead: int = 0
    """Seconds of a judgement that had passed at its anchor; they count where it is measured from there on."""
    logged: str = ""
    """When the anchor of such a judgement was logged."""
    of_nodes: bool = False
    """True for a judgement about lost nodes, which runs only while the watcher sees that they are lost."""


def passed(job: Job, anchor: int, name: str) -> bool:
    """True if the timer expired."""
    return (anchor, name) in job.efforts.timers_passed


UNSORTED = 32
"""As many passed timers may stay in a job's state although nothing there has their anchor any more."""


def with_passed(job: Job, anchor: int, name: str, sequence: int) -> Job:
    """The job with one more timer that passed."""
    known = job.efforts.timers_passed
    known = anchored(job) if len(known) >= UNSORTED else known
    return with_efforts(job, timers_passed={**known, (anchor, name): known.get((anchor, name), sequence)})


def anchored(job: Job) -> Mapping[tuple[int, str], int]:
    """The passed timers whose anchor is in the state: no rule asks for others, and a job may live for years."""
    there = {*_anchors(job)}
    return {timer: sequence for timer, sequence in job.efforts.timers_passed.items() if timer[0] in there}


def _anchors(job: Job) -> Iterator[int]:
    """The sequences that a timer of this job may count from, some of them twice."""
    attempt, pods, status, retries = job.attempt, job.pods, job.status, job.retries
    yield from (job.resource.edited, job.resource.gone, attempt.below_minimum, pods.unseen.since)
    restarting = retries.restarting.at if retries.restarting is not None else None
    moments: list[At | None] = [status.active, status.ended, restarting, attempt.assigned, attempt.launcher_waits]
    moments += [known.since for known in status.conditions]
    moments += [vacancy.at for vacancy in attempt.vacancies.values()]
    moments += [refill.at for refill in attempt.refilled.values()]
    moments += [job.training.stands, *pods.troubles.values()]
    moments += [failures.at for failures in pods.failures_on.values()]
    moments += [notice.at for notices in pods.notices.values() for notice in notices]
    moments += [at for lost in pods.lost.values() for at in (lost.at, lost.terminating)]
    moments += [job.membership.grew] if isinstance(job.membership, Members) else []
    yield from (at.sequence for at in moments if at is not None)
    yield from (attempt.news.get(slot, 0) for slot in attempt.vacancies)
    if isinstance(job.membership, Members):
        yield job.membership.written
        yield from (departure.seen for departure in job.membership.departures.values())
    for request in job.scaling.requests.values():
        if request.resize is not None and request.conditions:
            yield request.conditions[-1].since.sequence
        if not request.over or (request.kind == "ScaleIn" and request.published and not request.released):
            yield from (request.waits_since, request.seen)
            yield request.script.started if request.script is not None else 0
            yield request.look.at if request.look is not None else 0


def well(uid: Uid, restarts: int) -> str:
    """The timer's name."""
    return f"{WELL}{uid}:{restarts}"


def may_appear(job: Job) -> bool:
    """True while pods may appear that were created and not seen before their slots were released."""
    return bool(job.pods.unseen.slots) and not passed(job, job.pods.unseen.since, UNSEEN)
