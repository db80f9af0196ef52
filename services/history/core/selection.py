"""Which histories of a list a reader selects, by labels and fields.  Pure.

The labels of jobs are not in the log, so a history has labels of its own, and a selector of any other is refused: an
empty list would say that there is no such job.
"""

from collections.abc import Mapping

from shared.errors import Refused
from shared.history_api import GROUP, Question
from shared.selectors import fields, labels

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
