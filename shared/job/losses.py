"""Pods that ended or vanished by themselves: what is kept of them, their empty places, and who took these."""

import msgspec

from shared.job.events.event import At

KEPT_FAILURES = 16
"""Enough for the Kubernetes Events of a bad minute; the log has them all."""


class Failure(msgspec.Struct, frozen=True, gc=False):
    """A worker that ended or vanished although nobody released it."""

    pod: str
    reason: str
    code: int | None
    at: At


class Vacancy(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A place that is empty because its pod, no launcher, ended or vanished by itself."""

    at: At
    reason: str
    code: int | None = None
    """The exit code of the training container; None where there was none."""
    succeeded: bool = False
    taken: bool = False
    """The pod was deleted, or vanished, before it ended."""
    disrupted: bool = False
    """Its node went, or it was evicted to make room."""
    losses: int = 0
    """How many blameless losses of this place came before it, each soon after the place was filled."""

    @property
    def blameless(self) -> bool:
        """It is no fault of the worker's own, and counts against no limit."""
        return self.taken or self.disrupted


class Refill(msgspec.Struct, frozen=True, gc=False):
    """A worker that took the place of one that was lost."""

    at: At
    losses: int
    """How many blameless losses led to it."""


class Tally(msgspec.Struct, frozen=True, gc=False):
    """How many pods of a role ended by themselves in this attempt; their pods may be long gone."""

    succeeded: int = 0
    failed: int = 0
