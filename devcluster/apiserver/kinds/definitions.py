"""Custom resource definitions: complete, structural, and with rules that compile."""

import re
from typing import Any

from devcluster.apiserver.cel import rule_problems
from devcluster.apiserver.crdshapes import CustomResourceDefinition
from devcluster.apiserver.errors import (
    Cause,
    Json,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)
from devcluster.apiserver.kinds.rules import Rules
from devcluster.apiserver.names import label_1035, subdomain
from devcluster.apiserver.resources import is_established

SCOPES = ("Cluster", "Namespaced")
TYPES = ("array", "boolean", "integer", "number", "object", "string")
NOT_STRUCTURAL = ("$ref", "definitions", "dependencies", "patternProperties", "additionalItems", "id")
COLUMN_TYPES = ("integer", "number", "string", "boolean", "date")
DEEPEST = 60
"""Levels of a schema; deeper ones are somebody's mistake, and would end our recursion first."""


def fill(definition: Json, old: Json | None) -> None:
    spec = definition.get("spec") or {}
    names = spec.get("names")
    if not isinstance(names, dict) or not names.get("kind"):
        return
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", names["kind"] + "List")
    spec.setdefault("conversion", {"strategy": "None"})
    status = definition.get("status")
    if old is not None and status and spec != old["spec"]:
        known = status.get("storedVersions") or []
        versions = spec.get("versions") or ()
        more = [one["name"] for one in versions if one.get("storage") and one["name"] not in known]
        status["storedVersions"] = [*known, *more]


def wrong(definition: Json, old: Json | None) -> list[Cause]:
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    causes = [required(f"spec.{field}") for field in ("group", "names", "scope") if not spec.get(field)]
    causes += [required(f"spec.names.{field}") for field in ("plural", "kind") if not names.get(field)]
    if causes:
        return causes
    if problem := subdomain(spec["group"]):
        causes.append(invalid_value("spec.group", spec["group"], problem))
    elif "." not in spec["group"]:
        causes.append(invalid_value("spec.group", spec["group"], "should be a domain with at least one dot"))
    wanted = f"{names['plural']}.{spec['group']}"
    if definition["metadata"]["name"] != wanted:
        detail = 'must be spec.names.plural+"."+spec.group'
        causes.append(invalid_value("metadata.name", definition["metadata"]["name"], detail))
    if spec["scope"] not in SCOPES:
        causes.append(not_supported("spec.scope", spec["scope"], SCOPES))
    if (spec.get("conversion") or {}).get("strategy") != "None":
        causes.append(forbidden_field("spec.conversion.strategy", "this development server only knows None"))
    for field in ("plural", "singular"):
        if problem := label_1035(names.get(field) or ""):
            causes.append(invalid_value(f"spec.names.{field}", names.get(field), problem))
    if problem := label_1035(names["kind"].lower()):
        causes.append(invalid_value("spec.names.kind", names["kind"], problem))
    if names.get("listKind") == names["kind"]:
        detail = "kind and listKind may not be the same"
        causes.append(invalid_value("spec.names.listKind", names["kind"], detail))
    return causes + _wrong_versions(spec.get("versions") or []) + _wrong_change(definition, old)


def _wrong_change(definition: Json, old: Json | None) -> list[Cause]:
    if old is None:
        return []
    spec, before = definition["spec"], old["spec"]
    fixed = [("spec.group", spec["group"], before["group"])]
    fixed += [("spec.names.plural", spec["names"]["plural"], before["names"]["plural"])]
    if is_established(old):
        fixed += [("spec.scope", spec["scope"], before["scope"])]
        fixed += [("spec.names.kind", spec["names"]["kind"], before["names"]["kind"])]
    causes = [invalid_value(path, new, "field is immutable") for path, new, was in fixed if new != was]
    return causes + (_lost_versions(definition) if spec != before else [])


def _lost_versions(definition: Json) -> list[Cause]:
    """What is stored in a version can only be read as long as the definition has that version."""
    known = {version["name"] for version in definition["spec"].get("versions") or ()}
    return [
        invalid_value(
            f"status.storedVersions[{index}]",
            name,
            f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions"
            f" until a storage migration ensures no data remains persisted in {name} and removes {name} from"
            " status.storedVersions",
        )
        for index, name in enumerate((definition.get("status") or {}).get("storedVersions") or ())
        if name not in known
    ]


def _wrong_versions(versions: list[Json]) -> list[Cause]:
    causes = []
    # The real server repeats all versions here, as Go prints them, and finds the status at odds with them.
    names = [version["name"] for version in versions]
    if len({*names}) < len(names):
        causes.append(invalid_value("spec.versions", names, "must contain unique version names"))
    if sum(1 for version in versions if version.get("storage")) != 1:
        causes.append(invalid_value("spec.versions", names, "must have exactly one version marked as storage version"))
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        if problem := label_1035(version["name"]):
            causes.append(invalid_value(f"{path}.name", version["name"], problem))
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not schema:
            causes.append(required(f"{path}.schema.openAPIV3Schema", "schemas are required"))
        else:
            causes += _wrong_schema(schema, f"{path}.schema.openAPIV3Schema")
        for number, column in enumerate(version.get("additionalPrinterColumns") or ()):
            if column["type"] not in COLUMN_TYPES:
                where = f"{path}.additionalPrinterColumns[{number}].type"
                causes.append(not_supported(where, column["type"], COLUMN_TYPES))
    return causes


def _wrong_schema(schema: Json, path: str) -> list[Cause]:
    causes = _unstructural(schema, path, 0)
    if schema.get("type") != "object":
        causes.append(invalid_value(f"{path}.type", schema.get("type", ""), "must be object at the root"))
    return causes or rule_problems(schema, path)


def _unstructural(schema: Any, path: str, depth: int) -> list[Cause]:
    """What the real server refuses about the form of a schema, at this level and below."""
    if not isinstance(schema, dict):
        return [invalid_value(path, None, "a schema is an object")]
    if depth > DEEPEST:
        return [forbidden_field(path, "the schema is too deep")]
    causes = _wrong_keywords(schema, path) + _wrong_node(schema, path)
    if causes:
        return causes
    for name, inner in (schema.get("properties") or {}).items():
        causes += _unstructural(inner, f"{path}.properties[{name}]", depth + 1)
    if isinstance(schema.get("additionalProperties"), dict):
        causes += _unstructural(schema["additionalProperties"], f"{path}.additionalProperties", depth + 1)
    if "items" in schema:
        causes += _unstructural(schema["items"], f"{path}.items", depth + 1)
    return causes


def _wrong_node(schema: Json, path: str) -> list[Cause]:
    causes = [
        forbidden_field(f"{path}.{word}", f"{word} is not supported") for word in NOT_STRUCTURAL if word in schema
    ]
    free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if not schema.get("type") and not free:
        causes.append(required(f"{path}.type", "must not be empty for specified object fields"))
    if schema.get("type") and schema["type"] not in TYPES:
        causes.append(not_supported(f"{path}.type", schema["type"], TYPES))
    if schema.get("uniqueItems"):
        causes.append(
            forbidden_field(
                f"{path}.uniqueItems",
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            )
        )
    if schema.get("properties") and schema.get("additionalProperties"):
        causes.append(
            forbidden_field(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
        )
    if schema.get("additionalProperties") is False:
        causes.append(forbidden_field(f"{path}.additionalProperties", "additionalProperties cannot be set to false"))
    if schema.get("type") == "array" and "items" not in schema:
        causes.append(required(f"{path}.items", "must be specified"))
    if schema.get("x-kubernetes-list-type") == "map" and not schema.get("x-kubernetes-list-map-keys"):
        causes.append(
            required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
        )
    if "pattern" in schema:
        try:
            re.compile(schema["pattern"])
        except re.error as error:
            causes.append(
                invalid_value(
                    f"{path}.pattern", schema["pattern"], f"must be a valid regular expression, but isn't: {error}"
                )
            )
    return causes


KEYWORD_TYPES: dict[str, tuple[type, ...]] = {
    "type": (str,),
    "format": (str,),
    "pattern": (str,),
    "properties": (dict,),
    "additionalProperties": (dict, bool),
    "items": (dict,),
    "required": (list,),
    "enum": (list,),
    "allOf": (list,),
    "anyOf": (list,),
    "oneOf": (list,),
    "not": (dict,),
    "nullable": (bool,),
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), (int, float)),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum", "uniqueItems"), (bool,)),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), (int,)),
    "x-kubernetes-list-type": (str,),
    "x-kubernetes-list-map-keys": (list,),
    "x-kubernetes-validations": (list,),
    **dict.fromkeys(
        (f"x-kubernetes-{word}" for word in ("int-or-string", "preserve-unknown-fields", "embedded-resource")), (bool,)
    ),
}
RULE_FIELDS: dict[str, type] = {
    **dict.fromkeys(("rule", "message", "messageExpression", "reason", "fieldPath"), str),
    "optionalOldSelf": bool,
}


def _wrong_keywords(schema: Json, path: str) -> list[Cause]:
    """Keywords with a value of the wrong type, nulls dropped first, so that everyone after may rely on the types."""
    for word in [word for word in KEYWORD_TYPES if word in schema and schema[word] is None]:
        del schema[word]
    causes = [
        invalid_value(f"{path}.{word}", schema[word], "has the wrong type")
        for word, types in KEYWORD_TYPES.items()
        if word in schema
        and (not isinstance(schema[word], types) or (isinstance(schema[word], bool) and bool not in types))
    ]
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or () if not causes else ()):
        if not isinstance(rule, dict) or not all(isinstance(rule.get(f, t()), t) for f, t in RULE_FIELDS.items()):
            causes.append(invalid_value(f"{path}.x-kubernetes-validations[{index}]", rule, "is not a rule"))
    for word in ("required", "x-kubernetes-list-map-keys"):
        if not causes and not all(isinstance(name, str) for name in schema.get(word) or ()):
            causes.append(invalid_value(f"{path}.{word}", schema[word], "is a list of names"))
    for word in ("allOf", "anyOf", "oneOf"):
        for index, part in enumerate(schema.get(word) or () if not causes else ()):
            causes += _wrong_part(part, f"{path}.{word}[{index}]")
    if not causes and "not" in schema:
        causes += _wrong_part(schema["not"], f"{path}.not")
    return causes


def _wrong_part(part: Any, path: str) -> list[Cause]:
    """Within allOf and the like only values are checked, so that no types are needed there."""
    if not isinstance(part, dict):
        return [invalid_value(path, None, "a schema is an object")]
    causes = _wrong_keywords(part, path)
    inner = [*(part.get("properties") or {}).items()] if not causes else []
    inner += [("items", part["items"])] if not causes and "items" in part else []
    for name, schema in inner:
        causes += _wrong_part(schema, f"{path}.{name}")
    return causes


RULES = Rules(shape=CustomResourceDefinition, fill=fill, wrong=wrong, counts_generations=True, must_say_version=True)
