"""JSON merge patch (RFC 7396) on data that is never changed in place."""

from collections.abc import Mapping
from typing import Any


def merged(document: Any, patch: Any) -> Any:
    """`document` merged with `patch`: null removes, any other value that is no object replaces.

    Neither is changed; the result shares parts of both.
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
