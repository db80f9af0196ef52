"""The parts of a kind's CustomResourceDefinition: OpenAPI schemas, columns and rules, as plain data.  Pure.

`muster.crds` composes a definition; a framework composes the schema of its `spec` from these parts.

The API server evaluates every rule also at every write of a status, and only then drops the errors about an
unchanged part.  So a bound, a pattern or an enumeration is preferred to a rule.  A rule is at the lowest level
with all fields that it reads, where `self` is smallest.  A rule uses `has` even for required fields, because
an evaluation error is never dropped: a job older than the schema would get no status.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shared.frameworks.reading import DNS_LABEL, GREATEST, JOB_NAME_PATTERN, MOST_WORKERS
from shared.frameworks.templates import LONGEST_CONTAINER_NAME

Document = dict[str, Any]


class Scale(NamedTuple):
    """The paths in the resource where `kubectl scale` and autoscalers find a job's size."""

    spec: str
    status: str = ".status.replicas"
    selector: str = ".status.selector"


class Version(NamedTuple):
    """Another version of a kind, which differs from the watched one in its spec at most.

    No webhook converts: the API server reads a stored object through every version's schema, and drops fields that
    the schema does not declare.  So the schema of the watched version declares the fields of all others, too.
    """

    name: str
    spec: Document | None = None
    """None for the spec of the watched version."""


class Definition(NamedTuple):
    """The parts of a kind's CustomResourceDefinition besides its names; the rest of this file has the pieces."""

    description: str
    spec: Document
    """The OpenAPI schema of `spec`; pod templates in it keep unknown fields."""
    short_names: tuple[str, ...] = ()
    singular: str = ""
    columns: tuple[Document, ...] = ()
    rules: tuple[Document, ...] = ()
    """The `x-kubernetes-validations` of the whole resource."""
    status: Document | None = None
    """The OpenAPI schema of `status` without `lastReconcileTime` and `history`; None keeps every field."""
    scale: Scale | None = None
    suspend: str = ""
    """The path of the field that suspends a job, such as `.spec.runPolicy.suspend`; empty without one."""
    suspend_annotation: str = ""
    """The annotation whose value `true` also suspends a job; empty without one."""
    expires: bool = True
    """True if its jobs have a time to live after their end, after which the scheduler deletes them."""
    versions: tuple[Version, ...] = ()


def members(
    properties: Document, *, required: Sequence[str] = (), description: str = "", rules: Sequence[Document] = ()
) -> Document:
    known: Document = {"type": "object"}
    known |= {"description": description} if description else {}
    known |= {"properties": properties}
    known |= {"required": [*required]} if required else {}
    return known | ({"x-kubernetes-validations": [*rules]} if rules else {})


OPEN: Document = {"x-kubernetes-preserve-unknown-fields": True}
"""Added to a schema: the API server keeps undeclared fields."""

ANYTHING: Document = {"type": "object", **OPEN}

TEXT: Document = {"type": "string"}
BOOLEAN: Document = {"type": "boolean"}
TIME: Document = {"type": "string", "format": "date-time"}

_TEXTS: Document = {"type": "object", "additionalProperties": TEXT}

_STRINGS: Document = {"type": "array", "items": TEXT}

MOST_CONTAINERS = 64
"""The most containers of a pod; without a bound the API server rejects a rule about them as too costly."""

_CONTAINER: Document = {
    "type": "object",
    "description": "As in a Pod: every field is kept.",
    "properties": {
        "name": {
            "type": "string",
            "maxLength": LONGEST_CONTAINER_NAME,
            "minLength": 1,
            "pattern": f"^{DNS_LABEL}$",
        },
        "image": {"type": "string", "minLength": 1},
        "command": _STRINGS,
        "args": _STRINGS,
        "env": {
            "type": "array",
            "items": members({"name": TEXT | {"minLength": 1}, "value": TEXT}, required=("name",)) | OPEN,
        },
    },
    "required": ["name", "image"],
    **OPEN,
}

# Fields that Kubernetes adds later must not be pruned, and a whole PodTemplateSpec is half a megabyte: more than
# `kubectl apply` can remember in an annotation.
TEMPLATE: Document = {
    "type": "object",
    "description": "As in a Deployment.",
    "properties": {
        "metadata": members(
            {"labels": _TEXTS, "annotations": _TEXTS},
            description="Labels and annotations for the pods; Muster's own win.",
        )
        | OPEN,
        "spec": {
            "type": "object",
            "description": "As in a Pod: every field is kept, except that restartPolicy is Muster's.",
            "properties": {
                "containers": {
                    "type": "array",
                    "description": "The first container trains: its exit is the pod's.",
                    "items": _CONTAINER,
                    "minItems": 1,
                    "maxItems": MOST_CONTAINERS,
                }
            },
            "required": ["containers"],
            **OPEN,
        },
    },
    "required": ["spec"],
    **OPEN,
}
"""A pod template with as few declarations as possible."""

REPLICAS: Document = {"type": "integer", "format": "int32", "minimum": 0, "maximum": MOST_WORKERS}

COUNT: Document = {"type": "integer", "format": "int32", "minimum": 0, "maximum": GREATEST}
"""A number in a status."""

MOST_CONDITIONS = 64
"""The most conditions, more than their types; without a bound the API server rejects a rule about them."""

CONDITIONS: Document = {
    "type": "array",
    "maxItems": MOST_CONDITIONS,
    "items": members(dict.fromkeys(("type", "status", "reason", "message"), TEXT), required=("type", "status")) | OPEN,
}
"""Conditions in a status, with the fields that `BY_CONDITIONS` reads."""

STATUS_WITH_CONDITIONS: Document = {"type": "object", "properties": {"conditions": CONDITIONS}, **OPEN}
"""A status that keeps all fields, for kinds whose rules use `BY_CONDITIONS`."""

_CONDITIONS_BEFORE = "oldSelf.status.conditions"

BY_CONDITIONS = (
    f"!has(oldSelf.status) || !has({_CONDITIONS_BEFORE})"
    f" || !{_CONDITIONS_BEFORE}.exists(c, c.type == 'Created' && c.status == 'True')"
    f" || {_CONDITIONS_BEFORE}.exists(c, c.type in ['Suspending', 'Suspended'] && c.status == 'True')"
)
"""True if no pod depends on the spec: the job is not admitted yet, is rejected, or is being suspended or Suspended."""


def pausing(path: str) -> str:
    """True in the very write that asks for a pause by the field at `path`, such as `.spec.suspend`, and while it asks.

    A queue (Kueue) suspends a job and takes what it had put into the pod templates back in one write.
    """
    steps = path.strip(".").split(".")
    parts = [".".join(["self", *steps[: number + 1]]) for number in range(1, len(steps))]
    return f"({' && '.join([*(f'has({part})' for part in parts), parts[-1]])})"


MOST_MEMBERS = 8
"""The most members of a map in a rule: the API server estimates the cost with the largest possible map."""


def by_phase(*phases: str) -> str:
    """True in these phases, in which no pod depends on the spec; "" is the phase of a job that was
    rejected, or is not admitted yet."""
    return f"(has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase in {[*phases]!r})"


def column(name: str, path: str, *, kind: str = "string", wide: bool = False) -> Document:
    """A column of `kubectl get`, or only of `-o wide`; `path` is a JSONPath in the resource."""
    return {"name": name, "type": kind, "jsonPath": path} | ({"priority": 1} if wide else {})


def number(least: int = 0, most: int = GREATEST, description: str = "") -> Document:
    known = {"type": "integer", "format": "int32", "minimum": least, "maximum": most}
    return known | ({"description": description} if description else {})


def choice(*values: str, description: str = "") -> Document:
    return {"type": "string", "enum": [*values]} | ({"description": description} if description else {})


def rule(expression: str, message: str, *, field: str = "") -> dict[str, str]:
    """A rule in the Common Expression Language; one with `oldSelf` applies to updates only.

    `field` is the path of the message's field, relative to the rule and without a list.
    """
    return {"rule": expression, "message": message} | ({"fieldPath": field} if field else {})


def training_rule(container: str) -> tuple[Document, ...]:
    """The rule of an object with a `template`: one of its containers has this name."""
    if not container:
        return ()
    unknown = "!has(self.template) || !has(self.template.spec) || !has(self.template.spec.containers)"
    there = f"self.template.spec.containers.exists(c, has(c.name) && c.name == '{container}')"
    message = f"call the container that trains {container}"
    return (rule(f"{unknown} || {there}", message, field=".template.spec.containers"),)


def fixed(field: str, message: str, *, within: str, free: str) -> dict[str, str]:
    """A rule of the whole resource: this field may change only while no pod depends on it.

    `within` is the required part of `field`; `free` is `BY_CONDITIONS`,
    `by_phase(...)` or another expression about `oldSelf`.
    """
    return rule(f"{free} || {_unchanged(field, within)}", message, field=f".{field}")


def all_fixed(fields: Sequence[str], message: str, *, within: str, free: str) -> dict[str, str]:
    """The same rule for several fields; `message` names them."""
    same = " && ".join(_unchanged(field, within) for field in fields)
    return rule(f"{free} || ({same})", message, field=f".{within}")


def _unchanged(field: str, within: str) -> str:
    assert field == within or field.startswith(f"{within}."), f"{field} is not within {within}"
    steps = field.removeprefix(within).lstrip(".").split(".") if field != within else []
    paths = [".".join([within, *steps[: number + 1]]) for number in range(len(steps))]
    was, now = (" && ".join(f"has({of}.{path})" for path in paths) for of in ("oldSelf", "self"))
    if not paths:
        return f"self.{field} == oldSelf.{field}"
    if len(paths) == 1:
        return f"({was} == {now} && (!{now} || self.{field} == oldSelf.{field}))"
    return f"(({was}) == ({now}) && (!({now}) || self.{field} == oldSelf.{field}))"


def each_fixed(field: str, parts: Mapping[str, str], message: str, *, free: str) -> dict[str, str]:
    """The same rule for parts of each member of a required map with at most `MOST_MEMBERS` members.

    `parts` has for each the members, by their `name`, in which it may change; empty for none.  No member may be added
    or removed.
    """
    was, now = f"oldSelf.{field}", f"self.{field}"
    same = " && ".join(
        f"({f'{but} || ' if but else ''}has({now}[name].{part}) == has({was}[name].{part})"
        f" && (!has({now}[name].{part}) || {now}[name].{part} == {was}[name].{part}))"
        for part, but in parts.items()
    )
    kept = f"size({now}) == size({was}) && {was}.all(name, name in {now} && {same})"
    return rule(f"{free} || ({kept})", message, field=f".{field}")


AGE = column("Age", ".metadata.creationTimestamp", kind="date")
PHASE = column("Phase", ".status.phase")


def name_rule(pattern: str, longest: int, message: str) -> dict[str, str]:
    """A rule of the whole resource: the pods' names begin with its name.

    It applies only without a status: a resource older than the rule still gets its status.
    """
    named = f"size(self.metadata.name) <= {longest} && self.metadata.name.matches('^{pattern}$')"
    return rule(f"has(self.status) || ({named})", message)


def job_name_rule(longest: int, *, digit: bool = False) -> dict[str, str]:
    """The rule for the names of jobs; with `digit` such a name may begin with one."""
    return name_rule(
        DNS_LABEL if digit else JOB_NAME_PATTERN,
        longest,
        f"name the job with at most {longest} lower-case letters, digits and hyphens, beginning with a letter"
        f"{' or digit' if digit else ''} and not ending with a hyphen: its pods are named after it",
    )


HISTORY = members(
    {
        "log": TEXT | {"maxLength": 253, "description": "Which log: the id of its first event."},
        "sequence": {"type": "integer", "format": "int64", "minimum": 0},
        "hash": TEXT | {"maxLength": 253, "description": "Of the job's history up to that event."},
    },
    required=("log", "sequence", "hash"),
    description="The event of Muster's log that this status tells of.",
)
"""The head of a history in a status."""

READ_ONLY = "Read only: written by Muster."
"""The schema of a status; its values have no upper bounds, because users need the status of any job."""
NAMES: Document = {"type": "array", "items": TEXT}
_CONDITIONS: Document = {
    "type": "array",
    "description": "In the order in which they became what they are.",
    "items": members(
        {
            "type": TEXT,
            "status": choice("True", "False", "Unknown"),
            "reason": TEXT | {"description": "One CamelCase word."},
            "message": TEXT,
            "lastUpdateTime": TIME | {"description": "When anything of it changed last."},
            "lastTransitionTime": TIME | {"description": "When its status became what it is."},
        },
        required=("type", "status"),
    ),
}
REPLICA_STATUSES: Document = {
    "type": "object",
    "additionalProperties": members(
        {
            "active": COUNT | {"description": "Pods that run."},
            "succeeded": COUNT | {"description": "Pods that ended by themselves with success."},
            "failed": COUNT | {"description": "Pods that ended by themselves without success."},
        }
    ),
}
STATUS: Document = {
    "phase": TEXT | {"description": "Where it stands, in one word."},
    "conditions": _CONDITIONS,
}
WHY = (
    column("Reason", ".status.conditions[-1:].reason"),
    column("Message", ".status.conditions[-1:].message", wide=True),
)
"""Of the last condition, since conditions are in the order in which they became true."""
