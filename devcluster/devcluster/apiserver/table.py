"""Tables: the rows that `kubectl get` prints; the server makes them, because only it knows the columns.

Pods, Kubernetes Events, definitions and custom resources have their own columns; every other kind has its name and its
age.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from devcluster.apiserver.errors import Json
from devcluster.apiserver.resources import DEFINITIONS, EVENTS, PODS, Resource
from devcluster.apiserver.store import Key, dig

STEP = re.compile(
    r"\.(?P<name>(?:[\w-]|\\\.|/)+)"
    r"|\[['\"](?P<quoted>[^'\"]+)['\"]\]"
    r"|\[(?P<index>-?\d+|\*)\]"
    r"|\[(?P<first>-?\d*):(?P<end>-?\d*)\]"
    r"|\[\?\(@\.(?P<field>[\w.-]+)\s*==\s*[\"'](?P<value>[^\"']*)[\"']\)\]"
)


@lru_cache(maxsize=512)
def _steps(path: str) -> tuple[dict[str, str | None], ...] | None:
    """The steps of a path; None if its syntax is not supported."""
    steps, at = [], 0
    while at < len(path):
        match = STEP.match(path, at)
        if not match:
            return None
        steps.append(match.groupdict())
        at = match.end()
    return tuple(steps)


def find(value: Any, path: str) -> Any:
    """The first value at the path, or None."""
    found = [value]
    for step in _steps(path) or ({"name": "\0"},):
        found = [inner for one in found for inner in _take(one, step)]
    return found[0] if found else None


def _take(value: Any, step: dict[str, str | None]) -> list[Any]:
    name = step.get("name") or step.get("quoted")
    if name:
        name = name.replace("\\.", ".")
        return [value[name]] if isinstance(value, dict) and name in value else []
    if not isinstance(value, list):
        return []
    first, end = step.get("first"), step.get("end")
    if first is not None:
        return value[int(first) if first else None : int(end) if end else None]
    index, field = step.get("index"), step.get("field")
    if index == "*":
        return value
    if index:
        return value[int(index) :][:1]
    return [item for item in value if _member(item, str(field)) == step.get("value")]


def _member(item: Any, path: str) -> str | None:
    for part in path.split("."):
        item = item.get(part) if isinstance(item, dict) else None
    return None if item is None else str(item)


NONE = "<none>"
SECOND, MINUTE, HOUR, DAY, YEAR = (1, "s"), (60, "m"), (3600, "h"), (86400, "d"), (365 * 86400, "y")
DURATIONS = (
    (MINUTE, 2, SECOND, None),
    (MINUTE, 10, MINUTE, SECOND),
    (HOUR, 3, MINUTE, None),
    (HOUR, 8, HOUR, MINUTE),
    (DAY, 2, HOUR, None),
    (DAY, 8, DAY, HOUR),
    (YEAR, 2, DAY, None),
    (YEAR, 8, YEAR, DAY),
    (YEAR, 10**9, YEAR, None),
)
"""Below so many of the first unit, a duration is told in the second, with the third beside it."""


def age(timestamp: str | None) -> str:
    if not timestamp:
        return "<unknown>"
    try:
        return human_duration((datetime.now(UTC) - datetime.fromisoformat(timestamp)).total_seconds())
    except (TypeError, ValueError):
        # Not a time, or one without a zone.
        return "<invalid>"


def human_duration(seconds: float) -> str:
    """At most two units, fewer as it grows: 119s, 9m59s, 3h5m, 47h, 7d23h, 2y."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    large, small = next((large, small) for (unit, _), most, large, small in DURATIONS if whole < most * unit)
    rest = whole % large[0] // small[0] if small else 0
    return f"{max(whole, 0) // large[0]}{large[1]}" + (f"{rest}{small[1]}" if small and rest else "")


@dataclass(frozen=True)
class Column:
    name: str
    cell: Callable[[Json], Any]
    type: str = "string"
    format: str = ""
    priority: int = 0
    """A column with a priority above 0 is shown only with `-o wide`."""
    description: str = ""

    def definition(self) -> Json:
        shown = ("name", "type", "format", "description", "priority")
        return {name: getattr(self, name) for name in shown}


def path(text: str, default: Any = NONE) -> Callable[[Json], Any]:
    def cell(obj: Json) -> Any:
        value = dig(obj, text)
        return default if value in (None, "") else value

    return cell


NAME = Column("Name", path("metadata.name"), format="name")
AGE = Column("Age", lambda obj: age(dig(obj, "metadata.creationTimestamp")))


def _last_seen(event: Json) -> str:
    series = dig(event, "series.lastObservedTime")
    return age(
        series or event.get("lastTimestamp") or event.get("eventTime") or dig(event, "metadata.creationTimestamp")
    )


def _event_object(event: Json) -> str:
    reference = event.get("involvedObject") or {}
    return f"{(reference.get('kind') or '').lower()}/{reference.get('name') or ''}"


def ready(pod: Json) -> str:
    statuses = dig(pod, "status.containerStatuses") or ()
    return f"{sum(1 for one in statuses if one.get('ready'))}/{len(dig(pod, 'spec.containers') or ())}"


def state(pod: Json) -> str:
    """The pod's STATUS column: the reason of the first unfinished init container, or else of the first failing one."""
    status = pod.get("status") or {}
    reason: str = status.get("reason") or status.get("phase") or "Unknown"
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    initializing = _init_state(pod)
    if initializing:
        return initializing
    running = False
    for container in reversed(status.get("containerStatuses") or ()):
        waiting, terminated = _part(container, "waiting"), _part(container, "terminated")
        if waiting and waiting.get("reason"):
            reason = waiting["reason"]
        elif terminated:
            reason = _end(terminated)
        elif container.get("ready"):
            running = True
    if reason == "Completed" and running:
        reason = "Running"
    return "SchedulingGated" if reason == "Pending" and dig(pod, "spec.schedulingGates") else reason


def _init_state(pod: Json) -> str:
    statuses = dig(pod, "status.initContainerStatuses") or []
    for index, container in enumerate(statuses):
        waiting, terminated = _part(container, "waiting"), _part(container, "terminated")
        if terminated and terminated.get("exitCode") == 0:
            continue
        if terminated:
            return f"Init:{_end(terminated)}"
        if waiting and waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(statuses)}"
    return ""


def _part(container: Json, name: str) -> Json | None:
    part: Json | None = (container.get("state") or {}).get(name)
    return part


def _end(terminated: Json) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode')}"


def restarts(pod: Json) -> str:
    statuses = dig(pod, "status.containerStatuses") or ()
    count = sum(one.get("restartCount") or 0 for one in statuses)
    ends = [dig(one, "lastState.terminated.finishedAt") for one in statuses]
    last = max((end for end in ends if isinstance(end, str)), default=None)
    return f"{count} ({age(last)} ago)" if count and last else str(count)


COLUMNS: dict[Key, tuple[Column, ...]] = {
    PODS.key: (
        NAME,
        Column("Ready", ready),
        Column("Status", state),
        Column("Restarts", restarts),
        AGE,
        Column("IP", path("status.podIP"), priority=1),
        Column("Node", path("spec.nodeName"), priority=1),
        Column("Nominated Node", path("status.nominatedNodeName"), priority=1),
        Column("Readiness Gates", lambda _: NONE, priority=1),
    ),
    EVENTS.key: (
        Column("Last Seen", _last_seen),
        Column("Type", path("type", "")),
        Column("Reason", path("reason", "")),
        Column("Object", _event_object),
        Column("Message", path("message", "")),
    ),
    DEFINITIONS.key: (NAME, Column("Created At", path("metadata.creationTimestamp"))),
}


def columns(resource: Resource) -> tuple[Column, ...]:
    if not resource.custom:
        return COLUMNS.get(resource.key, (NAME, AGE))
    return (NAME, *(_custom(column) for column in resource.columns))


def _custom(column: Json) -> Column:
    def cell(obj: Json) -> Any:
        value = find(obj, column["jsonPath"])
        match column["type"], value:
            case _, None:
                return None
            case "date", str():
                return age(value)
            case "string", dict() | list() | bool() | int() | float():
                return msgspec.json.encode(value).decode()
            case "integer" | "number", str() | dict() | list() | bool():
                return None
            case _:
                return value

    return Column(
        column["name"],
        cell,
        type=column["type"],
        format=column.get("format") or "",
        priority=column.get("priority") or 0,
        description=column.get("description") or "",
    )


def table(resource: Resource, stored: Iterable[Json], include: Callable[[Json], Json | None], metadata: Json) -> Json:
    """A table of objects in their stored form; `include` makes the object of each row."""
    shown = columns(resource)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in shown],
        "rows": [{"cells": [column.cell(obj) for column in shown], "object": include(obj)} for obj in stored],
    }
