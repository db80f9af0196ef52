"""The part of JSONPath that printer columns and the scale subresource use."""

import re
from functools import lru_cache
from typing import Any

STEP = re.compile(
    r"\.(?P<name>(?:[\w-]|\\\.|/)+)"
    r"|\[['\"](?P<quoted>[^'\"]+)['\"]\]"
    r"|\[(?P<index>-?\d+|\*)\]"
    r"|\[(?P<first>-?\d*):(?P<end>-?\d*)\]"
    r"|\[\?\(@\.(?P<field>[\w.-]+)\s*==\s*[\"'](?P<value>[^\"']*)[\"']\)\]"
)


@lru_cache(maxsize=512)
def _steps(path: str) -> tuple[dict[str, str | None], ...] | None:
    """The steps of a path; None if its syntax is not supported."""
    steps, at = [], 0
    while at < len(path):
        match = STEP.match(path, at)
        if not match:
            return None
        steps.append(match.groupdict())
        at = match.end()
    return tuple(steps)


def find(value: Any, path: str) -> Any:
    """The first value at the path, or None."""
    found = [value]
    for step in _steps(path) or ({"name": "\0"},):
        found = [inner for one in found for inner in _take(one, step)]
    return found[0] if found else None


def _take(value: Any, step: dict[str, str | None]) -> list[Any]:
    name = step.get("name") or step.get("quoted")
    if name:
        name = name.replace("\\.", ".")
        return [value[name]] if isinstance(value, dict) and name in value else []
    if not isinstance(value, list):
        return []
    first, end = step.get("first"), step.get("end")
    if first is not None:
        return value[int(first) if first else None : int(end) if end else None]
    index, field = step.get("index"), step.get("field")
    if index == "*":
        return value
    if index:
        return value[int(index) :][:1]
    return [item for item in value if _member(item, str(field)) == step.get("value")]


def _member(item: Any, path: str) -> str | None:
    for part in path.split("."):
        item = item.get(part) if isinstance(item, dict) else None
    return None if item is None else str(item)
