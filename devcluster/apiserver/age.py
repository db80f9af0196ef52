"""Durations as kubectl shows ages."""

from devcluster.apiserver.clock import seconds_since

MINUTE, HOUR, DAY = 60, 3600, 86400


def age(timestamp: str | None) -> str:
    if not timestamp:
        return "<unknown>"
    seconds = seconds_since(timestamp)
    return "<invalid>" if seconds is None else human_duration(seconds)


def human_duration(seconds: float) -> str:
    """At most two units, fewer as it grows: 119s, 9m59s, 3h5m, 47h, 7d23h, 2y."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 2 * MINUTE:
        return f"{max(whole, 0)}s"
    if whole < 10 * MINUTE:
        return _two(whole // MINUTE, "m", whole % MINUTE, "s")
    if whole < 3 * HOUR:
        return f"{whole // MINUTE}m"
    if whole < 8 * HOUR:
        return _two(whole // HOUR, "h", whole // MINUTE % 60, "m")
    if whole < 2 * DAY:
        return f"{whole // HOUR}h"
    days = whole // DAY
    if days < 8:
        return _two(days, "d", whole // HOUR % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    years = days // 365
    return _two(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
