"""The outcome of an attempt.  Pure."""

import msgspec

from shared.job.naming import Slot


class Verdict(msgspec.Struct, frozen=True):
    """The end of an attempt: success or failure, and the reason."""

    success: bool
    reason: str
    message: str = ""
    permanent: bool = False
    """True if no further attempt may follow."""
    disrupted: bool = False
    """True if a disruption ended the attempt: another one follows and counts against no limit."""
    slot: Slot | None = None
    """The slot of the one pod by which the attempt ended, other than the launcher; None if there is none."""
