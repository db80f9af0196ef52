"""Times in the format of the Kubernetes API, and waits that grow with each failure."""

from datetime import UTC, datetime, timedelta

NEVER = "1970-01-01T00:00:00Z"


def now() -> str:
    return stamp(datetime.now(UTC))


def after(seconds: float) -> str:
    # A pod's grace period may end after the last date that Python knows.
    return stamp(datetime.now(UTC) + timedelta(seconds=min(seconds, 10**9)))


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def timestamp(seconds: float) -> str:
    return stamp(datetime.fromtimestamp(seconds, UTC))


MOST_DOUBLINGS = 16
"""The wait stays small enough to compute for any number of failures."""


def doubled(first: float, failures: int, longest: float) -> float:
    """Seconds to wait after so many consecutive failures: 0, `first`, twice that, ... up to `longest`."""
    return min(first * 2 ** min(failures - 1, MOST_DOUBLINGS), longest) if failures else 0.0
