"""Structural schemas applied to custom resources: pruning, defaulting, and the old value of each part.

Validation is in `validation.py`, rules in `cel.py`.
"""

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec.json import encode

from devcluster.apiserver.errors import Json

RESOURCE_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
"""The fields of every resource; its schema cannot remove them."""

ABSENT = object()
"""Stands for a missing old value, because null is a value."""


def same(one: Any, other: Any) -> bool:
    """True if both are equal as JSON, where 1 is not true and 1.0 is not 1."""
    return bool(one == other) and encode(one, order="deterministic") == encode(other, order="deterministic")


def prune(schema: Json, value: Any, *, root: bool = True, path: str = "") -> list[str]:
    """Drop the fields that the schema does not declare, in place; return their paths."""
    dropped: list[str] = []
    if isinstance(value, dict):
        for name in [*value]:
            if root and name in RESOURCE_FIELDS:
                continue
            where = f"{path}.{name}" if path else name
            inner = child(schema, name)
            if isinstance(inner, dict):
                dropped += prune(inner, value[name], root=False, path=where)
            elif not inner and not schema.get("x-kubernetes-preserve-unknown-fields"):
                del value[name]
                dropped.append(where)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            dropped += prune(schema["items"], item, root=False, path=f"{path}[{index}]")
    return dropped


def apply_defaults(schema: Json, value: Any) -> None:
    """Fill in defaults in place: for missing fields, within defaults, and for nulls where null is not allowed."""
    if isinstance(value, dict):
        for name, inner in (schema.get("properties") or {}).items():
            if "default" in inner and (name not in value or (value[name] is None and not inner.get("nullable"))):
                value[name] = copy.deepcopy(inner["default"])
        for name in value:
            inner = child(schema, name)
            if isinstance(inner, dict):
                apply_defaults(inner, value[name])
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            apply_defaults(schema["items"], item)


def child(schema: Json, name: str) -> Json | bool:
    """The schema of the member `name`; True if any value is allowed there, False if the member is not declared."""
    properties = schema.get("properties") or {}
    if name in properties:
        inner = properties[name]
        return inner if isinstance(inner, dict) else True
    additional = schema.get("additionalProperties", False)
    return additional if isinstance(additional, dict) else bool(additional)


class Pair(NamedTuple):
    """A part of the new object and the corresponding part of the old one, or `ABSENT`."""

    path: str
    schema: Json
    value: Any
    old: Any


def pairs(
    schema: Json, value: Any, old: Any, path: str = "", *, root: bool = True, dotted: bool = False
) -> Iterator[Pair]:
    """The direct members or items of `value` that have a schema, each with its old value or `ABSENT`.

    The path of a member that the schema does not name is `path[name]` for rules, and `path.name` if `dotted`.
    """
    if isinstance(value, dict):
        for name, member in value.items():
            if root and name in RESOURCE_FIELDS:
                continue
            inner = child(schema, name)
            if isinstance(inner, dict):
                former = old.get(name, ABSENT) if isinstance(old, dict) else ABSENT
                declared = dotted or name in (schema.get("properties") or {})
                yield Pair(_member_path(path, name, declared=declared), inner, member, former)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield Pair(f"{path}[{index}]", schema["items"], item, _former_item(schema, item, old))


def _member_path(path: str, name: str, *, declared: bool) -> str:
    if not declared:
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name


def _former_item(schema: Json, item: Any, old: Any) -> Any:
    """The old item with the same keys in a list of type map; `ABSENT` in other lists."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return ABSENT
    key = map_key(schema, item)
    return next((former for former in old if map_key(schema, former) == key), ABSENT)


def map_key(schema: Json, item: Any) -> tuple[str, ...]:
    """The key of an item in a list of type map."""
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    return tuple(repr(item.get(key)) if isinstance(item, dict) else "" for key in keys)
