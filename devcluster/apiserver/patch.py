"""JSON patch (RFC 6902) and JSON merge patch (RFC 7396).

The strategic merge patch that kubectl sends for built-in kinds is in `strategic.py`.
"""

from typing import Any

import jsonpatch
from jsonpointer import JsonPointerException

from devcluster.apiserver.errors import ApiError, bad_request

MOST_OPERATIONS = 10_000
"""The real server's bound, against a patch that copies without end."""


def merge_patch(document: Any, patch: Any) -> Any:
    """`document`, which is used up, with `patch` laid over it; null removes."""
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
        return jsonpatch.JsonPatch(patch).apply(document)
    except jsonpatch.InvalidJsonPatch as error:
        raise _not_applicable() from error
    except (jsonpatch.JsonPatchException, JsonPointerException, TypeError, ValueError, KeyError, IndexError) as error:
        raise _not_applicable() from error


def _not_applicable() -> ApiError:
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})
