"""Which histories of a list a reader selects, by labels and fields, as Kubernetes' API has them in a query.  Pure.

`a=b,c!=d,e in (f,g),h notin (i),j,!k`: every part holds.  A part that refuses a value holds where the key is missing.
The labels of jobs are not in the log, so a history has labels of its own, and a selector of any other is refused: an
empty list would say that there is no such job.
"""

import re
from collections.abc import Mapping

import msgspec

from shared.errors import Refused
from shared.history_api import GROUP, Question

NAME, KIND, PHASE, GONE = (f"{GROUP}/{label}" for label in ("name", "kind", "phase", "gone"))
LABELS = (NAME, KIND, PHASE, GONE)
"""The labels of a history."""
FIELDS = ("metadata.name", "metadata.namespace")
"""The fields by which a list is selected, as those of any custom resource."""
LONGEST_VALUE = 63


def labels_of(name: str, kind: str, phase: str, *, gone: bool) -> dict[str, str]:
    """The labels of a job's history; a name that is too long for a label is left out, and a phase that is empty."""
    known = {NAME: name, KIND: kind, PHASE: phase, GONE: str(gone).lower()}
    return {label: value for label, value in known.items() if 0 < len(value) <= LONGEST_VALUE}


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


class Selection:
    """The selectors of a question."""

    def __init__(self, question: Question) -> None:
        """Raises `Refused` for a selector that is none, or names what a history does not have."""
        self._labels, self._fields = labels(question.labels), fields(question.fields)
        if strange := [each.key for each in self._labels if each.key not in LABELS]:
            words = f"a history has the labels {', '.join(LABELS)}, and not {strange[0][:64]}"
            raise Refused(f"{words}: the labels of jobs are not in the log", reason="Invalid")
        if strange := [each.key for each in self._fields if each.key not in FIELDS]:
            words = f"the field {strange[0][:64]!r} selects no histories; a list is selected by {' and '.join(FIELDS)}"
            raise Refused(f"{words}, or by the labels {', '.join(LABELS)}", reason="Invalid")

    def has(self, name: str, namespace: str, labels: Mapping[str, str]) -> bool:
        """True if the history of that name is selected."""
        about = dict(zip(FIELDS, (name, namespace), strict=True))
        return all(each.holds(labels) for each in self._labels) and all(each.holds(about) for each in self._fields)
