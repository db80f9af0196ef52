"""Custom resource definitions: the name is `<plural>.<group>`, one version is stored, and the CEL rules compile.

Whether a schema is structural is not checked here: `tests/crds` applies Muster's definitions to the real server.
"""

from typing import Any

from devcluster.apiserver.cel import rule_problems
from devcluster.apiserver.errors import Cause, Json, forbidden_field, invalid_value
from devcluster.apiserver.kinds.rules import Rules
from devcluster.apiserver.resources import is_established
from devcluster.apiserver.shapes import DEFINITION
from devcluster.clock import now

SERVED = (
    ("NamesAccepted", "NoConflicts", "no conflicts found"),
    ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
)


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


RULES = Rules(shape=DEFINITION, fill=fill, wrong=wrong, counts_generations=True, requires_version=True)
