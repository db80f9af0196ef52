"""Structural schemas, the part of OpenAPI v3 that `apiextensions.k8s.io/v1` takes, from pydantic models.

References are written out, titles and nulls go, and what the API server would refuse is an error here.
"""

from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

_RULES = "x-kubernetes-validations"
_OPEN = "x-kubernetes-preserve-unknown-fields"

# Nulls of ours are absent fields; a default in the schema would be written into users' objects.
_DROPPED = frozenset({"title", "default"})
_KEPT = frozenset(
    {
        "type", "format", "description", "enum", "pattern", "required",
        "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
    }
)  # fmt: skip


def structural(model: type[BaseModel]) -> Schema:
    """The schema of a model.  Raises `TypeError` for what a structural schema cannot say."""
    schema = model.model_json_schema(by_alias=True)
    return _converted(schema, schema.get("$defs", {}), model.__name__)


def _converted(schema: Schema, models: dict[str, Schema], path: str) -> Schema:
    schema = _alone(schema, models, path)
    result: Schema = {}
    for keyword, value in schema.items():
        match keyword:
            case "properties":
                result[keyword] = {name: _converted(inner, models, f"{path}.{name}") for name, inner in value.items()}
            case "items":
                result[keyword] = _converted(value, models, f"{path}[]")
            case "additionalProperties":
                if isinstance(value, dict):
                    result[keyword] = _converted(value, models, f"{path}[]")
            case _ if keyword in _KEPT or keyword.startswith("x-kubernetes-"):
                result[keyword] = value
            case _ if keyword not in _DROPPED and keyword != "$defs":
                raise TypeError(f"{path}: {keyword} cannot stand in a structural schema")
    if "type" not in result:
        raise TypeError(f"{path}: say which type it is")
    if result["type"] == "object" and not result.keys() & {"properties", "additionalProperties", _OPEN}:
        raise TypeError(f"{path}: an object without declared fields would be pruned to nothing")
    if result["type"] == "object" and result.get("properties") == {}:
        del result["properties"]
    first = {keyword: result[keyword] for keyword in ("type", "description") if keyword in result}
    return first | result


def _alone(schema: Schema, models: dict[str, Schema], path: str) -> Schema:
    """The schema without references and without the choice between something and null."""
    while "$ref" in schema or "anyOf" in schema:
        beside = {keyword: value for keyword, value in schema.items() if keyword not in ("$ref", "anyOf")}
        if "$ref" in schema:
            inner = models[schema["$ref"].rpartition("/")[2]]
        else:
            some = [choice for choice in schema["anyOf"] if choice.get("type") != "null"]
            if len(some) != 1:
                raise TypeError(f"{path}: a choice of types cannot stand in a structural schema")
            inner = some[0]
        schema = _merged(inner, beside)
    return schema


def _merged(inner: Schema, beside: Schema) -> Schema:
    """What stands beside a reference is about this use of it and comes before what the model says of itself."""
    merged = inner | beside
    if _RULES in inner and _RULES in beside:
        merged[_RULES] = [*inner[_RULES], *beside[_RULES]]
    return merged
