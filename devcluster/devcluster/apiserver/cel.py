"""`x-kubernetes-validations`: rules in the Common Expression Language, at any level of a schema.

A rule that names `oldSelf` is a transition rule: it is evaluated only on updates, where the same part existed before.
Unlike the real server, this one does not type-check rules against the schema or estimate their cost.  It has the
standard functions of CEL, but not those that Kubernetes adds, no `optionalOldSelf` and no `messageExpression`.
"""

import re
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from typing import Any

from devcluster.apiserver.errors import Cause, Json, duplicate, forbidden_field, invalid_value, required
from devcluster.apiserver.schema import ABSENT, child, pairs, same

Program = Callable[[Json], Any]

SUBSCHEMAS = frozenset({"properties", "items", "additionalProperties"})
WHOLE = "whole"
"""The key of the original schema in a reduced one; no keyword of a structural schema has this name."""

ROOT_METADATA = ("name", "generateName")
"""The fields of `metadata` that rules can read."""

OLD_SELF = re.compile(r"\boldSelf\b")


class RuleError(Exception):
    """A rule that cannot be compiled, or cannot be evaluated for this object."""


def ruled_part(schema: Json) -> Json | None:
    """The schema reduced to the branches with rules, or None without any: `check` then visits only those branches."""
    properties = {name: part for name, inner in (schema.get("properties") or {}).items() if (part := ruled_part(inner))}
    reduced = {name: properties for name in ("properties",) if properties}
    for name in ("items", "additionalProperties"):
        inner = schema.get(name)
        part = ruled_part(inner) if isinstance(inner, dict) else None
        if part:
            reduced[name] = part
    if not reduced and not _rules(schema):
        return None
    return {name: value for name, value in schema.items() if name not in SUBSCHEMAS} | reduced | {WHOLE: schema}


def check(ruled: Json, value: Any, old: Any = ABSENT, path: str = "", *, root: bool = True) -> list[Cause]:
    """The causes of every rule that does not hold for `value`, here or further down; `ruled` is a `ruled_part`."""
    causes = []
    if _rules(ruled):
        variables = Variables(ruled[WHOLE], value, old, root)
        causes = [cause for rule in _rules(ruled) if (cause := _broken(rule, variables, path))]
    for inner in pairs(ruled, value, old, path, root=root):
        causes += check(inner.schema, inner.value, inner.old, inner.path, root=False)
    return causes


def all_rules(schema: Any, path: str = "openAPIV3Schema") -> Iterator[tuple[str, Json]]:
    """Every rule with the path of its place in the schema."""
    if not isinstance(schema, dict):
        return
    for index, rule in enumerate(_rules(schema)):
        yield f"{path}.x-kubernetes-validations[{index}]", rule
    for name, inner in (schema.get("properties") or {}).items():
        yield from all_rules(inner, f"{path}.properties[{name}]")
    yield from all_rules(schema.get("additionalProperties"), f"{path}.additionalProperties")
    yield from all_rules(schema.get("items"), f"{path}.items")


def _rules(schema: Json) -> list[Json]:
    return schema.get("x-kubernetes-validations") or []


def rule_problems(schema: Json, path: str) -> list[Cause]:
    """The causes for which the rules of a new schema are rejected."""
    causes = []
    for where, rule in all_rules(schema, path):
        try:
            program(rule["rule"])
        except RuleError as error:
            causes.append(invalid_value(f"{where}.rule", rule["rule"], f"compilation failed: {error}"))
    return causes


class Variables:
    """The variables of a rule: `self`, and `oldSelf` on updates; converted into CEL values on first use."""

    def __init__(self, schema: Json, value: Any, old: Any, root: bool) -> None:
        self.schema = schema
        self.value = value
        self.existed = old is not ABSENT
        self.changed = not (self.existed and same(value, old))
        self._values = {"self": value} | ({"oldSelf": old} if self.existed else {})
        self._root = root

    @cached_property
    def cel(self) -> Json:
        return {name: cel_value(self.schema, value, root=self._root) for name, value in self._values.items()}


def _within_64_bits(value: int) -> int:
    """The number, or the nearest one of CEL: a rule is evaluated although the schema refuses the number."""
    return min(max(value, -(1 << 63)), (1 << 63) - 1)


def cel_value(schema: Json | bool, value: Any, *, root: bool = False) -> Any:
    """JSON as a CEL value of the schema's type: a `number` is a double even when it is written 1."""
    from celpy import celtypes
    from celpy.adapter import json_to_cel

    schema = schema if isinstance(schema, dict) else {}
    if isinstance(value, dict):
        if root:
            metadata = value.get("metadata") or {}
            value = value | {"metadata": {name: metadata[name] for name in ROOT_METADATA if name in metadata}}
        return celtypes.MapType(
            {celtypes.StringType(name): cel_value(child(schema, name), member) for name, member in value.items()}
        )
    if isinstance(value, list):
        items = schema.get("items")
        return celtypes.ListType([cel_value(items if isinstance(items, dict) else {}, item) for item in value])
    if isinstance(value, bool):
        return json_to_cel(value)
    if isinstance(value, int):
        value = _within_64_bits(value)
    match schema.get("type"), schema.get("format"), value:
        case "number", _, int() | float():
            return celtypes.DoubleType(value)
        case "integer", _, int() | float():
            return celtypes.IntType(_within_64_bits(int(value)))
        case "string", "date-time", str():
            return celtypes.TimestampType(value)
        case "string", "duration", str():
            return celtypes.DurationType(value)
        case _:
            return json_to_cel(value)


def _broken(rule: Json, variables: Variables, path: str) -> Cause | None:
    text = rule["rule"].strip()
    transition = bool(OLD_SELF.search(text))
    if not (variables.existed if transition else variables.changed):
        return None
    try:
        if bool(program(text)(variables.cel)):
            return None
    except RuleError as error:
        why = f"{error} evaluating rule: {rule.get('message', '').strip() or text}"
        return invalid_value(path or "<nil>", variables.schema.get("type", ""), why)
    return _cause(rule, variables, path, rule.get("message", "").strip() or f"failed rule: {text}")


def _cause(rule: Json, variables: Variables, path: str, message: str) -> Cause:
    where = path + rule.get("fieldPath", "") if path else rule.get("fieldPath", "").lstrip(".")
    where = where or "<nil>"
    match rule.get("reason"):
        case "FieldValueForbidden":
            return forbidden_field(where, message)
        case "FieldValueRequired":
            return required(where, message)
        case "FieldValueDuplicate":
            return duplicate(where, variables.value)
        case _ if isinstance(variables.value, dict | list):
            # Objects and lists are too long to quote in a message.
            return Cause(where, "FieldValueInvalid", f"Invalid value: {message}")
        case _:
            return invalid_value(where, variables.value, message)


@lru_cache(maxsize=1024)
def program(text: str) -> Program:
    """The compiled expression, cached: compiling takes milliseconds, and each write checks the same rules."""
    # The import takes 0.2 seconds, so a cluster without rules does without it.
    from celpy.celparser import CELParseError
    from celpy.evaluation import CELEvalError

    environment = _environment()
    try:
        runner = environment.program(environment.compile(text))
    except CELParseError as error:
        raise RuleError(str(error).strip()) from error

    def run(variables: Json) -> Any:
        try:
            return runner.evaluate(variables)
        except CELEvalError as error:
            raise RuleError(_explained(error)) from error
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise RuleError(str(error)) from error

    return run


@lru_cache(maxsize=1)
def _environment() -> Any:
    import celpy

    return celpy.Environment()


def _explained(error: Exception) -> str:
    text = str(error.args[0]) if error.args else str(error)
    missing = re.search(r"no such member in mapping: '([^']*)'", text)
    return f"no such key: {missing[1]}" if missing else text
