"""The subject of an event, `<family>.<namespace>.<name>.<uid>.<author>.<type>`: the only place that spells it.  Pure.

`facts.team-a.resnet.7f3c.watcher.PodsObserved`.  A dot separates the tokens of a NATS subject, so a dot in a name is
written as an underscore, which no Kubernetes name has.
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, Self, get_args

Family = Literal["facts", "jobs"]
"""`facts` are observations; `jobs` are decisions."""

FAMILIES: tuple[Family, ...] = get_args(Family)

SEALED = "JobSealed"
"""The type of the last event of a history."""
_PEOPLE = ".audit.ChangeAttributed"


_NAMED = re.compile(rf"\b({'|'.join(FAMILIES)})\.(?!none\.)[^\s:;,]+")
"""A subject in a text; that of the genesis event names no job."""


class Subject(NamedTuple):
    """Which job an event is about, who wrote it, and its type."""

    family: Family
    namespace: str
    name: str
    uid: str
    author: str
    type: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """The subject that `text` spells.  Raises `ValueError` if it is none."""
        family, *tokens = text.split(".")
        if family not in FAMILIES or len(tokens) != len(cls._fields) - 1:
            raise ValueError(f"not the subject of an event: {text}")
        namespace, name, uid, author, tag = tokens
        return cls(family, namespace.replace("_", "."), name.replace("_", "."), uid, author, tag)

    def __str__(self) -> str:
        return f"{self.family}.{_token(self.namespace)}.{_token(self.name)}.{self.uid}.{self.author}.{self.type}"

    @property
    def scope(self) -> str:
        """The filter of an append's guard: a job's decisions, or the facts of one author about it; of a seal, all."""
        if self.type == SEALED:
            return _filter("*", self.namespace, self.name, self.uid)
        author = self.author if self.family == "facts" else "*"
        return _filter(self.family, self.namespace, self.name, self.uid, author)


def is_decision(text: str) -> bool:
    """True for the subject of a decision, false for that of a fact."""
    return text.startswith("jobs.")


def split(text: str) -> tuple[str, str, str]:
    """The prefix that a job's events of one family share, the author and the type; for the fold, to which speed counts.

    Raises `ValueError` if `text` has fewer parts.
    """
    prefix, author, tag = text.rsplit(".", 2)
    return prefix, author, tag


def filters(namespace: str = "*", name: str = "*", uid: str = "*", author: str = "*") -> tuple[str, ...]:
    """The NATS filters of the facts and the decisions with these values; `*` stands for any value."""
    return tuple(_filter(family, namespace, name, uid, author) for family in FAMILIES)


def of_chain(counted: Mapping[str, int]) -> int:
    """How many events of these subjects the chain counts: neither the seal nor who made a change."""
    return sum(number for text, number in counted.items() if not text.endswith((f".{SEALED}", _PEOPLE)))


def people(namespace: str = "*", name: str = "*", uid: str = "*") -> str:
    """The NATS filter of the events that say who made changes; `*` stands for any value."""
    return f"facts.{_token(namespace)}.{_token(name)}.{uid}{_PEOPLE}"


def names_people(text: str) -> bool:
    """True for the subject of such an event."""
    return text.endswith(_PEOPLE)


def of_type(namespace: str, tag: str) -> str:
    """The NATS filter of the events of a namespace and a type, by any author; `*` stands for any namespace or type."""
    return f"*.{_token(namespace)}.*.*.*.{tag}"


def seals(namespace: str = "*") -> str:
    """The NATS filter of the seals of a namespace, which the status service alone writes."""
    return f"jobs.{_token(namespace)}.*.*.status.{SEALED}"


def archived_under(namespace: str = "*", name: str = "*", uid: str = "*") -> str:
    """The subject of the archive for a job; `*` stands for any value."""
    return f"archive.{_token(namespace)}.{_token(name)}.{uid}"


def people_of(archived: str) -> str:
    """The subject of the archive for who made the changes of a history; of a filter the filter."""
    return f"{archived}.people"


def archived_of(text: str) -> tuple[str, str, str]:
    """The namespace, the name and the uid of a subject of the archive.  Raises `ValueError` if it is none."""
    family, *tokens = text.split(".")
    if family != "archive" or len(tokens) != 3:
        raise ValueError(f"not a subject of the archive: {text}")
    namespace, name, uid = tokens
    return namespace.replace("_", "."), name.replace("_", "."), uid


def matches(pattern: str, subject: str) -> bool:
    """Whether a NATS filter covers a subject: `*` is one token, a final `>` one or more."""
    wanted = pattern.split(".")
    tokens = subject.split(".")
    if wanted[-1] == ">":
        if len(tokens) < len(wanted):
            return False
        wanted.pop()
    elif len(tokens) != len(wanted):
        return False
    return all(want in ("*", token) for want, token in zip(wanted, tokens, strict=False))


def covering(patterns: tuple[str, ...]) -> str:
    """One NATS filter that covers everything that these cover, and as little else as possible; `>` without any."""
    if not patterns:
        return ">"
    first, *others = (pattern.split(".") for pattern in patterns)
    for other in others:
        first = _union(first, other)
    return ".".join(first)


def without_jobs(text: str) -> str:
    """A text in which no subject names a job: each has its family alone."""
    return _NAMED.sub(r"\1.*", text)


def _union(one: list[str], other: list[str]) -> list[str]:
    common: list[str] = []
    for mine, theirs in zip(one, other, strict=False):
        if ">" in (mine, theirs):
            return [*common, ">"]
        common.append(mine if mine == theirs else "*")
    return common if len(one) == len(other) else [*common[:-1], ">"]


def _filter(family: str, *values: str) -> str:
    tokens = [family, *map(_token, values)]
    while tokens[-1] == "*":
        tokens.pop()
    return ".".join([*tokens, ">"])


def _token(name: str) -> str:
    return name.replace(".", "_")
