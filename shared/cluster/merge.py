"""JSON merge patch (RFC 7396) on data that is never changed in place."""

from collections.abc import Mapping
from typing import Any


def merged(document: Any, patch: Any) -> Any:
    """`document` with `patch` laid over it: null removes, anything but an object replaces.

    Both stay as they are; parts of them are shared with the result.
    """
    if not isinstance(patch, Mapping):
        return patch
    result = dict(document) if isinstance(document, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
