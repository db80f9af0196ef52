"""How an attempt ended.  Pure."""

import msgspec


class Verdict(msgspec.Struct, frozen=True):
    """The attempt is over, in success or not, and why."""

    success: bool
    reason: str
    message: str = ""
    permanent: bool = False
    """A new attempt would end the same way, or is not wanted any more."""
    disrupted: bool = False
    """A disruption ended it: another attempt follows and counts against no limit."""
