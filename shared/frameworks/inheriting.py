"""What another operator wrote of a job, as far as it matters to whoever takes the job over.  Pure.

The status shape is the one that these operators share: `phase`, `conditions`, `replicaStatuses`, times.  Whatever JSON
stands there is read or ignored; a status is a machine's, but anybody may have written it.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

import msgspec

from shared.job.views import Count, Reached

Ended = Literal["", "Succeeded", "Failed"]

MOST_CONDITIONS = 32
"""Of one status; operators have a dozen types."""
LONGEST_WORD = 64
"""Characters of a type, a reason or a phase."""


class Inherited(msgspec.Struct, frozen=True, kw_only=True):
    """What a status says that we did not write."""

    phase: str
    """Their last word on it; empty when they had not said anything yet."""
    end: Ended = ""
    begun: bool = False
    """All of its pods had been made: one that is not there was lost."""
    start_time: str = ""
    completion_time: str = ""
    restarts: int = 0
    conditions: tuple[Reached, ...] = ()
    counts: tuple[Count, ...] = ()
    workers: tuple[int, ...] | None = None
    """The indices of the workers that it should have; None is as many as the job asks for."""


def read_status(status: Any) -> Inherited | None:
    """What the status says; None when it says nothing that an operator would."""
    if not isinstance(status, dict):
        return None
    conditions = tuple(_conditions(status.get("conditions")))
    phase = _word(status.get("phase")) or _word(status.get("state"))
    if not phase and not conditions:
        return None
    holds = {known.type for known in conditions if known.status}
    ends: tuple[Ended, ...] = ("Failed", "Succeeded")
    end: Ended = next((word for word in ends if phase == word or word in holds), "")
    return Inherited(
        phase=phase or (conditions[-1].type if conditions else ""),
        end=end,
        begun=bool(holds & {"Running", "Restarting"}) or phase in ("Running", "Restarting", "Scaling"),
        start_time=_time(status.get("startTime")),
        completion_time=_time(status.get("completionTime")),
        restarts=_count(status.get("restartCount")),
        conditions=conditions,
        counts=tuple(_counts(status.get("replicaStatuses"))),
    )


def _conditions(found: Any) -> Iterator[Reached]:
    types: set[str] = set()
    for condition in found[:MOST_CONDITIONS] if isinstance(found, list) else ():
        if not isinstance(condition, dict):
            continue
        kind, status = _word(condition.get("type")), condition.get("status")
        if kind and kind not in types and status in ("True", "False"):
            types.add(kind)
            when = _time(condition.get("lastTransitionTime"))
            yield Reached(kind, status == "True", _word(condition.get("reason")), when)


def _counts(found: Any) -> Iterator[Count]:
    for role, counts in found.items() if isinstance(found, dict) else ():
        if isinstance(role, str) and isinstance(counts, dict):
            succeeded, failed = _count(counts.get("succeeded")), _count(counts.get("failed"))
            if succeeded or failed:
                yield Count(role[:LONGEST_WORD].lower(), succeeded, failed)


def _count(value: Any) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31
    return int(value) if whole else 0


def _word(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= LONGEST_WORD else ""


def _time(value: Any) -> str:
    """A time as events have it, which `datetime` reads; empty for anything else."""
    if not isinstance(value, str) or len(value) > LONGEST_WORD:
        return ""
    try:
        known = datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return ""
    return value if known else ""
