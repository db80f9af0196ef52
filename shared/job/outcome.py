"""The outcome of an attempt.  Pure."""

import msgspec


class Verdict(msgspec.Struct, frozen=True):
    """The end of an attempt: success or failure, and the reason."""

    success: bool
    reason: str
    message: str = ""
    permanent: bool = False
    """True if no further attempt may follow."""
    disrupted: bool = False
    """True if a disruption ended the attempt: another one follows and counts against no limit."""
