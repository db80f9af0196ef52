"""The difference between this machine's clock and a server's.  Pure.

No decision of Muster reads a clock, so a difference harms no job; people see it when they compare times.
"""

from datetime import datetime, timedelta

import msgspec

from muster.doctor.findings import Finding, ok, warn

MOST = timedelta(seconds=5)
"""The largest difference without a warning."""


class Reading(msgspec.Struct, frozen=True):
    """The time of a server's clock, between two times of this machine's."""

    server: datetime
    asked: datetime
    answered: datetime
    whole_seconds: bool = False
    """True if the server's time has no fractions of a second, as an HTTP date."""


def difference(check: str, whose: str, reading: Reading) -> Finding:
    """The difference of the clocks, within the uncertainty of the request's duration."""
    half = (reading.answered - reading.asked) / 2
    rest = timedelta(seconds=0.5) if reading.whole_seconds else timedelta()
    apart, unsure = reading.server + rest - (reading.asked + half), half + rest
    told = f"± {_seconds(unsure)} s"
    if abs(apart) - unsure <= MOST:
        return ok(check, f"the clock here and that of {whose} agree within {_seconds(abs(apart) + unsure)} s")
    direction = "ahead of" if apart > timedelta() else "behind"
    return warn(
        check,
        f"the clock of {whose} is {_seconds(abs(apart))} s ({told}) {direction} the one here",
        "have both keep time (chrony, systemd-timesyncd); no decision depends on it, but times that people read do",
    )


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.1f}"
