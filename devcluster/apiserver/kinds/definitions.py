"""Custom resource definitions: named after what they define, one stored version, and rules that compile.

Each names the types of what this server reads of it.  That a schema is structural is not checked here: the definitions
of Muster are held to the real server by `tests/crds`.
"""

from typing import Any

import msgspec

from devcluster.apiserver.cel import rule_problems
from devcluster.apiserver.errors import Cause, Json, forbidden_field, invalid_value
from devcluster.apiserver.kinds.rules import Rules
from devcluster.apiserver.resources import is_established
from devcluster.apiserver.shapes import Condition, Shape
from devcluster.clock import now

SERVED = (
    ("NamesAccepted", "NoConflicts", "no conflicts found"),
    ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
)


class Rule(Shape):
    rule: str
    message: str = ""
    reason: str = ""
    field_path: str = ""


class Schema(Shape):
    """The keywords of a structural schema; `x-kubernetes-` is dropped from their names here."""

    type: str | None = None
    format: str | None = None
    pattern: str | None = None
    properties: "dict[str, Schema] | None" = None
    additional_properties: "Schema | bool | None" = None
    items: "Schema | None" = None
    required: list[str] | None = None
    enum: list[Any] | None = None
    nullable: bool | None = None
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    list_type: str | None = msgspec.field(default=None, name="x-kubernetes-list-type")
    map_keys: list[str] | None = msgspec.field(default=None, name="x-kubernetes-list-map-keys")
    rules: list[Rule] | None = msgspec.field(default=None, name="x-kubernetes-validations")


class Column(Shape):
    name: str
    type: str
    json_path: str
    format: str | None = None
    description: str | None = None
    priority: int | None = None


class Scale(Shape):
    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str | None = None


class Subresources(Shape):
    status: Json | None = None
    scale: Scale | None = None


class VersionSchema(Shape):
    schema: Schema = msgspec.field(name="openAPIV3Schema")


class Version(Shape):
    name: str
    schema: VersionSchema
    served: bool = False
    storage: bool = False
    subresources: Subresources | None = None
    additional_printer_columns: list[Column] | None = None


class Names(Shape):
    plural: str
    kind: str
    singular: str | None = None
    list_kind: str | None = None
    short_names: list[str] | None = None
    categories: list[str] | None = None


class Spec(Shape):
    group: str
    scope: str
    names: Names
    versions: list[Version]
    conversion: Json | None = None


class Status(Shape):
    accepted_names: Json | None = None
    conditions: list[Condition] | None = None
    stored_versions: list[str] | None = None


class CustomResourceDefinition(Shape):
    spec: Spec
    status: Status | None = None


def fill(definition: Json, old: Json | None) -> None:
    spec, names = definition["spec"], definition["spec"]["names"]
    names["singular"] = names.get("singular") or names["kind"].lower()
    names["listKind"] = names.get("listKind") or names["kind"] + "List"
    spec.setdefault("conversion", {"strategy": "None"})


def wrong(definition: Json, old: Json | None) -> list[Cause]:
    spec = definition["spec"]
    causes = []
    if definition["metadata"]["name"] != f"{spec['names']['plural']}.{spec['group']}":
        detail = 'must be spec.names.plural+"."+spec.group'
        causes.append(invalid_value("metadata.name", definition["metadata"]["name"], detail))
    if (spec.get("conversion") or {}).get("strategy") != "None":
        causes.append(forbidden_field("spec.conversion.strategy", "this development server only knows None"))
    names = [version["name"] for version in spec["versions"]]
    if len({*names}) < len(names):
        causes.append(invalid_value("spec.versions", names, "must contain unique version names"))
    if sum(1 for version in spec["versions"] if version.get("storage")) != 1:
        causes.append(invalid_value("spec.versions", names, "must have exactly one version marked as storage version"))
    for index, version in enumerate(spec["versions"]):
        path = f"spec.versions[{index}].schema.openAPIV3Schema"
        causes += rule_problems(version["schema"]["openAPIV3Schema"], path)
    if old is not None and is_established(old):
        fixed = {"spec.scope": ("scope",), "spec.names.kind": ("names", "kind")}
        causes += [
            invalid_value(path, _at(spec, *keys), "field is immutable")
            for path, keys in fixed.items()
            if _at(spec, *keys) != _at(old["spec"], *keys)
        ]
    return causes


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value[key]
    return value


def established(definition: Json) -> Json:
    """The status of a definition, which this server serves at once under all the names that it asks for."""
    before: Json = definition.get("status") or {}
    versions = [version["name"] for version in definition["spec"]["versions"] if version.get("storage")]
    stored = before.get("storedVersions") or []
    conditions = before.get("conditions") or [
        {"type": kind, "status": "True", "lastTransitionTime": now(), "reason": reason, "message": message}
        for kind, reason, message in SERVED
    ]
    more = [name for name in versions if name not in stored]
    names = {name: value for name, value in definition["spec"]["names"].items() if value}
    return before | {"acceptedNames": names, "conditions": conditions, "storedVersions": [*stored, *more]}


RULES = Rules(shape=CustomResourceDefinition, fill=fill, wrong=wrong, counts_generations=True, must_say_version=True)
