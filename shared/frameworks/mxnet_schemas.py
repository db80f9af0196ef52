"""Pieces of the definitions of MXNet kinds.  Pure."""

from shared.frameworks.framework import Document
from shared.frameworks.mxnet import MOST_PORT, ParameterServer
from shared.frameworks.mxnet_status import NOT_BEGUN
from shared.frameworks.schemas import AGE, REPLICAS, TEMPLATE, TEXT, by_phase, fixed, name_rule, number
from shared.frameworks.training import JOB_NAME_PATTERN

PHASE: Document = {"name": "Phase", "type": "string", "jsonPath": ".status.phase"}
STATE: Document = {"name": "State", "type": "string", "jsonPath": ".status.state"}
COLUMNS = (PHASE, STATE, AGE)


def named(longest: int) -> Document:
    """Pods are named after the job; whether a longer name fits depends on the job's types and its RuntimeId."""
    return name_rule(
        JOB_NAME_PATTERN,
        longest,
        f"name the job with at most {longest} lower-case letters, digits and hyphens, beginning with a letter and not "
        "ending with a hyphen: its pods are named after it",
    )


FIXED_RUNTIME_ID = fixed(
    "spec.RuntimeId",
    "RuntimeId cannot be changed: the pods are named after it; create the job again",
    within="spec",
    free=by_phase(*NOT_BEGUN),
)


def entries_schema(framework: ParameterServer) -> Document:
    """The list of replicas of a kind: an entry for each type."""
    properties: Document = {"replicas": REPLICAS, "template": TEMPLATE, framework.type_field: TEXT}
    if framework.port_field:
        properties[framework.port_field] = number(1, MOST_PORT)
    return {
        "type": "array",
        "items": {"type": "object", "required": ["template"], "properties": properties},
        "minItems": 1,
        "maxItems": len(framework.replica_types),
    }
