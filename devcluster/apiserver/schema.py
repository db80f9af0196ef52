"""Structural schemas applied to custom resources: pruning, defaulting and where `oldSelf` is.

Validation is in `validation.py`, rules in `cel.py`.
"""

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec.json import encode

from devcluster.apiserver.errors import Json

RESOURCE_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
"""Belong to every resource, whatever its schema says of them."""

ABSENT = object()
"""Stands for an old value that is not there, since null is a value."""


def same(one: Any, other: Any) -> bool:
    """Equal as JSON, where 1 is not true and 1.0 is not 1."""
    return bool(one == other) and encode(one, order="deterministic") == encode(other, order="deterministic")


def prune(schema: Json, value: Any, *, root: bool = True, path: str = "") -> list[str]:
    """Drop, in place, what the schema does not declare; the paths of what was dropped."""
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
    """Fill in, in place, the defaults of what is missing, also within defaults and for nulls that may not be null."""
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
    """The schema of the member `name` of an object; True when anything may stand there, False when nothing is said."""
    properties = schema.get("properties") or {}
    if name in properties:
        inner = properties[name]
        return inner if isinstance(inner, dict) else True
    additional = schema.get("additionalProperties", False)
    return additional if isinstance(additional, dict) else bool(additional)


class Pair(NamedTuple):
    """A part of the new object and the same part of the old one, if they can be told to be the same."""

    path: str
    schema: Json
    value: Any
    old: Any


def pairs(
    schema: Json, value: Any, old: Any, path: str = "", *, root: bool = True, dotted: bool = False
) -> Iterator[Pair]:
    """The members or items directly within `value` that have a schema, each with its former self or `ABSENT`.

    A member whose name the schema does not know is `path[name]` for rules, and `path.name` where `dotted`.
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
    """Only items of a list of type map are the same thing before and after: those with equal keys."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return ABSENT
    key = map_key(schema, item)
    return next((former for former in old if map_key(schema, former) == key), ABSENT)


def map_key(schema: Json, item: Any) -> tuple[str, ...]:
    """What tells an item of a list of type map from the others."""
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    return tuple(repr(item.get(key)) if isinstance(item, dict) else "" for key in keys)
