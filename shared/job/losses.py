"""Losses: pods that ended or vanished without a release, their vacancies, and the replacements."""

import msgspec

from shared.job.events.event import At

KEPT_FAILURES = 16
"""The number of newest failures that a job keeps, for Kubernetes Events; the log has all of them."""


def was_deleted(code: int | None) -> str:
    """`was deleted (exit code 137)`, of a pod that a person or a program deleted."""
    return "was deleted" if code is None else f"was deleted (exit code {code})"


class Failure(msgspec.Struct, frozen=True, gc=False):
    """A worker pod that ended or disappeared without a `WorkersReleased` decision."""

    pod: str
    reason: str
    code: int | None
    at: At
    message: str = ""
    """What the container said last, or the kubelet's sentence for the reason."""
    deleted: bool = False
    """A person or a program deleted the pod before it ended."""


class Notice(msgspec.Struct, frozen=True, gc=False):
    """The announced end of a pod's node."""

    at: At
    seconds: int
    """Seconds from then until the node goes."""


class Vacancy(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A slot whose pod ended or vanished without a release; the launcher's slot has none."""

    at: At
    reason: str
    code: int | None = None
    """The exit code of the training container; None if it is unknown."""
    message: str = ""
    """The termination message of the container, or the kubelet's message for the reason."""
    succeeded: bool = False
    taken: bool = False
    """The pod was deleted, or vanished, before it ended."""
    disrupted: bool = False
    """The pod was evicted or preempted, or its node was removed."""
    losses: int = 0
    """The number of consecutive blameless losses before this one, each soon after its replacement."""
    wait: int = 0
    """Seconds from the loss to the replacement; what happens to other pods meanwhile does not change it."""
    ran: bool = True
    """False if the training container never ran: such a pod starts nothing."""

    @property
    def blameless(self) -> bool:
        """True for a deletion or a disruption: it counts against no limit."""
        return self.taken or self.disrupted

    @property
    def deleted(self) -> bool:
        """A person or a program deleted the pod, which nothing else took away."""
        return self.taken and not self.disrupted

    @property
    def cause(self) -> str:
        """Why the pod went: what one that is deleted ends with is not why."""
        return "Deleted" if self.deleted else self.reason

    @property
    def how(self) -> str:
        """How the pod went: `exited with 1 (Error)`, `was deleted`, `is lost: Evicted`."""
        if self.deleted:
            return was_deleted(self.code)
        return f"exited with {self.code} ({self.reason})" if self.code is not None else f"is lost: {self.reason}"


class Refill(msgspec.Struct, frozen=True, gc=False):
    """A worker that replaced a lost one."""

    at: At
    losses: int
    """The number of consecutive blameless losses before it."""
    reason: str = ""
    """The reason of the loss that it followed."""
    why: str = ""
    """That loss, as a sentence."""


class Tally(msgspec.Struct, frozen=True, gc=False):
    """The numbers of pods of a role that ended in this attempt; the pods may be deleted since."""

    succeeded: int = 0
    failed: int = 0
