"""Conditions after the job's events: which are true, since when and why.  Pure.

They are in the order in which they last became true, as in et-operator's status; the status service has their shape in
a status document.
"""

import msgspec

from shared.job.events.event import At

MILESTONES = ("WorkersCreated", "WorkersReady", "LauncherCreated")
"""The conditions of an attempt before Running; `waiting.py` says why one is not reached."""


class Condition(msgspec.Struct, frozen=True, gc=False):
    """One Kubernetes condition, with the event that caused it."""

    type: str
    status: bool
    reason: str
    message: str
    since: At
    """When `status` changed last."""
    updated: At
    """When any field changed last."""


def with_condition(
    conditions: tuple[Condition, ...],
    kind: str,
    at: At,
    *,
    status: bool = True,
    reason: str,
    message: str = "",
) -> tuple[Condition, ...]:
    """The conditions with this one: in its place if its status stays or becomes false, otherwise at the end."""
    for old in conditions:
        if old.type == kind:
            break
    else:
        return (*conditions, Condition(kind, status, reason, message, at, at))
    if (old.status, old.reason, old.message) == (status, reason, message):
        return conditions
    new = Condition(kind, status, reason, message, at if old.status != status else old.since, at)
    if status and not old.status:
        return (*(condition for condition in conditions if condition is not old), new)
    return tuple(new if condition is old else condition for condition in conditions)


def holds(conditions: tuple[Condition, ...], kind: str) -> bool:
    """True if a condition of this type exists and is true."""
    for condition in conditions:
        if condition.type == kind:
            return condition.status
    return False


def no_longer(conditions: tuple[Condition, ...], reason: str, at: At, *kinds: str) -> tuple[Condition, ...]:
    """The conditions with those of these types set to false that were true."""
    for kind in kinds:
        if holds(conditions, kind):
            conditions = with_condition(conditions, kind, at, status=False, reason=reason)
    return conditions


def since(conditions: tuple[Condition, ...], kind: str) -> int:
    """The sequence at which the condition of this type became true; 0 if it is not true."""
    return next((known.since.sequence for known in conditions if known.type == kind and known.status), 0)
