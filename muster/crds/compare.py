"""Compares an installed definition with this release's: which is newer, and what `muster setup` would write.  Pure.

`muster setup` never removes what stored objects or clients may use: a version, a field, a conversion, a short name.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from shared.release import MARK, is_older, this_release

Document = Mapping[str, Any]

CATEGORY = "muster"
"""Every definition of ours has it since the first release; it tells them from those of other operators."""

MOST_TOLD = 3
"""Fields that one line names."""

_OPEN = "x-kubernetes-preserve-unknown-fields"


class Verdict(Enum):
    """How an installed definition is to ours."""

    MISSING = "not installed"
    SAME = "as this release makes it"
    OLDER = "older than this release"
    NEWER = "newer than this release"
    DIFFERENT = "neither older nor newer than this release"
    FOREIGN = "another operator's"


class Comparison(NamedTuple):
    verdict: Verdict
    why: str = ""
    """By what it is seen; empty where the verdict says it all."""


def compare(installed: Document | None, ours: Document) -> Comparison:
    """`installed` is the whole object as the API server gives it, `ours` as `manifests` gives it."""
    if installed is None:
        return Comparison(Verdict.MISSING)
    spec = installed["spec"]
    if CATEGORY not in (spec["names"].get("categories") or ()):
        return Comparison(Verdict.FOREIGN, f"it is not of the category {CATEGORY}")
    if merged(installed, ours) == spec:
        return Comparison(Verdict.SAME)
    mark = ((installed.get("metadata") or {}).get("annotations") or {}).get(MARK, "")
    if is_older(this_release(), mark):
        return Comparison(Verdict.NEWER, f"release {mark} made it, and this is {this_release()}")
    theirs, mine = _facts(spec), _facts(ours["spec"])
    versions = {version["name"] for version in ours["spec"]["versions"]}
    lost = [fact for fact in theirs.lacking_in(mine) if fact.version in versions]
    gained = mine.lacking_in(theirs)
    if not lost:
        return Comparison(Verdict.OLDER, f"it lacks {_told(gained)}" if gained else "")
    if gained:
        return Comparison(Verdict.DIFFERENT, f"it has {_told(lost)}, and lacks {_told(gained)}")
    if mark and is_older(mark, this_release()):
        return Comparison(Verdict.DIFFERENT, f"release {mark} made it, with {_told(lost)}, which this one lacks")
    return Comparison(Verdict.NEWER, f"it has {_told(lost)}")


def merged(installed: Document, ours: Document) -> dict[str, Any]:
    """The installed spec with our versions in it; what others added to it stays."""
    spec, mine = installed["spec"], ours["spec"]
    known = {version["name"] for version in mine["versions"]}
    kept = [version for version in spec["versions"] if version["name"] not in known]
    # What is stored in a version of theirs stays there.
    stores = not any(version["storage"] for version in kept)
    versions = [version | {"storage": version["storage"] and stores} for version in mine["versions"]]
    return {**spec, "names": _names(spec["names"], mine["names"]), "versions": [*versions, *kept]}


def _names(theirs: Document, mine: Document) -> dict[str, Any]:
    names = {**theirs, **mine}
    for listed in ("shortNames", "categories"):
        if united := dict.fromkeys([*(mine.get(listed) or ()), *(theirs.get(listed) or ())]):
            names[listed] = [*united]
    return names


class _Fact(NamedTuple):
    """Something that objects may have, or clients may use."""

    version: str
    path: str
    type: str = ""

    def __str__(self) -> str:
        return f"{self.path} ({self.version})"


class _Facts:
    """All of a definition's, and where it lets anything through."""

    def __init__(self, facts: Sequence[_Fact], spaces: Sequence[tuple[str, str]]) -> None:
        self._facts = facts
        self.known = frozenset(facts)
        self._spaces = spaces
        """Version and path of objects that keep unknown fields."""

    def lacking_in(self, other: "_Facts") -> list[_Fact]:
        """Those that the other one has not, nor keeps unasked."""
        return [fact for fact in self._facts if fact not in other.known and not other.keeps(fact)]

    def keeps(self, fact: _Fact) -> bool:
        return any(fact.version == version and fact.path.startswith(path) for version, path in self._spaces)


def _facts(spec: Document) -> _Facts:
    facts: list[_Fact] = []
    spaces: list[tuple[str, str]] = []
    for version in spec["versions"]:
        name = version["name"]
        facts += [_Fact(name, f"version {name}")] if version["served"] else []
        facts += [_Fact(name, f"subresource {each}") for each in version.get("subresources") or ()]
        for path, schema in _fields(version["schema"]["openAPIV3Schema"], ""):
            facts.append(_Fact(name, path or ".", schema.get("type", "any")))
            if schema.get(_OPEN):
                facts.append(_Fact(name, f"{path}.*"))
                spaces.append((name, f"{path}."))
    return _Facts(facts, spaces)


def _fields(schema: Document, path: str) -> Iterator[tuple[str, Document]]:
    yield path, schema
    for name, inner in (schema.get("properties") or {}).items():
        yield from _fields(inner, f"{path}.{name}")
    for keyword, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(inner := schema.get(keyword), Mapping):
            yield from _fields(inner, path + mark)


def _told(facts: Sequence[_Fact]) -> str:
    more = f" and {len(facts) - MOST_TOLD} more" if len(facts) > MOST_TOLD else ""
    return ", ".join(str(fact) for fact in facts[:MOST_TOLD]) + more
