"""What processes hold and use, as Linux counts it."""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

TICKS = os.sysconf("SC_CLK_TCK")


class Held(msgspec.Struct, frozen=True):
    """MiB."""

    resident: float
    unique: float
    """Not shared with any other process: what would be free if it ended."""
    proportional: float
    """What is shared counts by its part."""
    peak: float
    """The most that was ever resident."""


def memory(pid: int) -> Held:
    rows = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    pages = {row[0].rstrip(":"): int(row[1]) / 1024 for row in rows}
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
    return Held(pages["Rss"], pages["Private_Clean"] + pages["Private_Dirty"], pages["Pss"], peak)


def begin_anew(pid: int) -> None:
    """Let the kernel begin its count of the most memory anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def open_files(pid: int) -> int:
    """File descriptors, of sockets too."""
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


def processor(pids: Iterable[int]) -> float:
    """Seconds that these processes have used so far."""
    # Behind the program's name, which may hold spaces: fields 14 and 15 are user and system time.
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(field[11]) + int(field[12]) for field in fields) / TICKS
