"""Events in one line each, for people."""

from typing import Any

import msgspec

from shared.eventlog import Stored
from shared.job.events.catalog import AnyEvent
from shared.job.upcast import Malformed, UnknownEvent, read_event
from shared.job.views import Slots

QUIET = {"uid", "version", "epoch", "request", "api_version", "hash", "log", "node"}
"""Fields that people rarely ask for; `--json` shows them."""


def one_line(stored: Stored) -> str:
    """`12  10:59:01.250  scheduler  SlotsAssigned  worker 0-1  JobCreated`."""
    _, _, _, _, author, tag = stored.subject.split(".")
    return f"{stored.sequence:>6}  {stored.time[11:23]}  {author:<9}  {tag:<16}  {said(stored.body, tag)}".rstrip()


def said(body: bytes, tag: str) -> str:
    """What an event says, without its type."""
    try:
        event = read_event(body, tag)
    except (UnknownEvent, Malformed) as error:
        return f"({error})"
    return details(event)


def details(event: AnyEvent) -> str:
    """An event's fields that are not what they would be anyway, shortest form first."""
    words = []
    for field in msgspec.structs.fields(event):
        value = getattr(event, field.name)
        if field.name in QUIET or value in ("", (), None, False, 0):
            continue
        words.append(str(value) if field.name == "reason" else _named(field.name, value))
    return "  ".join(word for word in words if word)


def _named(name: str, value: Any) -> str:
    if name in ("slots", "added", "released"):
        shown = ", ".join(_slots(group) for group in value)
        return shown if name == "slots" else f"{name} {shown}"
    if name == "members":
        return f"members {range_words(value)}"
    if name == "pods":
        return ", ".join(f"{_short(pod)} {_state(pod)}" for pod in value)
    if name == "children":
        return ", ".join(f"{child.kind} {child.name}" + (f" v{child.hosts}" if child.hosts else "") for child in value)
    if name == "leaving":
        return "leaving " + ", ".join(str(member.index) for member in value)
    if name == "spec":
        return _spec(value)
    if name == "problems":
        return "; ".join(f"{problem.reason} ({problem.field})" for problem in value)
    if name == "uids":
        return f"{len(value)} gone"
    return f"{name}={value}"


def _short(pod: Any) -> str:
    return str(pod.role if pod.role == "launcher" else f"{pod.role}-{pod.index}")


def _state(pod: Any) -> str:
    state = "Deleting" if pod.deleting else "Ready" if pod.ready and pod.phase == "Running" else pod.phase
    codes = ",".join(str(end.code) for end in pod.exits)
    return f"{state}({codes})" if codes else str(state)


def _slots(group: Slots) -> str:
    return group.role if group.role == "launcher" else f"{group.role} {range_words(group.ranges)}"


def counted(number: int, what: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def range_words(pairs: tuple[tuple[int, int], ...]) -> str:
    """`0-3,5` for inclusive ranges."""
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in pairs) or "none"


def _spec(spec: Any) -> str:
    if hasattr(spec, "roles"):
        return ", ".join(f"{role.replicas} {role.name}" for role in spec.roles)
    wanted = ",".join(spec.pod_names) or spec.count
    return f"{spec.kind} {spec.job} by {wanted}"
