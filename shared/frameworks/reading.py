"""Reads the fields of a resource with any JSON: a wrong value becomes a problem, never an exception.  Pure.

A null is an absent field, as in Kubernetes.  Messages say what to do and repeat no value of the user, because
it may be a secret.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar, get_args

from shared.job.naming import RESTART
from shared.job.spec import NO_EFFECT, CleanPodPolicy, Ignored, Problem, RestartPolicy

MOST_WORKERS = 7_000
"""The most workers: the hosts files of the longest names then fit into one ConfigMap (1 MiB)."""
LONGEST_POD_NAME = 63
"""Characters of a pod's name, which is also the name of a Service and of a host."""
MOST_SLOTS = 9_999
MOST_PORT = 65_535
LONGEST_RESTART = 64
"""The characters of the restart annotation that count."""
CLEAN_POD_POLICIES: tuple[CleanPodPolicy, ...] = get_args(CleanPodPolicy)
RESTART_POLICIES: tuple[RestartPolicy, ...] = get_args(RestartPolicy)
DEFAULT_BACKOFF_LIMIT = 6
DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
JOB_NAME_PATTERN = r"[a-z]([-a-z0-9]*[a-z0-9])?"
NAME_OF_VARIABLE = "give the variable a name without an equals sign, and no hyphen before it"


T = TypeVar("T")

GREATEST = 2**31 - 1
"""The largest number that the definitions accept (int32)."""


class Fields:
    """An object of a manifest.  All objects read from one root note their problems in one list."""

    def __init__(
        self, value: object, path: str, problems: list[Problem], without_effect: list[Ignored] | None = None
    ) -> None:
        self.members = value if isinstance(value, dict) else {}
        self._path = path
        self._problems = problems
        self.without_effect: list[Ignored] = [] if without_effect is None else without_effect
        """The fields without effect, of all objects read from one root."""
        if value is not None and not isinstance(value, dict):
            self.refuse("InvalidValue", "write an object here")

    def path(self, name: str = "") -> str:
        return ".".join(part for part in (self._path, name) if part)

    def has(self, name: str) -> bool:
        return self.members.get(name) is not None

    def names(self) -> list[str]:
        """The names of all present fields; a null is absent."""
        return [name for name, value in self.members.items() if value is not None]

    def raw(self, name: str) -> object:
        return self.members.get(name)

    def refuse(self, reason: str, message: str, name: str = "") -> None:
        self._problems.append(Problem(reason=reason, field=self.path(name), message=message))

    def ignore(self, name: str, message: str, effect: str = NO_EFFECT) -> None:
        """Note a field that the job has and Muster does not act upon."""
        found = Ignored(field=self.path(name), message=message, effect=effect)
        if found not in self.without_effect:
            self.without_effect.append(found)

    def ignore_all(self, fields: Mapping[str, str]) -> None:
        """Note those of `fields` that are there: paths, such as `runPolicy.suspend`, each with what to do instead."""
        for path, message in fields.items():
            *parts, name = path.split(".")
            parent = self
            for part in parts:
                parent = parent.part(part)
            if parent.has(name):
                parent.ignore(name, message)

    def note(self, problem: Problem) -> None:
        """Note a problem of something else than this object."""
        self._problems.append(problem)

    def part(self, name: str) -> "Fields":
        """The object of that name; an empty one if it is absent or no object."""
        return Fields(self.members.get(name), self.path(name), self._problems, self.without_effect)

    def parts(self, name: str) -> list["Fields"]:
        """The items of a list of objects; a null among them is a problem."""
        parts = [
            Fields(item, f"{self.path(name)}[{index}]", self._problems, self.without_effect)
            for index, item in enumerate(self._list(name))
        ]
        for part, item in zip(parts, self._list(name), strict=False):
            if item is None:
                part.refuse("InvalidValue", "write an object here")
        return parts

    def texts(self, name: str) -> list[str]:
        """The items of a list of strings; any other item is a problem."""
        items = self._list(name)
        if not all(isinstance(item, str) for item in items):
            self.refuse("InvalidValue", "write strings only in this list", name)
        return [item for item in items if isinstance(item, str)]

    def text_map(self, name: str) -> None:
        """Check that the values of an object are strings, as those of labels and annotations must be."""
        members = self.part(name).members
        if not all(isinstance(value, str) for value in members.values()):
            self.refuse("InvalidValue", "write strings only as values, in quotes", name)

    def text(self, name: str) -> str:
        return self._of_type(name, str, "a string here, in quotes")

    def boolean(self, name: str) -> bool:
        return self._of_type(name, bool, "true or false here, without quotes")

    def integer(
        self, name: str, *, least: int, most: int = GREATEST, reason: str = "InvalidValue", instead: str = ""
    ) -> int | None:
        """The whole number of that name; None if it is absent, wrong or out of bounds."""
        value = self.members.get(name)
        if value is None:
            return None
        # JSON has one kind of number: 2.0 is 2.  A boolean is an int only to Python.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        allowed = f"a whole number from {least} to {most}" if least < most else f"{least}"
        self.refuse(reason, instead or f"write {allowed}", name)
        return None

    def choice(self, name: str, choices: tuple[T, ...], default: T, *, reason: str) -> T:
        """The text of that name; an empty string counts as absent, as Go programs write it."""
        value = self.members.get(name)
        if value in (None, ""):
            return default
        for choice in choices:
            if isinstance(value, str) and value == choice:
                return choice
        self.refuse(reason, f"write one of {', '.join(map(str, choices))}, or leave it out for {default}", name)
        return default

    def _list(self, name: str) -> list[object]:
        return self._of_type(name, list, "a list here")

    def _of_type(self, name: str, kind: type[T], what: str) -> T:
        """The value of that name; the empty one of its type if it is absent or of another type."""
        value = self.members.get(name)
        if isinstance(value, kind):
            return value
        if value is not None:
            self.refuse("InvalidValue", f"write {what}", name)
        return kind()


def check_job_name(name: str, note: Callable[[Problem], None], *, most: int | None, digit: bool = False) -> None:
    """Refuse a job's name with more than `most` characters, if that is a bound, or one that no name of a pod can have.

    With `digit` it may begin with one: the names of its pods do not begin with it.
    """
    too_long = most is not None and len(name) > most
    if too_long or not re.fullmatch(DNS_LABEL if digit else JOB_NAME_PATTERN, name):
        message = (
            f"create the job again under a name of {f'at most {most} ' if too_long else ''}lower-case letters, digits "
            f"and hyphens that begins with a letter{' or digit' if digit else ''} and does not end with a hyphen: its "
            "pods are named after it"
        )
        note(Problem(reason="InvalidName", field="metadata.name", message=message))


def restart_of(annotations: Mapping[str, str] | None) -> str:
    """The value that asks for a restart whenever it changes."""
    return (annotations or {}).get(RESTART, "")[:LONGEST_RESTART]
