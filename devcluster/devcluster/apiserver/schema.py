"""Structural schemas applied to custom resources: pruning, defaulting, the old value of each part, and validation.

Validation has the keywords of Muster's definitions and the real server's messages.  An update is not rejected for a
part that it does not change (ratcheting), so that a stricter schema does not block the status of older objects.
Rules are in `cel.py`.
"""

import copy
import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec.json import encode

from devcluster.apiserver import errors
from devcluster.apiserver.errors import Cause, Json

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


ENOUGH = 50
"""The most causes in one answer."""

INT_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


def validate(schema: Json, value: Any, old: Any = ABSENT, path: str = "", *, root: bool = True) -> list[Cause]:
    if old is not ABSENT and same(old, value):
        return []
    causes = _validate_here(schema, value, path)
    if any(cause.reason == "FieldValueTypeInvalid" for cause in causes):
        return causes
    for inner in pairs(schema, value, old, path, root=root, dotted=True):
        if len(causes) >= ENOUGH:
            break
        causes += validate(inner.schema, inner.value, inner.old, inner.path, root=False)
    if root and isinstance(value, dict):
        causes += _validate_name(schema, value)
    return causes


def _validate_name(schema: Json, value: Json) -> list[Cause]:
    """The causes for the name: a schema can restrict no other metadata."""
    metadata = (schema.get("properties") or {}).get("metadata") or {}
    name = (metadata.get("properties") or {}).get("name")
    if not name or "metadata" not in value:
        return []
    return validate(name, value["metadata"].get("name"), ABSENT, "metadata.name", root=False)


def _validate_here(schema: Json, value: Any, path: str) -> list[Cause]:
    """The causes for the value itself, without its members."""
    where = path or "<nil>"
    if value is None:
        if schema.get("nullable") or ("type" not in schema and not schema.get("x-kubernetes-int-or-string")):
            return []
        wanted = schema.get("type", "integer,string")
        return [errors.wrong_type(where, "null", f'{path} in body must be of type {wanted}: "null"')]
    wrong = _type_problem(schema, value)
    if wrong:
        detail = f'{path} in body must be of type {wrong}: "{type_name(value)}"'
        causes = [errors.wrong_type(where, type_name(value), detail), *_enum(schema, value, where)]
        if (wrong, type_name(value)) == ("integer", "number"):
            kind = f"with format {schema['format']}" if "format" in schema else "(default format)"
            causes.append(errors.invalid_value("<nil>", "", f"Checked value must be of type integer {kind} in {path}"))
        return causes
    causes = _enum(schema, value, where)
    if isinstance(value, bool):
        return causes
    if isinstance(value, int | float):
        return causes + _number(schema, value, path)
    if isinstance(value, str):
        return causes + _string(schema, value, path)
    if isinstance(value, list):
        return causes + _list(schema, value, path)
    return causes + _object(schema, value, path)


def type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, list) else "string"


def _type_problem(schema: Json, value: Any) -> str:
    """The type that the schema wants, if the value has another; otherwise empty."""
    actual = type_name(value)
    if schema.get("x-kubernetes-int-or-string"):
        return "" if actual in ("integer", "string") else "integer,string"
    wanted: str = schema.get("type", "")
    if not wanted or actual == wanted:
        return ""
    if wanted == "number" and actual == "integer":
        return ""
    if wanted == "integer" and actual == "number" and float(value).is_integer():
        return ""
    return wanted


def _enum(schema: Json, value: Any, where: str) -> list[Cause]:
    choices = schema.get("enum")
    if choices is None or value in choices:
        return []
    return [errors.not_supported(where, value, choices)]


def _number(schema: Json, value: float, path: str) -> list[Cause]:
    causes = []
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and value < low:
        causes.append(errors.invalid_value(path, value, f"{path} in body should be greater than or equal to {low}"))
    if high is not None and value > high:
        causes.append(errors.invalid_value(path, value, f"{path} in body should be less than or equal to {high}"))
    bounds = INT_RANGES.get(schema.get("format", ""))
    if bounds and not bounds[0] <= value <= bounds[1]:
        wanted = f"of type {schema['type']} with format {schema['format']}"
        causes.append(errors.invalid_value("<nil>", "", f"Checked value must be {wanted} in {path}"))
    return causes


def _string(schema: Json, value: str, path: str) -> list[Cause]:
    causes = []
    if len(value) < schema.get("minLength", 0):
        causes.append(
            errors.invalid_value(path, value, f"{path} in body should be at least {schema['minLength']} chars long")
        )
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        causes.append(errors.too_long(path, schema["maxLength"]))
    if "pattern" in schema and not pattern(schema["pattern"]).search(value):
        causes.append(errors.invalid_value(path, value, f"{path} in body should match '{schema['pattern']}'"))
    if schema.get("format") == "date-time" and not _is_date_time(value):
        causes.append(errors.wrong_type(path, value, f'{path} in body must be of type date-time: "{value}"'))
    return causes


def _list(schema: Json, value: list[Any], path: str) -> list[Cause]:
    causes = []
    if len(value) < schema.get("minItems", 0):
        detail = f"{path} in body should have at least {schema['minItems']} items"
        causes.append(errors.invalid_value(path, len(value), detail))
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        causes.append(errors.too_many(path, len(value), schema["maxItems"]))
    if schema.get("x-kubernetes-list-type") in ("map", "set"):
        causes += _repeated(schema, value, path)
    return causes


def _repeated(schema: Json, value: list[Any], path: str) -> list[Cause]:
    causes, seen = [], set()
    for index, item in enumerate(value):
        as_map = schema["x-kubernetes-list-type"] == "map"
        if as_map and not isinstance(item, dict):
            causes.append(
                errors.invalid_value(f"{path}[{index}]", item, "must be an object for an array of list-type map")
            )
            continue
        key: Any = map_key(schema, item) if as_map else repr(item)
        if key in seen:
            keys = schema.get("x-kubernetes-list-map-keys") or ()
            shown = {name: item.get(name) for name in keys} if as_map and isinstance(item, dict) else item
            causes.append(errors.duplicate(f"{path}[{index}]", shown))
        seen.add(key)
    return causes


def _object(schema: Json, value: Json, path: str) -> list[Cause]:
    causes = [
        errors.required(f"{path}.{name}" if path else name)
        for name in schema.get("required") or ()
        if name not in value
    ]
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        causes.append(errors.too_many(path or "<nil>", len(value), schema["maxProperties"]))
    if len(value) < schema.get("minProperties", 0):
        detail = f"{path} in body should have at least {schema['minProperties']} properties"
        causes.append(errors.invalid_value(path or "<nil>", len(value), detail))
    return causes


@lru_cache(maxsize=512)
def pattern(text: str) -> re.Pattern[str]:
    # Go's `\z` is Python's `\Z`, and its `$` does not match before a last newline.
    return re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", text.replace(r"\z", r"\Z")))


def _is_date_time(value: str) -> bool:
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return bool(re.match(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d", value))
