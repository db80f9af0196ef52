"""Tables: the rows that `kubectl get` prints, made here because only the server knows the columns.

Pods, Kubernetes Events and custom resources have their own columns; every other kind has its name and its age.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from devcluster.apiserver.age import age
from devcluster.apiserver.entry import Key, dig
from devcluster.apiserver.errors import Json
from devcluster.apiserver.jsonpath import find
from devcluster.apiserver.podcolumns import POD_COLUMNS
from devcluster.apiserver.resources import EVENTS, PODS, Resource

NONE = "<none>"


@dataclass(frozen=True)
class Column:
    name: str
    cell: Callable[[Json], Any]
    type: str = "string"
    format: str = ""
    wide: bool = False
    """Only shown with `-o wide`."""
    priority: int = 0
    description: str = ""

    def definition(self) -> Json:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority or int(self.wide),
        }


def path(text: str, default: Any = NONE) -> Callable[[Json], Any]:
    def cell(obj: Json) -> Any:
        value = dig(obj, text)
        return default if value in (None, "") else value

    return cell


def _age(obj: Json) -> str:
    return age(dig(obj, "metadata.creationTimestamp"))


NAME = Column("Name", path("metadata.name"), format="name")
AGE = Column("Age", _age)


def _last_seen(event: Json) -> str:
    series = dig(event, "series.lastObservedTime")
    return age(
        series or event.get("lastTimestamp") or event.get("eventTime") or dig(event, "metadata.creationTimestamp")
    )


def _event_object(event: Json) -> str:
    reference = event.get("involvedObject") or {}
    return f"{(reference.get('kind') or '').lower()}/{reference.get('name') or ''}"


COLUMNS: dict[Key, tuple[Column, ...]] = {
    PODS.key: (
        NAME,
        *(Column(name, cell, wide=wide) for name, cell, wide in POD_COLUMNS[:3]),
        AGE,
        *(Column(name, cell, wide=wide) for name, cell, wide in POD_COLUMNS[3:]),
    ),
    EVENTS.key: (
        Column("Last Seen", _last_seen),
        Column("Type", path("type", "")),
        Column("Reason", path("reason", "")),
        Column("Object", _event_object),
        Column("Message", path("message", "")),
    ),
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
    """`stored` objects in the form in which they are stored; `include` makes what goes along with each row."""
    shown = columns(resource)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in shown],
        "rows": [{"cells": [column.cell(obj) for column in shown], "object": include(obj)} for obj in stored],
    }
