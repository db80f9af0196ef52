"""Settings of streams: what is not as it would be made today, and what may be changed without losing anything.

Pure.  A stream only ever grows: fewer copies or less room are never given to one that is there.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

Config = Mapping[str, Any]

CHOSEN = ("num_replicas", "max_bytes")
"""How many copies and how large is the owner's choice: they are no difference, and may grow."""

COSTS = {"compression": "a copy may be lost when its server was killed and later stopped"}
"""What a setting that differs may cost; of the others nothing that is in the log."""

_NO_BOUND = float("inf")


class Growth(NamedTuple):
    """What becomes of sizes that are asked for."""

    changes: dict[str, int]
    kept: tuple[str, ...]
    """Those that are not granted, a sentence each."""


def growth(found: Config, asked: Mapping[str, int]) -> Growth:
    """`asked` has some of `CHOSEN`; where nothing is asked nothing changes."""
    changes: dict[str, int] = {}
    kept: list[str] = []
    for name, wanted in asked.items():
        now = found.get(name, -1)
        if _size(wanted) > _size(now):
            changes[name] = wanted
        elif _size(wanted) < _size(now):
            kept.append(f"{name} stays {now}, {wanted} was asked for: what is there never shrinks")
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
    # The server leaves out what is off.
    return [(key, value) for key, value in wanted.items() if (found.get(key) or False) != (value or False)]
