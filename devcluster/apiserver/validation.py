"""Values checked against a structural schema, with the keywords of Muster's definitions and the real server's messages.

An update is not rejected for a part that it does not change (ratcheting), so that a stricter schema does not block the
status of older objects.
"""

import re
from datetime import datetime
from functools import lru_cache
from typing import Any

from devcluster.apiserver import errors
from devcluster.apiserver.errors import Cause, Json
from devcluster.apiserver.schema import ABSENT, map_key, pairs, same

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
