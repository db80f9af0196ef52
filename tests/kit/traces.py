"""What programs have left on the machine: processes, mounts and files, known by the folders that they were given."""

import os
import time
from pathlib import Path

ORPHANS_END_SECONDS = 30.0
"""The kernel ends orphans at once; a node agent that is told to go ends its pods first."""


def processes(*places: Path) -> list[str]:
    """Those whose command lines name one of the folders; not our own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if any(str(place) in words for place in places):
                found.append(f"process {entry.name}: {words}")
    return found


def mounts(*places: Path) -> list[str]:
    """Lines of the table of mounts that name one of the folders."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [f"mount {line}" for line in lines if any(str(place) in line for place in places)]


def nothing_running(folder: Path) -> list[str]:
    """Processes and mounts that are left once the kernel had a moment to end orphans; empty when all is gone."""
    deadline = time.monotonic() + ORPHANS_END_SECONDS
    while (left := [*processes(folder), *mounts(folder)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left
