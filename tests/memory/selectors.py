"""Label selectors, as far as `key`, `!key`, `key=value`, `key!=value` and `key in (a,b)` go."""

import re
from collections.abc import Callable, Mapping

from shared.errors import Refused

Selects = Callable[[Mapping[str, str]], bool]

_REQUIREMENT = re.compile(
    r"""\s*(?:
      (?P<absent>!)?(?P<key>[-\w./]+)\s*
      (?:(?P<operator>==|=|!=)\s*(?P<value>[-\w.]*)|(?P<set>in|notin)\s*\((?P<values>[-\w.,\s]*)\))?
    )\s*(?:,|$)""",
    re.VERBOSE,
)


def selects(selector: str) -> Selects:
    """A function that matches labels; an empty selector matches everything."""
    requirements: list[Selects] = []
    at = 0
    while at < len(selector):
        found = _REQUIREMENT.match(selector, at)
        if found is None:
            raise Refused(f"read the label selector {selector!r}: it is not understood", reason="BadRequest")
        requirements.append(_requirement(found))
        at = found.end()
    return lambda labels: all(holds(labels) for holds in requirements)


def _requirement(found: re.Match[str]) -> Selects:
    key, value = found["key"], found["value"]
    if found["set"]:
        values = {each.strip() for each in found["values"].split(",")}
        if found["set"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found["operator"] == "!=":
        return lambda labels: labels.get(key) != value
    if found["operator"]:
        return lambda labels: labels.get(key) == value
    if found["absent"]:
        return lambda labels: key not in labels
    return lambda labels: key in labels
