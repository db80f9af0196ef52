"""Clocks: how far this machine's is from a server's.  Pure.

No decision of Muster's reads a clock, so a difference harms no job; it shows in the times that people compare.
"""

from datetime import datetime, timedelta

import msgspec

from muster.doctor.findings import Finding, ok, warn

MOST = timedelta(seconds=5)
"""A difference that people would stumble over."""


class Reading(msgspec.Struct, frozen=True):
    """What a server's clock said between two moments of ours."""

    server: datetime
    asked: datetime
    answered: datetime
    whole_seconds: bool = False
    """The server says no more: an HTTP date."""


def difference(check: str, whose: str, reading: Reading) -> Finding:
    """How far apart, as far as the way there and back lets one know."""
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
