"""What `apiextensions.k8s.io/v1` demands of a schema, and what we demand: nothing of ours is pruned or unbounded."""

import re
from collections.abc import Iterator
from typing import Any

OPEN = "x-kubernetes-preserve-unknown-fields"
KEYWORDS = frozenset(
    {
        "type", "description", "format", "enum", "pattern", "properties", "required", "items", "additionalProperties",
        "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
        "x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "default", OPEN,
    }
)  # fmt: skip
TYPES = frozenset({"object", "array", "string", "integer", "boolean"})
METADATA = "metadata"


def faults(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Each with the path where it is."""
    here = path or "root"
    yield from (f"{here}: {keyword} is not structural" for keyword in schema.keys() - KEYWORDS)
    kind = schema.get("type")
    if kind not in TYPES:
        yield f"{here}: no type"
    if "properties" in schema and "additionalProperties" in schema:
        yield f"{here}: properties beside additionalProperties"
    if kind == "object" and not schema.keys() & {"properties", "additionalProperties", OPEN} and path != METADATA:
        yield f"{here}: everything in it would be pruned"
    if kind == "array" and "items" not in schema:
        yield f"{here}: no items"
    if kind == "integer" and schema.get("format") not in ("int32", "int64"):
        yield f"{here}: no range"
    yield from (
        f"{here}: {name} is required and not declared"
        for name in schema.get("required", ())
        if name not in schema.get("properties", {})
    )
    yield from _faults_of_rules(schema, here)
    for name, inner in schema.get("properties", {}).items():
        yield from faults(inner, f"{path}.{name}" if path else name)
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from faults(schema[keyword], f"{path}[]")


def _faults_of_rules(schema: dict[str, Any], here: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield from (f"{here}: a rule without {part}" for part in ("rule", "message") if not rule.get(part))
        if "\n" in rule.get("message", ""):
            yield f"{here}: a message of several lines is refused"
        if rule.keys() - {"rule", "message", "fieldPath"}:
            yield f"{here}: a rule with more than older API servers know"
        # A loop is paid for by the longest list there may be.
        for looped in re.findall(r"(\S*)\.(?:all|exists|exists_one|map|filter)\(", rule["rule"]):
            field = re.sub(r"^\W*(self|oldSelf)\.?", "", looped)
            if not ((_declared(schema, field) if field else schema) or {}).keys() & {"maxItems", "maxProperties"}:
                yield f"{here}: a rule with a loop over {field}, which has no bound"
        if (field := rule.get("fieldPath")) and not _declares(schema, field):
            yield f"{here}: fieldPath {field} is not declared"


def _declares(schema: dict[str, Any], field: str) -> bool:
    return _declared(schema, field) is not None


def _declared(schema: dict[str, Any], field: str) -> dict[str, Any] | None:
    for name in field.lstrip(".").split("."):
        if name not in schema.get("properties", {}):
            return None
        schema = schema["properties"][name]
    return schema
