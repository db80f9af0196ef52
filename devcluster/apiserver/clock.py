"""Times as the API writes them."""

from datetime import UTC, datetime, timedelta


def now() -> str:
    return stamp(datetime.now(UTC))


def after(seconds: float) -> str:
    # A pod may ask for a grace period longer than the calendar is.
    return stamp(datetime.now(UTC) + timedelta(seconds=min(seconds, 10**9)))


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_since(text: str) -> float | None:
    """None when it is not a time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return (datetime.now(UTC) - moment).total_seconds()
