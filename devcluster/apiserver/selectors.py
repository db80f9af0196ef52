"""Label and field selectors: what a LIST or a watch is narrowed to."""

import re
from collections.abc import Callable, Mapping

from devcluster.apiserver.entry import Entry
from devcluster.apiserver.errors import bad_request

Selector = Callable[[Entry], bool]

LABEL = re.compile(
    r"""\s*(?:
      (?P<absent>!)?\s*(?P<key>[-\w./]+)\s*
      (?:(?P<operator>==|=|!=|<|>)\s*(?P<value>[-\w.]*)|(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?
    )\s*(?:,|$)""",
    re.VERBOSE,
)
FIELD = re.compile(r"([\w.\[\]/-]+)(==|!=|=)(.*)", re.DOTALL)
WHOLE_NUMBER = re.compile(r"-?\d{1,18}")


def selector(labels: str, fields: str, selectable: Mapping[str, str]) -> Selector | None:
    """Both selectors as one question about an entry, or None when everything is selected.

    `selectable` maps the field paths that the kind offers to those where the values are stored.
    """
    requirements = [*_label_requirements(labels.strip()), *_field_requirements(fields, selectable)]
    if not requirements:
        return None
    return lambda entry: all(requirement(entry) for requirement in requirements)


def _label_requirements(text: str) -> list[Selector]:
    requirements, at = [], 0
    while at < len(text):
        found = LABEL.match(text, at)
        if found is None:
            raise bad_request(f"unable to parse requirement: {text!r}")
        requirements.append(_label_requirement(found))
        at = found.end()
    return requirements


def _label_requirement(found: re.Match[str]) -> Selector:
    key, value, operator = found["key"], found["value"], found["operator"] or found["set"]
    values = {each.strip() for each in (found["values"] or "").split(",")}
    match operator:
        case None:
            return lambda entry: (key in entry.labels) != bool(found["absent"])
        case "in":
            return lambda entry: entry.labels.get(key) in values
        case "notin":
            return lambda entry: entry.labels.get(key) not in values
        case "!=":
            return lambda entry: entry.labels.get(key) != value
        case "<" | ">":
            if not WHOLE_NUMBER.fullmatch(value):
                raise bad_request(f"unable to parse requirement: {value!r} is not a whole number")
            return lambda entry: _compares(entry.labels.get(key, ""), operator, int(value))
        case _:
            return lambda entry: entry.labels.get(key) == value


def _compares(value: str, operator: str, bound: int) -> bool:
    if not WHOLE_NUMBER.fullmatch(value):
        return False
    return int(value) > bound if operator == ">" else int(value) < bound


def _field_requirements(text: str, selectable: Mapping[str, str]) -> list[Selector]:
    return [_field_requirement(part, selectable) for part in text.split(",") if part]


def _field_requirement(part: str, selectable: Mapping[str, str]) -> Selector:
    match = FIELD.fullmatch(part.strip())
    if not match:
        raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
    asked, operator, value = match[1], match[2], match[3]
    if asked not in selectable:
        raise bad_request(f"field label not supported: {asked}")
    path = selectable[asked]
    if operator == "!=":
        return lambda entry: entry.field(path) != value
    return lambda entry: entry.field(path) == value
