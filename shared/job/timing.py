"""Time as a fact: which timers a job waits for.  Pure; the watcher alone measures them and appends `TimePassed`.

A *judgement* runs on a monotonic clock, only while the watches show life, and afresh after a restart: an operator
that was blind fails nothing for what it did not see.  A *promise* goes on: after a restart the remainder is taken
from the time of its anchor.
"""

import msgspec

from shared.job.state import Job

SCHEDULING_TIMEOUT_SECONDS = 600
"""How long a job may stay below its minimum when its spec does not say (docs: contract, TrainingJob.spec)."""

BACK_OFF_CAP_SECONDS = 300
"""The longest wait before a refused effect is tried again."""


class Timer(msgspec.Struct, frozen=True):
    """`seconds` after the event with the sequence `anchor`, `TimePassed(anchor, name)` is due."""

    anchor: int
    name: str
    seconds: int
    since: str = ""
    """Of a promise the time of its anchor; a judgement has none."""


def next_due(job: Job) -> tuple[Timer, ...]:
    """The timers that run for `job` now, in no particular order; none that already ran out."""
    if job.gone or job.halted:
        return ()
    timers = [
        Timer(refusal.at.sequence, f"BackOff:{effect}", back_off(refusal.count), since=refusal.at.time)
        for effect, refusal in job.refusals.items()
        if not refusal.due and not refusal.permanent
    ]
    request = job.open_request
    if request is not None:
        timers.append(Timer(request.accepted, "ScalingDeadline", request.deadline))
        if request.kind == "ScaleIn" and request.seen and not request.released:
            timers.append(Timer(request.seen, "Drain", request.drain))
    if job.below_minimum and not job.over and job.spec is not None:
        limit = job.spec.scheduling_timeout_seconds or SCHEDULING_TIMEOUT_SECONDS
        timers.append(Timer(job.below_minimum, "BelowMinimum", limit))
    return tuple(timer for timer in timers if (timer.anchor, timer.name) not in job.passed)


def back_off(count: int) -> int:
    """Seconds before the next try after `count` refusals in a row: 1, 2, 4, ... up to five minutes."""
    return min(1 << min(count - 1, 16), BACK_OFF_CAP_SECONDS)


def passed(job: Job, anchor: int, name: str) -> bool:
    """That timer ran out."""
    return (anchor, name) in job.passed
