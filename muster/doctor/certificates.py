"""Certificates: how long they are good for.  Pure.

One that ran out ends no connection that is there, and refuses every new one, so that nothing is noticed before a
restart.
"""

from datetime import datetime, timedelta

from muster.doctor.findings import Finding, ok, warn
from shared.eventlog.tls import Life

SOON = timedelta(days=14)
LAST_PART = 4
"""A certificate is reported in the last quarter of its life: an automatic renewal comes before that."""


def lasting(whose: str, life: Life, now: datetime) -> Finding:
    """Whether there is time left to renew it at leisure."""
    left = life.ends - now
    words = f"{whose} is good until {life.ends:%Y-%m-%d %H:%M} UTC"
    if left > min(SOON, (life.ends - life.begins) / LAST_PART):
        return ok("log.certificates", words)
    remedy = "renew it; servers and services read the files again by themselves"
    return warn("log.certificates", f"{words}, {left / timedelta(days=1):.1f} days", remedy)
