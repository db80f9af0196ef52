"""`make fuzz`: each target under atheris for some seconds, and a table of what was run and found."""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.targets import TARGETS
from tests.kit.tables import Place

SECONDS = 60
MEMORY_MB = 1024
"""Of one process with all that was loaded; an input that needs more is a finding."""
INPUT_SECONDS = 60
"""An input that takes longer is a finding."""
LONGEST_INPUT = 65_536
GRACE_SECONDS = 120
"""For loading, and for reading the corpus once."""
INTERRUPTED = 130

_PULSE = re.compile(r"^#(\d+)\t.*?cov: (\d+)", re.MULTILINE)
_PEAK = re.compile(r"^stat::peak_rss_mb:\s+(\d+)", re.MULTILINE)


class Ran(NamedTuple):
    """What one target did."""

    executions: int
    coverage: int
    """Branches of our modules."""
    peak_mb: int
    finding: str
    """The last line of the error; empty without one."""


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 0 if nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=SECONDS, help=f"of each target ({SECONDS})")
    parser.add_argument("--only", choices=TARGETS, help="one target alone")
    parser.add_argument("--kept", type=Path, default=Path(".fuzz"), help="where inputs that were found go (.fuzz)")
    place = Place(parser, "fuzz")
    given = parser.parse_args(words)
    into = place.of(given)
    rows, findings = ["| target | executions | branches | memory | found |", "|---|---|---|---|---|"], 0
    try:
        for name in [given.only] if given.only else TARGETS:
            ran = fuzz(name, given.seconds, given.kept)
            findings += bool(ran.finding)
            rows.append(
                f"| {name} | {ran.executions:,} | {ran.coverage:,} | {ran.peak_mb} MB | {ran.finding or 'nothing'} |"
            )
            print(rows[-1], flush=True)
    except KeyboardInterrupt:
        return INTERRUPTED
    into("\n".join(rows))
    return 1 if findings else 0


def fuzz(name: str, seconds: int, kept: Path) -> Ran:
    """Run one target; an input that it could not read is a file in `kept`."""
    kept.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        options = {
            "max_total_time": seconds,
            "rss_limit_mb": MEMORY_MB,
            "timeout": INPUT_SECONDS,
            "max_len": LONGEST_INPUT,
            "artifact_prefix": f"{kept}/{name}-",
            "print_final_stats": 1,
        }
        command = [sys.executable, "-m", "tests.fuzz.guided", name, folder]
        command += [f"-{option}={value}" for option, value in options.items()]
        ended = subprocess.run(command, capture_output=True, timeout=seconds + GRACE_SECONDS, check=False)
    said = (ended.stdout + ended.stderr).decode(errors="replace")
    pulses, peak = _PULSE.findall(said), _PEAK.search(said)
    if not pulses or peak is None:
        raise SystemExit(f"{name} did not run:\n{said[-3_000:]}")
    finding = "" if ended.returncode == 0 else _error(said)
    if finding:
        print(said[-3_000:], file=sys.stderr)
    return Ran(*map(int, pulses[-1]), int(peak[1]), finding)


def _error(said: str) -> str:
    """The Python error, or libFuzzer's own word for memory and time."""
    lines = said.splitlines()
    errors = [line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception)\b", line)]
    return next(iter(errors), next((line for line in lines if "ERROR: libFuzzer" in line), "an unknown error"))[:120]


if __name__ == "__main__":
    sys.exit(main())
