"""Who set which fields of an object: `metadata.managedFields`, as the real server keeps them for updates.  Pure.

A manager has the fields that it set last; a list is one field.  Its time is that of its last write that set one: a
write that only removes fields leaves no trace, and a second one within a second has the same time.  Server-side apply
merges here, so its manager has what it changed, not all that it sent.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from devcluster.apiserver.errors import Json

LONGEST_MANAGER = 128
"""Characters of a manager's name that is taken from a User-Agent."""

UNOWNED = frozenset(
    {
        *(("apiVersion",), ("kind",)),
        *(
            ("metadata", name)
            for name in (
                "name",
                "namespace",
                "generateName",
                "uid",
                "resourceVersion",
                "generation",
                "creationTimestamp",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "managedFields",
            )
        ),
    }
)
"""Fields without a manager: they identify the object, or the server sets them."""

Path = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Writer:
    """Who writes, and through what."""

    manager: str
    operation: str = "Update"
    subresource: str = ""

    @classmethod
    def named(cls, manager: str, agent: str, operation: str, subresource: str) -> "Writer":
        """The manager is the one that the request names, or the program that sends it."""
        return cls(
            manager=manager or agent.partition("/")[0][:LONGEST_MANAGER], operation=operation, subresource=subresource
        )


OURS = Writer(manager="devcluster")
"""The server itself."""


def owned(old: Json | None, new: Json, writer: Writer, time: str) -> list[Json]:
    """The managed fields of `new`, written in the place of `old`; time is in whole seconds."""
    before, after = dict(_leaves(old or {})), dict(_leaves(new))
    taken = {path for path, value in after.items() if path not in before or before[path] != value}
    lost = taken | (before.keys() - after.keys())
    entries = []
    mine: set[Path] = set()
    for entry in (old or {}).get("metadata", {}).get("managedFields", ()):
        fields = {*_paths(entry["fieldsV1"])} - lost
        if _is_of(entry, writer, new["apiVersion"]) and taken:
            mine |= fields
        elif fields:
            entries.append(entry | {"fieldsV1": _tree(fields)})
    if taken:
        made = {"manager": writer.manager, "operation": writer.operation, "apiVersion": new["apiVersion"], "time": time}
        made |= {"fieldsType": "FieldsV1", "fieldsV1": _tree(mine | taken)}
        entries.append(made | ({"subresource": writer.subresource} if writer.subresource else {}))
    return entries


def _is_of(entry: Json, writer: Writer, version: str) -> bool:
    known = entry["manager"], entry["operation"], entry["apiVersion"], entry.get("subresource", "")
    return known == (writer.manager, writer.operation, version, writer.subresource)


def _leaves(value: Json, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for name, inner in value.items():
        at = (*path, name)
        if at in UNOWNED:
            continue
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, at)
        else:
            yield at, inner


def _paths(fields: Json, path: Path = ()) -> Iterator[Path]:
    for name, inner in fields.items():
        at = (*path, name.removeprefix("f:"))
        if inner:
            yield from _paths(inner, at)
        else:
            yield at


def _tree(paths: Iterable[Path]) -> Json:
    root: Json = {}
    for path in sorted(paths):
        inner = root
        for step in path:
            inner = inner.setdefault(f"f:{step}", {})
    return root
