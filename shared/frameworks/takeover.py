"""Reads the pods and the status of the replaced operator, for a job that Muster takes over.  Pure.

These operators share the shape of a status: `phase`, `conditions`, `replicaStatuses`, times.  Unexpected JSON is
ignored, because anyone with rights on the resource may have written it.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from shared.cluster.objects import Custom
from shared.job.views import Count, Reached

Ended = Literal["", "Succeeded", "Failed"]

MOST_CONDITIONS = 32
"""The most conditions that are read; operators have a dozen types."""
DIGITS = 5
"""Of a pod's index in a label or a name."""
LONGEST_WORD = 64
"""The most characters of a type, a reason or a phase."""


class Inherited(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job in another operator's status."""

    phase: str
    """The last phase; empty if the operator had written none."""
    end: Ended = ""
    begun: bool = False
    """True if all pods had been created: a missing one was lost."""
    start_time: str = ""
    completion_time: str = ""
    restarts: int = 0
    conditions: tuple[Reached, ...] = ()
    counts: tuple[Count, ...] = ()
    workers: tuple[int, ...] | None = None
    """The indices of the wanted workers; None means as many as the spec asks for."""
    obstacle: str = ""
    """Why the job cannot be taken over as it is; empty if it can."""
    without_launcher: str = ""
    """Why it cannot while no launcher of it is seen; empty if that one was lost then."""


class TakeOver:
    """The traces of the replaced operator in jobs of one kind; the defaults are of a kind that cannot be taken over."""

    selector: str = ""
    """A label selector of the pods that the operator created, by labels that it never changed; empty if its jobs cannot
    be taken over."""
    files: Mapping[str, str] = MappingProxyType({})
    """Hosts files that the operator wrote into the launcher → their path in the mounted ConfigMap.

    The scaler replaces the former by links to the latter.
    """

    def role_and_index(self, labels: Mapping[str, str]) -> tuple[str, int] | None:
        """The role and the index of a pod that the operator created; None if the labels do not tell them."""
        return None

    def status(self, manifest: Custom) -> Inherited | None:
        """The state in a status that the operator wrote; None if it wrote none."""
        return read_status(manifest.status)


def read_status(status: Any) -> Inherited | None:
    """The state in a status; None if it has no phase and no condition."""
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
    """A time in the format of events; empty for anything else."""
    if not isinstance(value, str) or len(value) > LONGEST_WORD:
        return ""
    try:
        known = datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return ""
    return value if known else ""
