"""Pieces of the definitions of MXNet kinds.  Pure."""

from collections.abc import Iterator

from shared.frameworks import schemas
from shared.frameworks.definition import Document
from shared.frameworks.mxnet import LONGEST_RUNTIME_ID, MOST_PORT, ParameterServer
from shared.frameworks.mxnet_status import NOT_BEGUN
from shared.frameworks.reading import JOB_NAME_PATTERN
from shared.frameworks.templates import DNS_LABEL


def columns(type_field: str, *more: Document) -> tuple[Document, ...]:
    """`type_field` is the status field for the type of a replica; `more` are columns that the replaced operator had
    at this place."""
    workers = f'.status.replicaStatuses[?(@.{type_field}=="WORKER")].ReplicasStates'
    return (
        schemas.PHASE,
        schemas.column("State", ".status.state"),
        schemas.AGE,
        *more,
        schemas.column("Workers", f"{workers}.Running", kind="integer"),
        schemas.column("Failed", f"{workers}.Failed", kind="integer", wide=True),
        schemas.column("Reason", ".status.reason", wide=True),
    )


def named(framework: ParameterServer, longest: int) -> Document:
    """The rule of a job's name; a longer one may not fit, by the job's types and its RuntimeId."""
    return schemas.name_rule(
        DNS_LABEL if framework.leading_digit else JOB_NAME_PATTERN,
        longest,
        f"name the job with at most {longest} lower-case letters, digits and hyphens, beginning with a letter"
        f"{' or digit' if framework.leading_digit else ''} and not ending with a hyphen: its pods are named after it",
    )


RUNTIME_ID: Document = {"type": "string", "maxLength": LONGEST_RUNTIME_ID, "pattern": "^[0-9a-z]*$"}

FIXED_RUNTIME_ID = schemas.fixed(
    "spec.RuntimeId",
    "RuntimeId cannot be changed: the pods are named after it; create the job again",
    within="spec",
    free=schemas.by_phase(*NOT_BEGUN),
)


def entries_schema(framework: ParameterServer, *, any_case: bool = False) -> Document:
    """The list of replicas: an entry for each type, in any case (`any_case`) or as the kind writes it."""
    types = schemas.TEXT if any_case else schemas.choice("", *(kind.name for kind in framework.replica_types))
    properties: Document = {"replicas": schemas.REPLICAS, "template": schemas.TEMPLATE, framework.type_field: types}
    if framework.port_field:
        properties[framework.port_field] = schemas.number(1, MOST_PORT)
    training = schemas.training_rule(framework.container_properties.name)
    return {
        "type": "array",
        "items": schemas.members(properties, required=("template",), rules=training),
        "minItems": 1,
        "maxItems": len(framework.replica_types),
        "x-kubernetes-validations": [*_rules_of_entries(framework)],
    }


def type_of(framework: ParameterServer, entry: str) -> str:
    """A CEL expression: the type of an entry, as the kind writes it, or in any case if it accepts that."""
    field = f"{entry}.{framework.type_field}"
    return f"(has({field}) && {field} != '' ? {field} : '{framework.default_type}')"


def _rules_of_entries(framework: ParameterServer) -> Iterator[Document]:
    yield schemas.rule(
        f"self.all(e, self.exists_one(o, {type_of(framework, 'o')} == {type_of(framework, 'e')}))",
        "write one entry for each type; replicas says how many there are of it",
    )
    for kind in framework.replica_types:
        of_kind = f"{type_of(framework, 'e')}.matches('(?i)^{kind.name}$')"
        if kind.least:
            yield schemas.rule(f"self.exists(e, {of_kind})", f"add {kind.least} {kind.name}")
        if kind.least or kind.most == 1:
            within = f"{kind.least} <= e.replicas && e.replicas <= {kind.most}"
            yield schemas.rule(
                f"self.all(e, !{of_kind} || !has(e.replicas) || ({within}))",
                f"ask for {'' if kind.least else 'at most '}{kind.most} {kind.name}",
            )
