"""Times as the API writes them."""

from datetime import UTC, datetime

NEVER = "1970-01-01T00:00:00Z"


def now() -> str:
    return timestamp(datetime.now(UTC).timestamp())


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
