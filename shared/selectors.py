"""Label and field selectors, as Kubernetes' API has them in a query.  Pure.

`a=b,c!=d,e in (f,g),h notin (i),j,!k`: every part holds.  A part that refuses a value holds where the key is missing.
"""

import re
from collections.abc import Mapping

import msgspec

from shared.errors import Refused

_KEY = r"(?:[A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?)?"
_THERE = re.compile(rf"(!?)\s*({_KEY})")
_EQUAL = re.compile(rf"({_KEY})\s*(==?|!=)\s*({_VALUE})")
_AMONG = re.compile(rf"({_KEY})\s+(in|notin)\s*\(\s*({_VALUE}(?:\s*,\s*{_VALUE})*)\s*\)")
_PARTS = re.compile(r",(?![^()]*\))")
"""Commas outside of brackets."""


class Requirement(msgspec.Struct, frozen=True):
    """One part of a selector."""

    key: str
    values: tuple[str, ...] | None = None
    """The values that it names; None for any."""
    wanted: bool = True
    """False if it holds where the key has none of the values."""

    def holds(self, known: Mapping[str, str]) -> bool:
        found = self.key in known if self.values is None else known.get(self.key) in self.values
        return found == self.wanted


def labels(selector: str) -> tuple[Requirement, ...]:
    """The parts of a label selector; none for an empty one.  Raises `Refused` for what is none."""
    return tuple(_label(part.strip()) for part in _PARTS.split(selector)) if selector.strip() else ()


def fields(selector: str) -> tuple[Requirement, ...]:
    """The parts of a field selector, which knows `=`, `==` and `!=` alone.  Raises `Refused` for what is none."""
    found = labels(selector)
    if any(each.values is None for each in found) or "(" in selector:
        raise Refused(f"the field selector {selector[:64]!r} is none: write field=value", reason="Invalid")
    return found


def _label(part: str) -> Requirement:
    if found := _THERE.fullmatch(part):
        return Requirement(found[2], wanted=not found[1])
    if found := _EQUAL.fullmatch(part):
        return Requirement(found[1], (found[3],), wanted=found[2] != "!=")
    if found := _AMONG.fullmatch(part):
        values = tuple(value.strip() for value in found[3].split(","))
        return Requirement(found[1], values, wanted=found[2] == "in")
    raise Refused(f"{part[:64]!r} is no part of a selector: write key=value or key in (a,b)", reason="Invalid")
