"""A custom resource with one of everything that a schema can say: defaults, pruning, bounds, list types and rules."""

from typing import Any

from shared.cluster import Resource
from shared.cluster.objects import Custom
from tests.kit.definitions import a_definition, a_version, scaling

GADGETS = Resource("test.muster.dev", "v1", "gadgets", "Gadget", Custom)

PART = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}},
}
SPEC: dict[str, Any] = {
    "type": "object",
    "default": {},
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 100, "default": 3},
        "colour": {"type": "string", "enum": ["red", "green", "blue"]},
        "note": {"type": "string", "maxLength": 10, "nullable": True},
        "code": {"type": "string", "pattern": "^[a-z]+$"},
        "port": {"x-kubernetes-int-or-string": True},
        "parts": {
            "type": "array",
            "items": PART,
            "maxItems": 8,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 4, "x-kubernetes-list-type": "set"},
        "nested": {
            "type": "object",
            "properties": {
                "deep": {"type": "boolean"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "marks": {"type": "object", "additionalProperties": {"type": "string"}},
        "low": {"type": "integer"},
        "high": {"type": "integer"},
        "fixed": {
            "type": "string",
            "maxLength": 20,
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed cannot be changed"}],
        },
        "forbidden": {
            "type": "string",
            "maxLength": 20,
            "x-kubernetes-validations": [{"rule": "self != 'word'", "reason": "FieldValueForbidden"}],
        },
        "when": {"type": "string", "format": "date-time"},
    },
    "x-kubernetes-validations": [
        {
            "rule": "!has(self.low) || !has(self.high) || self.low <= self.high",
            "message": "low is above high",
            "fieldPath": ".low",
        }
    ],
}
CONDITION = {
    "type": "object",
    "required": ["type", "status"],
    "properties": {
        "type": {"type": "string"},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
    },
}
STATUS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "phase": {"type": "string"},
        "replicas": {"type": "integer"},
        "sequence": {
            "type": "integer",
            "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "a newer one was written"}],
        },
        "conditions": {"type": "array", "items": CONDITION},
    },
}
DEFINITION = a_definition(
    GADGETS,
    a_version(
        GADGETS.version,
        SPEC,
        STATUS,
        storage=True,
        subresources=scaling(".spec.size"),
        additionalPrinterColumns=[
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
            {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    ),
    listKind="GadgetList",
)
