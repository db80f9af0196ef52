"""Whom the history service believes, and which histories a reader selects.  Pure.

The ConfigMap `kube-system/extension-apiserver-authentication` has the authority of kube-apiserver's front proxy, its
names, and the headers with the user.  kube-apiserver has authenticated the user, and proves by its client certificate
that it is kube-apiserver.

Labels and fields select as Kubernetes' API has them in a query: of `a=b,c!=d,e in (f,g),h notin (i),j,!k` every part
holds.  A part that refuses a value holds where the key is missing.  The labels of jobs are not in the log, so a history
has labels of its own, and a selector of any other is refused: an empty list would say that there is no such job.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any
from unicodedata import category
from urllib.parse import unquote

import msgspec

from shared.errors import Refused
from shared.history_api import GROUP, Question, Share, share_of
from shared.untrusted import MALFORMED

AUTHENTICATION = "kube-system/extension-apiserver-authentication"
"""The ConfigMap that names the front proxy."""
MOST_GROUPS = 1000
MOST_WORDS = 4096
"""The most characters of a user's name, uid, group or extra."""


class Person(msgspec.Struct, frozen=True):
    """Whom kube-apiserver has authenticated."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def share(self) -> Share:
        return share_of(self.name)


class Trust(msgspec.Struct, frozen=True):
    """Which front proxy is believed."""

    authority: str
    """The authority of its client certificate, in PEM."""
    names: tuple[str, ...] = ()
    """The common names that the certificate may have; none for any."""
    user_headers: tuple[str, ...] = ("X-Remote-User",)
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)

    @classmethod
    def read(cls, data: Mapping[str, str]) -> "Trust":
        """The trust that the ConfigMap says.  Raises `Refused` if it names no front proxy."""
        authority = data.get("requestheader-client-ca-file", "")
        if not authority.strip():
            raise Refused(
                f"{AUTHENTICATION} names no authority of a front proxy; start kube-apiserver with"
                " --requestheader-client-ca-file",
                reason="NoFrontProxy",
            )
        return cls(
            authority,
            names=_words(data, "allowed-names"),
            user_headers=_words(data, "username-headers"),
            uid_headers=_words(data, "uid-headers"),
            group_headers=_words(data, "group-headers"),
            extra_prefixes=_words(data, "extra-headers-prefix"),
        )

    def trusts(self, common_name: str) -> bool:
        """True if the certificate of this name, which `authority` has issued, is the front proxy's."""
        return not self.names or common_name in self.names

    def person(self, common_name: str | None, headers: Iterable[tuple[str, str]]) -> Person | None:
        """The user of a request; None if it does not come from the front proxy, or names no user.

        `common_name` is that of the client's certificate, which `authority` has issued; None without one.  The front
        proxy sends one user, and one header for each group and for each value of an extra, whose key is in lower case
        and percent-encoded.  Raises `Refused` for what it cannot have sent.
        """
        if common_name is None or not self.trusts(common_name):
            return None
        known = [(name.lower(), value) for name, value in headers]
        names = _values(known, self.user_headers)
        if not names:
            return None
        uids, groups = _values(known, self.uid_headers), _values(known, self.group_headers)
        extra: dict[str, list[str]] = {}
        for prefix in self.extra_prefixes:
            for name, value in known:
                if name.startswith(prefix.lower()):
                    extra.setdefault(unquote(name[len(prefix) :], errors="surrogateescape"), []).append(value)
        if len(names) > 1 or len(uids) > 1 or not names[0]:
            raise Refused("the request has to name one user, and at most one uid", reason="Invalid")
        if len(groups) > MOST_GROUPS:
            raise Refused(f"a user may be in {MOST_GROUPS} groups, and not in {len(groups)}", reason="Invalid")
        for word in (*names, *uids, *groups, *extra, *chain.from_iterable(extra.values())):
            _must_be_words(word)
        return Person(
            names[0],
            uid=uids[0] if uids else "",
            groups=tuple(filter(None, groups)),
            extra=tuple((key, tuple(values)) for key, values in sorted(extra.items())),
        )


def _must_be_words(word: str) -> None:
    if len(word) > MOST_WORDS:
        words = f"a user's name, uid, group or extra has at most {MOST_WORDS} characters, and not {len(word)}"
        raise Refused(words, reason="Invalid")
    # What is not UTF-8 comes as surrogates.
    if any(category(character) in ("Cc", "Cs") for character in word):
        words = f"the request names a user in characters that are none: {word[:64]!a}"
        raise Refused(words, reason="Invalid")


def _values(known: Sequence[tuple[str, str]], names: Iterable[str]) -> list[str]:
    return [value for wanted in names for name, value in known if name == wanted.lower()]


def _words(data: Mapping[str, str], what: str) -> tuple[str, ...]:
    key = f"requestheader-{what}"
    try:
        found: Any = msgspec.json.decode(data.get(key) or "[]", type=tuple[str, ...])
    except MALFORMED as error:
        raise Refused(f"{AUTHENTICATION}: {key} is no list of words: {error}", reason="NoFrontProxy") from error
    return tuple(found)


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
