"""Strategic merge patch, as far as kubectl needs it for built-in kinds: lists of objects merge by their key.

Merge keys are known by the name of the field, not by the type it belongs to, which is unambiguous
for the kinds this server stores.  Server-side apply uses the same merge, without keeping field ownership.
"""

import copy
from typing import Any

from devcluster.apiserver.errors import Json, bad_request

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
    "taints": "key",
    "addresses": "type",
    "podIPs": "ip",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
}
SETS = frozenset({"finalizers"})
ORDER, REMOVE, DIRECTIVE, RETAIN = "$setElementOrder/", "$deleteFromPrimitiveList/", "$patch", "$retainKeys"


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
    retained = patch.get(RETAIN)
    if isinstance(retained, list):
        current = {name: value for name, value in current.items() if name in retained}
    for name, value in fields.items():
        merged = None if value is None else _value(name, current.get(name), value)
        if merged is None:
            current.pop(name, None)
        else:
            current[name] = merged
    for name, value in patch.items():
        if name.startswith(REMOVE) and isinstance(value, list):
            field = name.removeprefix(REMOVE)
            current[field] = [item for item in _items(current, field) if item not in value]
        if name.startswith(ORDER) and isinstance(value, list):
            field = name.removeprefix(ORDER)
            if field in current:
                current[field] = _ordered(field, _items(current, field), value)
    return current


def _items(current: Json, field: str) -> list[Any]:
    items = current.get(field)
    return items if isinstance(items, list) else []


def merge_key(field: str, items: list[Any]) -> str | None:
    """The key by which items of this list are told apart, or None for a list that is replaced whole."""
    if not all(isinstance(item, dict) for item in items):
        return None
    if field == "ports":
        return "containerPort" if any("containerPort" in item for item in items) else "port"
    return MERGE_KEYS.get(field)


def _list(field: str, current: list[Any], patch: list[Any]) -> list[Any]:
    if field in SETS:
        return current + [item for item in patch if item not in current]
    key = merge_key(field, patch)
    if key is None:
        return copy.deepcopy(patch)
    if any(item.get(DIRECTIVE) == "replace" for item in patch):
        return [copy.deepcopy(item) for item in patch if item.get(DIRECTIVE) != "replace"]
    merged = [*current]
    for item in patch:
        at = next((i for i, one in enumerate(merged) if isinstance(one, dict) and one.get(key) == item.get(key)), None)
        result = _object(merged[at] if at is not None else {}, item)
        if at is None:
            merged += [result] if result is not None else []
        elif result is None:
            del merged[at]
        else:
            merged[at] = result
    return merged


def _ordered(field: str, items: list[Any], order: list[Any]) -> list[Any]:
    key = merge_key(field, items)

    def identity(item: Any) -> str:
        return repr(item.get(key)) if key and isinstance(item, dict) else repr(item)

    rank = {identity(item): index for index, item in enumerate(order)}
    return sorted(items, key=lambda item: rank.get(identity(item), len(rank)))
