"""Label and field selectors: what a LIST or a watch is narrowed to."""

import re
from collections.abc import Callable, Mapping

from devcluster.apiserver.entry import Entry
from devcluster.apiserver.errors import bad_request

Selector = Callable[[Entry], bool]

KEY = r"(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?"
PARTS = re.compile(r"(?:[^,()]|\([^()]*\))+")
SET = re.compile(rf"({KEY})\s+(in|notin)\s*\(([^()]*)\)")
EQUALS = re.compile(rf"({KEY})\s*(==|=|!=)\s*({VALUE})")
COMPARED = re.compile(rf"({KEY})\s*([<>])\s*(-?\d+)")
EXISTS = re.compile(rf"(!?)\s*({KEY})")
FIELD = re.compile(r"([\w.\[\]/-]+)(==|!=|=)(.*)", re.DOTALL)


def selector(labels: str, fields: str, selectable: Mapping[str, str]) -> Selector | None:
    """Both selectors as one question about an entry, or None when everything is selected.

    `selectable` maps the field paths that the kind offers to those where the values are stored.
    """
    requirements = [*_label_requirements(labels), *_field_requirements(fields, selectable)]
    if not requirements:
        return None
    return lambda entry: all(requirement(entry) for requirement in requirements)


def _label_requirements(text: str) -> list[Selector]:
    text = text.strip()
    if not text:
        return []
    parts = PARTS.findall(text)
    if ",".join(parts) != text:
        raise bad_request(f"unable to parse requirement: {text!r}")
    return [_label_requirement(part.strip()) for part in parts]


def _label_requirement(part: str) -> Selector:
    if match := SET.fullmatch(part):
        key, operator, values = match[1], match[2], {value.strip() for value in match[3].split(",")}
        if operator == "in":
            return lambda entry: entry.labels.get(key) in values
        return lambda entry: entry.labels.get(key) not in values
    if match := EQUALS.fullmatch(part):
        key, operator, value = match[1], match[2], match[3]
        if operator == "!=":
            return lambda entry: entry.labels.get(key) != value
        return lambda entry: entry.labels.get(key) == value
    if match := COMPARED.fullmatch(part):
        key, operator, bound = match[1], match[2], int(match[3])
        return lambda entry: _compares(entry.labels.get(key), operator, bound)
    if match := EXISTS.fullmatch(part):
        key, absent = match[2], bool(match[1])
        return lambda entry: (key in entry.labels) != absent
    raise bad_request(f"unable to parse requirement: {part!r}")


def _compares(value: str | None, operator: str, bound: int) -> bool:
    if value is None or not re.fullmatch(r"-?\d{1,18}", value):
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
