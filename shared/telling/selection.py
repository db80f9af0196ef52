"""Which histories of a list a reader selects, by labels and fields, as Kubernetes' API has them in a query.  Pure.

`a=b,c!=d,e in (f,g),h notin (i),j,!k`: every part holds.  A part that refuses a value holds where the key is missing.
A history has the labels of its job, and some of its own.
"""

import re
from collections.abc import Iterator, Mapping
from sys import intern

import msgspec

from shared.errors import Refused
from shared.history_api import GROUP, Question
from shared.telling.shown import Shown

NAME, KIND, PHASE, GONE = (f"{GROUP}/{label}" for label in ("name", "kind", "phase", "gone"))
LABELS = (NAME, KIND, PHASE, GONE)
"""The labels of a history beside those of its job."""
FIELDS = ("metadata.name", "metadata.namespace")
"""The fields by which a list is selected, as those of any custom resource."""
LONGEST_VALUE = 63
LONGEST, MOST_PARTS = 4096, 64
"""The most characters of a selector, and its most parts: each part is compared with each row of a list."""


def labels_of(name: str, kind: str, phase: str, own: Mapping[str, str], *, gone: bool) -> dict[str, str]:
    """The labels of a job's history: its `own` ones, and Muster's.

    A name that is too long for a label is left out, and a phase that is empty.
    """
    known = {NAME: name, KIND: kind, PHASE: phase, GONE: str(gone).lower()}
    return {**own, **{label: value for label, value in known.items() if 0 < len(value) <= LONGEST_VALUE}}


_KEY = r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?)?"
_THERE = re.compile(rf"(!?)\s*({_KEY})")
_EQUAL = re.compile(rf"({_KEY})\s*(==?|!=)\s*({_VALUE})")
_AMONG = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_PAIR = re.compile(f"{_KEY}={_VALUE}")


def as_text(own: Mapping[str, str]) -> str:
    """A job's labels as `a=b,c=d`, which takes little memory; what an administrator planted may be none."""
    return intern(",".join(filter(_PAIR.fullmatch, (f"{name}={value}" for name, value in own.items()))))


def from_text(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split(",")) if text else {}


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
    if not selector.strip():
        return ()
    parts = [*_parts(selector)] if len(selector) <= LONGEST else ()
    if not 0 < len(parts) <= MOST_PARTS:
        raise Refused(f"a selector has at most {MOST_PARTS} parts and {LONGEST} characters", reason="Invalid")
    return tuple(_label(part.strip()) for part in parts)


def _parts(selector: str) -> Iterator[str]:
    """What stands between the commas outside of brackets; in linear time, as anyone who reads lists writes it."""
    began = depth = 0
    for at, sign in enumerate(selector):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            yield selector[began:at]
            began = at + 1
    yield selector[began:]


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
        if all(re.fullmatch(_VALUE, value) for value in values):
            return Requirement(found[1], values, wanted=found[2] == "in")
    raise Refused(f"{part[:64]!r} is no part of a selector: write key=value or key in (a,b)", reason="Invalid")


class Selection:
    """The selectors of a question."""

    def __init__(self, question: Question) -> None:
        """Raises `Refused` for a selector that is none, or names a field that a history does not have."""
        self._labels, self._fields = labels(question.labels), fields(question.fields)
        if long := [value for each in self._labels for value in each.values or () if len(value) > LONGEST_VALUE]:
            words = f"a label has at most {LONGEST_VALUE} characters, and {long[0][:64]!r} has more"
            raise Refused(words, reason="Invalid")
        if strange := [each.key for each in self._fields if each.key not in FIELDS]:
            words = f"the field {strange[0][:64]!r} selects no histories; a list is selected by {' and '.join(FIELDS)}"
            raise Refused(f"{words}, or by labels, such as {PHASE}", reason="Invalid")

    def has(self, name: str, namespace: str, labels: Mapping[str, str]) -> bool:
        """True if the history of that name is selected."""
        about = dict(zip(FIELDS, (name, namespace), strict=True))
        return all(each.holds(labels) for each in self._labels) and all(each.holds(about) for each in self._fields)

    @property
    def by_labels(self) -> bool:
        """False if every label is selected, so that none needs to be read."""
        return bool(self._labels)

    def has_job(self, job: Shown) -> bool:
        """True if the labels of the job's history are selected."""
        known = labels_of(job.name, job.kind, job.phase, job.labels, gone=job.gone)
        return all(each.holds(known) for each in self._labels)
