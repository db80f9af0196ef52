"""Events in one line each, and rows as lines, for people."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from shared.eventlog import Stored
from shared.eventlog.subject import Subject
from shared.job.events.catalog import AnyEvent, Malformed, UnknownEvent, read_event
from shared.job.spec import LAUNCHER, JobSpec, Problem, ScaleSpec
from shared.job.text import counted, ends, in_one_line, range_words
from shared.job.views import ChildView, Count, Member, PodView, Reached, Slots

QUIET = {
    "uid",
    "version",
    "epoch",
    "request",
    "api_version",
    "hash",
    "log",
    "node",
    "because",
    "release",
    "slot",
    "blank",
    "writes",
}
"""Fields that people rarely ask for; `--json` shows them."""


def one_line(stored: Stored) -> str:
    """`12  10:59:01.250  scheduler  SlotsAssigned  worker 0-1  JobCreated`."""
    subject = Subject.parse(stored.subject)
    said_so = said(stored.body, subject.type)
    return f"{stored.sequence:>6}  {stored.time[11:23]}  {subject.author:<9}  {subject.type:<16}  {said_so}".rstrip()


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines; the last column is as long as it is."""
    widths = [max(map(len, column)) for column in zip(*(row[:-1] for row in rows), strict=True)]
    for *row, last in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        # What people wrote may have control characters.
        yield ends(in_one_line("  ".join((*cells, last)))).rstrip()


def said(body: bytes, tag: str) -> str:
    """The details of an event, without its type."""
    try:
        event = read_event(body, tag)
    except (UnknownEvent, Malformed) as error:
        return f"({error})"
    return details(event)


def details(event: AnyEvent) -> str:
    """An event's fields, without those that are empty or have their default."""
    return "  ".join(
        _field(name, getattr(event, name))
        for name, default in _shown(type(event))
        if not _goes_without_saying(getattr(event, name), default)
    )


@cache
def _shown(kind: type[AnyEvent]) -> tuple[tuple[str, Any], ...]:
    """The fields of a type of event that people ask for, with their defaults."""
    return tuple((field.name, field.default) for field in msgspec.structs.fields(kind) if field.name not in QUIET)


def _goes_without_saying(value: Any, default: Any) -> bool:
    return value in ("", (), None) or (type(value) in (bool, int) and value == default)


def _field(name: str, value: Any) -> str:
    """A value, with the name of its field if the value alone is not clear."""
    match name:
        case "attempt":
            # People count attempts from one, as in `muster why`.
            return f"attempt {value + 1}"
        case "members":
            return f"members {range_words(value)}"
        case "uids":
            return counted(len(value), "pod")
        case "owner":
            # Whose, a scale request's `spec` says.
            return "owned by its job"
        case "reason" | "slots" | "pods" | "children" | "spec" | "problems" | "kind" | "name":
            return _plain(value)
        case "by" | "added" | "released" | "replaces" | "lost" | "leaving" | "conditions" | "counts":
            return f"{name} {_plain(value)}"
    if isinstance(value, bool):
        return f"{'' if value else 'not '}{name}"
    return f"{name}={_plain(value)}"


def _plain(value: Any) -> str:
    """A value of an event in plain words."""
    match value:
        case tuple():
            return ", ".join(_plain(each) for each in value)
        case PodView():
            return f"{_place(value.role, f'-{value.index}', value.attempt)} {_state(value)}"
        case Slots():
            return _place(value.role, f" {range_words(value.ranges)}", value.attempt)
        case ChildView():
            return f"{value.kind} {value.name}" + (f" v{value.hosts}" if value.hosts else "")
        case Member():
            return str(value.index)
        case Reached():
            return f"{value.type}={value.status}"
        case Count():
            return f"{value.role} {value.succeeded} succeeded {value.failed} failed"
        case Problem():
            return f"{value.reason} ({value.field})" if value.field else value.reason
        case JobSpec():
            return ", ".join(f"{role.replicas} {role.name}" for role in value.roles)
        case ScaleSpec():
            if value.stranger:
                return f"{value.job} without {value.stranger}"
            return f"{value.job} without worker {value.workers}" if value.workers else f"{value.job} by {value.count}"
        case _:
            return str(value)


def _place(role: str, which: str, attempt: int) -> str:
    """`launcher`, `worker-1`, `worker 0-3 of attempt 2`."""
    place = role if role == LAUNCHER else f"{role}{which}"
    return f"{place} of attempt {attempt + 1}" if attempt else place


def _state(pod: PodView) -> str:
    state = "Deleting" if pod.deleting else "Ready" if pod.ready and pod.phase == "Running" else pod.phase
    codes = ",".join(str(end.code) for end in pod.exits)
    return f"{state}({codes})" if codes else str(state)
