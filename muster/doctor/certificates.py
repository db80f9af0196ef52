"""The validity of certificates.  Pure.

An expired certificate ends no open connection, but refuses every new one: it is not noticed before a restart.
"""

from datetime import datetime, timedelta

from muster.doctor.findings import Finding, ok, warn
from shared.eventlog.tls import Life

SOON = timedelta(days=14)
LAST_PART = 4
"""A certificate is reported in the last quarter of its validity: an automatic renewal comes earlier."""


def lasting(whose: str, life: Life, now: datetime) -> Finding:
    """The finding about a certificate's remaining time."""
    left = life.ends - now
    words = f"{whose} is good until {life.ends:%Y-%m-%d %H:%M} UTC"
    if left > min(SOON, (life.ends - life.begins) / LAST_PART):
        return ok("log.certificates", words)
    remedy = "renew it; servers and services read the files again by themselves"
    return warn("log.certificates", f"{words}, {left / timedelta(days=1):.1f} days", remedy)
