"""Exponential back-off.  Pure."""


def doubled(first: int, count: int, longest: int) -> int:
    """Seconds to wait after `count` consecutive failures: 0, `first`, twice that, ... up to `longest`."""
    # The bound keeps the shift small for any count.
    return min(first << min(count - 1, 16), longest) if count else 0
