"""Pieces of the definitions of MXNet kinds.  Pure."""

from shared.frameworks.framework import Document
from shared.frameworks.mxnet import MOST_PORT, ParameterServer
from shared.frameworks.schemas import REPLICAS, TEMPLATE

PHASE: Document = {"name": "Phase", "type": "string", "jsonPath": ".status.phase"}
STATE: Document = {"name": "State", "type": "string", "jsonPath": ".status.state"}
AGE: Document = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}

PORT: Document = {"type": "integer", "format": "int32", "minimum": 1, "maximum": MOST_PORT}


def entries_schema(framework: ParameterServer) -> Document:
    """The list of replicas of a kind: an entry for each type."""
    properties: Document = {"replicas": REPLICAS, "template": TEMPLATE, framework.type_field: {"type": "string"}}
    if framework.port_field:
        properties[framework.port_field] = PORT
    return {
        "type": "array",
        "items": {"type": "object", "required": ["template"], "properties": properties},
        "minItems": 1,
        "maxItems": len(framework.replica_types),
    }


def fixed_runtime_id() -> Document:
    """Pods are named after it: it changes only while there are none."""
    free = "has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase in ['', 'Failed']"
    was, now = "has(oldSelf.spec.RuntimeId)", "has(self.spec.RuntimeId)"
    return {
        "rule": f"({free}) || ({was} == {now} && (!{now} || self.spec.RuntimeId == oldSelf.spec.RuntimeId))",
        "message": "RuntimeId cannot be changed: the pods are named after it; create the job again",
        "fieldPath": ".spec.RuntimeId",
    }
