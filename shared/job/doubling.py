"""Waits that grow twice as long with every failure in a row.  Pure."""


def doubled(first: int, count: int, longest: int) -> int:
    """Seconds to wait after `count` failures: none after no failure, then `first`, twice that, ... up to `longest`."""
    # No job fails often enough to need more doublings, and a number of a million digits helps nobody.
    return min(first << min(count - 1, 16), longest) if count else 0
