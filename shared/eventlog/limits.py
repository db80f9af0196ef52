"""Compares the settings of existing streams with those of new ones, and says which may be changed.

Pure.  A stream never gets fewer copies, nor less room than it uses.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

Config = Mapping[str, Any]

CHOSEN = ("num_replicas", "max_bytes")
"""The number of copies and the size are the owner's choice: they count as no difference, and may grow."""

MENDED = ("republish", "max_msg_size")
"""The settings that `muster setup` changes in existing streams: they concern new messages alone."""

COSTS = {"compression": "a copy may be lost when its server was killed and later stopped"}
"""What a different setting may cost; other settings cost no event."""

_NO_BOUND = float("inf")


class Growth(NamedTuple):
    """The sizes to raise, and those that are not raised."""

    changes: dict[str, int]
    kept: tuple[str, ...]
    """The sizes that are not granted, a sentence each."""


def growth(found: Config, asked: Mapping[str, int], used: int = 0) -> Growth:
    """What to do for the sizes in `asked`, which are some of `CHOSEN`; `used` are the bytes that the stream has."""
    changes: dict[str, int] = {}
    kept: list[str] = []
    for name, wanted in asked.items():
        now = found.get(name, -1)
        if _size(wanted) > _size(now) or (_size(wanted) < _size(now) and name == "max_bytes" and used < wanted):
            changes[name] = wanted
        elif _size(wanted) < _size(now):
            why = f"it holds {used} bytes" if name == "max_bytes" else "a stream never has fewer copies"
            kept.append(f"{name} stays {now}, {wanted} was asked for: {why}")
    return Growth(changes, tuple(kept))


def _size(value: int) -> float:
    return value if value > 0 else _NO_BOUND


def compare(name: str, found: Config, wanted: Config) -> list[str]:
    """The differences, one sentence each."""
    return [
        f"{name}: {key} is {found.get(key, False)!r}, and would be made {value!r} today"
        + (f": {COSTS[key]}" if key in COSTS else "")
        for key, value in unlike(found, wanted)
    ]


def unlike(found: Config, wanted: Config) -> list[tuple[str, Any]]:
    """The settings that differ, and what was wanted."""
    # The server omits settings that are off.
    return [(key, value) for key, value in wanted.items() if (found.get(key) or False) != (value or False)]
