"""JSON patch (RFC 6902), JSON merge patch (RFC 7396), and the strategic merge patch that kubectl sends.

The strategic merge patch has what kubectl needs for built-in kinds: lists of objects merge by their key.  The merge key
depends on the name of the field alone, not on its type: the kinds of this server have no two keys for one name.
The order that a patch asks for and the keys that it retains are ignored.
Server-side apply uses the same merge, without field ownership.
"""

import copy
from types import MappingProxyType
from typing import Any

import jsonpatch
from jsonpointer import JsonPointerException

from devcluster.apiserver.errors import ApiError, Json, bad_request

MOST_OPERATIONS = 10_000
"""The real server's limit: each operation of a patch may double the document."""


def merge_patch(document: Any, patch: Any) -> Any:
    """`document`, changed in place, with `patch` merged into it; null removes a member."""
    if not isinstance(patch, dict):
        return without_nulls(patch)
    merged = document if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def without_nulls(value: Any) -> Any:
    """A copy without the nulls in any object of a list: the real server drops them there too."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def json_patch(document: Any, patch: Any) -> Any:
    """`document` with the operations of `patch` done one after the other."""
    if not isinstance(patch, list) or not all(isinstance(operation, dict) for operation in patch):
        raise bad_request("error decoding patch: a JSON patch is an array of operations")
    if len(patch) > MOST_OPERATIONS:
        raise ApiError(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {len(patch)}",
        )
    if not all(isinstance(operation.get(name, ""), str) for operation in patch for name in ("op", "path", "from")):
        raise bad_request("error decoding patch: op, path and from are strings")
    try:
        return _JsonPatch(patch).apply(document)
    except (jsonpatch.JsonPatchException, JsonPointerException, TypeError, ValueError, KeyError, IndexError) as error:
        message = "the server rejected our request due to an error in our request"
        raise ApiError(422, "Invalid", message, {}) from error


class _Replace(jsonpatch.ReplaceOperation):
    """`replace` that also adds a missing member of an object, as the real server does."""

    def apply(self, obj: Any) -> Any:
        parent, member = self.pointer.to_last(obj)
        if member is None or not isinstance(parent, dict):
            return super().apply(obj)
        parent[member] = self.operation["value"]
        return obj


class _JsonPatch(jsonpatch.JsonPatch):
    operations = MappingProxyType({**jsonpatch.JsonPatch.operations, "replace": _Replace})


MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "secrets": "name",
    "hostAliases": "ip",
    "ownerReferences": "uid",
    "conditions": "type",
    "addresses": "type",
    "podIPs": "ip",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
}
SETS = frozenset({"finalizers"})
REMOVE, DIRECTIVE = "$deleteFromPrimitiveList/", "$patch"


def strategic_merge_patch(document: Json, patch: Any) -> Json:
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: a strategic merge patch is an object")
    merged = _object(document, patch)
    return merged if merged is not None else {}


def _value(field: str, current: Any, patch: Any) -> Any:
    if isinstance(patch, dict):
        return _object(current if isinstance(current, dict) else {}, patch)
    if isinstance(patch, list):
        return _list(field, current if isinstance(current, list) else [], patch)
    return patch


def _object(current: Json, patch: Json) -> Json | None:
    """The merged object, or None when the patch deletes it."""
    directive = patch.get(DIRECTIVE)
    if directive == "delete":
        return None
    fields = {name: value for name, value in patch.items() if not name.startswith("$")}
    if directive == "replace":
        return copy.deepcopy(fields)
    for name, value in fields.items():
        # A field without an old value gets the patch's.
        merged = _value(name, current[name], value) if current.get(name) is not None else _fresh(value)
        if merged is None:
            current.pop(name, None)
        else:
            current[name] = merged
    for name, value in patch.items():
        if name.startswith(REMOVE) and isinstance(value, list):
            field = name.removeprefix(REMOVE)
            items = current.get(field)
            current[field] = [item for item in items if item not in value] if isinstance(items, list) else []
    return current


def _fresh(value: Any) -> Any:
    """A new value from a patch, without nulls and directives."""
    if isinstance(value, dict):
        if value.get(DIRECTIVE) == "delete":
            return None
        fresh = {name: _fresh(inner) for name, inner in value.items() if not name.startswith("$")}
        return {name: inner for name, inner in fresh.items() if inner is not None}
    if isinstance(value, list):
        return [_fresh(item) for item in value if not (isinstance(item, dict) and DIRECTIVE in item)]
    return value


def merge_key(field: str, items: list[Any]) -> str | None:
    """The merge key of this list's items, or None for a list that is replaced as a whole."""
    if not all(isinstance(item, dict) for item in items):
        return None
    if field == "ports":
        return "containerPort" if any("containerPort" in item for item in items) else "port"
    return MERGE_KEYS.get(field)


def _list(field: str, current: list[Any], patch: list[Any]) -> list[Any]:
    """The merged list: new items come first, and the others keep their places."""
    if field in SETS:
        return current + [item for item in patch if item not in current]
    key = merge_key(field, patch)
    if key is None:
        return copy.deepcopy(patch)
    if any(item.get(DIRECTIVE) == "replace" for item in patch):
        return [copy.deepcopy(item) for item in patch if item.get(DIRECTIVE) != "replace"]
    merged, new = [*current], []
    for item in patch:
        if key not in item:
            raise ApiError(500, "", f"map: {item} does not contain declared merge key: {key}")
        at = next((i for i, one in enumerate(merged) if isinstance(one, dict) and one.get(key) == item[key]), None)
        result = _object(merged[at] if at is not None else {}, item)
        if at is not None:
            merged[at : at + 1] = [result] if result is not None else []
        elif result is not None:
            new.append(result)
    return new + merged
