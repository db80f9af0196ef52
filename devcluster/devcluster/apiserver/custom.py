"""Custom resources and their definitions: what is invalid, and the conversion between versions.

A definition's name is `<plural>.<group>`, one version is stored, and its CEL rules compile.  Whether a schema is
structural is not checked here: `tests/crds` applies Muster's definitions to the real server.
A custom resource is validated by its schema, then by its CEL rules.
As with the real server's conversion strategy None, a conversion changes the apiVersion and drops the fields that the
target's schema does not declare.  A write fills in the defaults of the client's version, a read those of the stored.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from devcluster.apiserver import cel
from devcluster.apiserver.cel import rule_problems
from devcluster.apiserver.errors import Cause, Json, forbidden_field, invalid_value
from devcluster.apiserver.resources import Resource, is_established
from devcluster.apiserver.schema import ABSENT, apply_defaults, child, prune, validate
from devcluster.apiserver.store import Entry
from devcluster.clock import now

SERVED = (
    ("NamesAccepted", "NoConflicts", "no conflicts found"),
    ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
)


def fill_definition(definition: Json, old: Json | None) -> None:
    spec, names = definition["spec"], definition["spec"]["names"]
    names["singular"] = names.get("singular") or names["kind"].lower()
    names["listKind"] = names.get("listKind") or names["kind"] + "List"
    spec.setdefault("conversion", {"strategy": "None"})


def wrong_definition(definition: Json, old: Json | None) -> list[Cause]:
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
    """The status of a definition whose names are accepted: this server accepts all names at once."""
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


BLOCKING = frozenset(
    {
        "FieldValueRequired",
        "FieldValueTypeInvalid",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueNotSupported",
    }
)
RULES_SKIPPED = Cause(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
    "existing errors to complete validation",
)


def _wrong_status(schema: Json, obj: Json, old: Json) -> list[Cause]:
    """The causes of a write to the status subresource; their messages have paths relative to `status`."""
    part = child(schema, "status")
    if "status" not in obj or not isinstance(part, dict):
        return []
    causes = validate(part, obj["status"], old.get("status", ABSENT), root=False)
    return [cause._replace(field=_under_status(cause.field)) for cause in causes]


def _under_status(field: str) -> str:
    return "status" if field == "<nil>" else f"status.{field}"


def wrong(
    resource: Resource, obj: Json, old: Json | None, known: Sequence[Cause] = (), subresource: str = ""
) -> list[Cause]:
    """The causes of an invalid custom resource; `known` are those of its metadata."""
    if resource.schema is None:
        return []
    former = ABSENT if old is None else old
    causes = _wrong_status(resource.schema, obj, old or {}) if subresource else validate(resource.schema, obj, former)
    if resource.ruled is None:
        return causes
    if any(cause.reason in BLOCKING for cause in (*known, *causes)):
        return [*causes, RULES_SKIPPED]
    return causes + cel.check(resource.ruled, obj, former)


REMEMBERED = 4096
"""The number of cached conversions: lists and watches of many clients need the same ones again."""


def stored(resource: Resource, obj: Json) -> Json:
    """`obj` of this kind and version, changed in place, in its stored version."""
    return _turned(resource, obj, resource.stored_version) if resource.custom else obj


def shown(resource: Resource, entry: Entry) -> Entry:
    """The stored entry in this kind and version."""
    return _shown(resource, entry) if resource.custom else entry


@lru_cache(maxsize=REMEMBERED)
def _shown(resource: Resource, entry: Entry) -> Entry:
    obj = entry.object()
    # A definition may have changed since the object was written.
    schema = resource.schemas.get(obj["apiVersion"])
    if schema is not None:
        prune(schema, obj)
        apply_defaults(schema, obj)
    found = Entry(_turned(resource, obj, resource.api_version), entry.version)
    return entry if found.raw == entry.raw else found


def _turned(resource: Resource, obj: Json, api_version: str) -> Json:
    """`obj`, changed in place, in another version of its kind."""
    schema = resource.schemas.get(api_version)
    if obj["apiVersion"] != api_version and schema is not None:
        prune(schema, obj)
    obj["apiVersion"] = api_version
    return obj
