"""JSON values as CEL sees them through a schema: a number is a double even when it is written 1."""

from typing import Any

from devcluster.apiserver.errors import Json
from devcluster.apiserver.schema import child

ROOT_METADATA = ("name", "generateName")
"""All of `metadata` that the rules of a resource may see."""


def cel_value(schema: Json | bool, value: Any, *, root: bool = False) -> Any:
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
    match schema.get("type"), schema.get("format"), value:
        case "number", _, int() | float():
            return celtypes.DoubleType(value)
        case "integer", _, int() | float():
            return celtypes.IntType(int(value))
        case "string", "date-time", str():
            return celtypes.TimestampType(value)
        case "string", "duration", str():
            return celtypes.DurationType(value)
        case _:
            return json_to_cel(value)
