"""The drawn pictures of `docs/architecture.md`: the system, and a job's events as lanes of their authors.

Pure, but for `make pages`, which writes `docs/pictures/`.
"""

import sys
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from muster.schemas import KINDS
from shared.job.events.catalog import FACTS
from shared.job.events.event import Author


class Told(NamedTuple):
    """One event of the story: its author, its type, and a sentence of a few words."""

    author: Author
    type: str
    sentence: str


BEGINS = (
    Told("watcher", "JobObserved", "a person applied a TrainingJob"),
    Told("status", "JobCreated", "it is valid, and admitted"),
    Told("scheduler", "SlotsAssigned", "two workers get slots; a pod is made in each"),
    Told("watcher", "PodsObserved", "their pods are Ready"),
    Told("scaler", "HostsPublished", "they are the members; the hosts files are written"),
    Told("watcher", "ChildrenObserved", "the files are in the cluster"),
    Told("scheduler", "SlotsAssigned", "now the launcher gets a slot"),
    Told("status", "JobRunning", "the job runs"),
)
GROWS = (
    Told("watcher", "ScaleRequested", "a person applied a ScaleOut"),
    Told("scaler", "ScaleAccepted", "within bounds: two slots exist, their pods are made"),
    Told("status", "JobScaling", "the job changes its size"),
    Told("watcher", "PodsObserved", "the new pods are Ready"),
    Told("scaler", "HostsPublished", "all four are members: the point of no return"),
    Told("scaler", "ScaleSucceeded", "the launcher has the files"),
    Told("status", "JobRunning", "the job runs with its new size"),
)
SHRINKS = (
    Told("watcher", "ScaleRequested", "a person applied a ScaleIn"),
    Told("scaler", "ScaleAccepted", "the highest index leaves"),
    Told("scaler", "HostsPublished", "it is no longer a member: the point of no return"),
    Told("watcher", "TimePassed", "its drain time is over, or the launcher let it go"),
    Told("scaler", "WorkersReleased", "its pod is deleted, by uid"),
    Told("watcher", "PodsGone", "its pod is gone"),
    Told("scaler", "ScaleSucceeded", "the job has its new size"),
    Told("status", "JobRunning", "the job runs on"),
)
ENDS = (
    Told("watcher", "PodsObserved", "the launcher exited with 0"),
    Told("status", "JobSucceeded", "the job succeeded"),
    Told("scheduler", "SlotsReleased", "by cleanPodPolicy the workers' pods are deleted"),
)

LANES: tuple[Author, ...] = ("watcher", "scheduler", "scaler", "status")
LANE, ROW, TOP = 138, 34, 34
WIDTH = 4 * LANE + 380
STYLE = """\
text{font:13px system-ui,sans-serif;fill:#1a1f27}.head{font-weight:600}.small{font-size:12px;fill:#566070}
.page{fill:#fff}.lane{stroke:#d5dae1}.path{fill:none;stroke:#8a94a3;stroke-width:1.5}.tip{fill:#8a94a3}
.fact{fill:#fff;stroke:#0d7d74}.decision{fill:#d3efec;stroke:#0d7d74}
@media(prefers-color-scheme:dark){text{fill:#e6e9ee}.small{fill:#a8b1bf}.page{fill:#14181f}.lane{stroke:#333b47}
.path{stroke:#7b8696}.tip{fill:#7b8696}.fact{fill:#14181f;stroke:#4cc5b9}.decision{fill:#123f3b;stroke:#4cc5b9}}
"""


def pictures() -> dict[str, str]:
    """Name of the file → SVG."""
    return {
        "system.svg": _drawing(800, 330, _system()),
        "life.svg": _lanes((*BEGINS, *ENDS)),
        "scale-out.svg": _lanes(GROWS),
        "scale-in.svg": _lanes(SHRINKS),
    }


def _drawing(width: int, height: int, parts: Iterator[str]) -> str:
    inner = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f"<style>{STYLE}</style>\n"
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="tip" d="M0 0L8 4L0 8z"/></marker>\n'
        f'<rect class="page" width="{width}" height="{height}"/>\n{inner}\n</svg>\n'
    )


def _lanes(story: Sequence[Told]) -> str:
    height = TOP + ROW * len(story) + 30
    return _drawing(WIDTH, height, _told(story, height))


def _told(story: Sequence[Told], height: int) -> Iterator[str]:
    for number, author in enumerate(LANES):
        x = number * LANE + LANE // 2
        yield _text(x, 20, author, "head")
        yield f'<path class="lane" d="M{x} {TOP - 4}V{height - 26}"/>'
    places = [(LANES.index(told.author) * LANE + LANE // 2, TOP + ROW * row + 15) for row, told in enumerate(story)]
    for (x, y), (to_x, to_y) in pairwise(places):
        middle = (y + to_y) // 2
        bend = f"V{middle}H{to_x}V{to_y - 13}" if x != to_x else f"V{to_y - 13}"
        yield _arrow(f"M{x} {y + 12}{bend}")
    for told, (x, y) in zip(story, places, strict=True):
        yield _box(x - LANE // 2 + 3, y - 12, LANE - 6, 24, told.type, KINDS[told.type] in FACTS)
        yield _text(4 * LANE + 12, y + 5, told.sentence, anchor="start")
    yield _text(4, height - 8, "outlined: a fact; filled: a decision; time goes down", "small", anchor="start")


def _system() -> Iterator[str]:
    yield _box(20, 20, 130, 44, "people: kubectl", True)
    yield _arrow("M150 42H218")
    yield _box(220, 20, 560, 44, "Kubernetes API", True)
    yield _box(220, 130, 110, 44, "watcher", False)
    yield _arrow("M275 64V128")
    yield _text(281, 100, "list, watch", "small", "start")
    yield _arrow("M275 174V248")
    yield _text(281, 216, "facts", "small", "start")
    yield _box(220, 250, 560, 44, "NATS JetStream: the log JOBS", True)
    for number, (name, written) in enumerate(
        (("scheduler", "pods, Services"), ("scaler", "hosts files"), ("status", "statuses, Events"))
    ):
        x = 360 + 143 * number
        yield _box(x, 130, 134, 44, name, False)
        yield _arrow(f"M{x + 20} 250V176")
        yield _arrow(f"M{x + 70} 174V248")
        yield _arrow(f"M{x + 20} 130V66")
        yield _text(x + 26, 100, written, "small", "start")
        yield _text(x + 25, 200, "events", "small", "start")
        yield _text(x + 76, 232, "decisions", "small", "start")
    for y, name in ((130, "history"), (178, "archiver"), (226, "audit")):
        yield _box(20, y, 130, 34, name, False)
    yield _arrow("M220 266H185V147H152")
    yield _arrow("M185 195H152")
    yield _arrow("M150 249H218")
    yield _text(
        20,
        320,
        "Four services fold the log and decide. Beside them: answers, the archive, who did it.",
        "small",
        "start",
    )


def _box(x: int, y: int, width: int, height: int, text: str, is_fact: bool) -> str:
    kind = "fact" if is_fact else "decision"
    shape = f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>'
    return shape + _text(x + width // 2, y + height // 2 + 5, text)


def _arrow(path: str) -> str:
    return f'<path class="path" marker-end="url(#tip)" d="{path}"/>'


def _text(x: int, y: int, text: str, style: str = "", anchor: str = "middle") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text{named} x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "docs" / "pictures"
    folder.mkdir(exist_ok=True)
    for name, drawing in pictures().items():
        (folder / name).write_text(drawing)


if __name__ == "__main__":
    main()
