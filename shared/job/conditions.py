"""Conditions as the job's events leave them: which is true, since when, why.  Pure.

Their order is the order in which they last became what they are, as et-operator's users know it; their shape in a
status document is the status service's business.
"""

import msgspec

from shared.job.events.event import At


class Condition(msgspec.Struct, frozen=True, gc=False):
    """One Kubernetes condition, with the event that caused it."""

    type: str
    status: bool
    reason: str
    message: str
    since: At
    """When `status` became what it is."""
    updated: At
    """When anything of it changed last."""


def with_condition(
    conditions: tuple[Condition, ...],
    kind: str,
    at: At,
    *,
    status: bool = True,
    reason: str,
    message: str = "",
) -> tuple[Condition, ...]:
    """The conditions with one of this type: in place when its status stays or becomes false, else at the end."""
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
    """A condition of this type is there and true."""
    return any(condition.type == kind and condition.status for condition in conditions)


def no_longer(conditions: tuple[Condition, ...], kind: str, reason: str, at: At) -> tuple[Condition, ...]:
    """The conditions with the one of this type false, if it was true."""
    return with_condition(conditions, kind, at, status=False, reason=reason) if holds(conditions, kind) else conditions


def since(conditions: tuple[Condition, ...], kind: str) -> int:
    """The sequence at which the condition of this type became true; 0 where it is not."""
    return next((known.since.sequence for known in conditions if known.type == kind and known.status), 0)
