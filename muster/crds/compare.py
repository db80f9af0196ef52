"""Compares an installed definition with this release's: which one is newer, and what `muster setup` writes.  Pure.

`muster setup` removes nothing that stored objects or clients may use: no version, field, conversion or short name.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from shared.release import MARK, is_older, this_release

Document = Mapping[str, Any]

CATEGORY = "muster"
"""The category of all Muster's definitions since the first release; those of other operators lack it."""

MOST_TOLD = 3
"""The most fields that one line names."""

_OPEN = "x-kubernetes-preserve-unknown-fields"


class Verdict(Enum):
    """An installed definition compared with this release's."""

    MISSING = "not installed"
    SAME = "as this release makes it"
    OLDER = "older than this release"
    NEWER = "newer than this release"
    DIFFERENT = "neither older nor newer than this release"
    FOREIGN = "another operator's"


class Comparison(NamedTuple):
    verdict: Verdict
    why: str = ""
    """The evidence for the verdict; empty if the verdict needs none."""


def compare(installed: Document | None, ours: Document) -> Comparison:
    """Compare the `installed` object of the API server with `ours` from `manifests`."""
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
    """The installed spec with this release's versions; additions of others stay."""
    spec, mine = installed["spec"], ours["spec"]
    known = {version["name"] for version in mine["versions"]}
    kept = [version for version in spec["versions"] if version["name"] not in known]
    # Objects may be stored in a version that only the installed definition has.
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
    """A part of a definition that objects or clients may use."""

    version: str
    path: str
    type: str = ""

    def __str__(self) -> str:
        return f"{self.path} ({self.version})"


class _Facts:
    """All facts of a definition, and the objects in it that keep unknown fields."""

    def __init__(self, facts: Sequence[_Fact], spaces: Sequence[tuple[str, str]]) -> None:
        self._facts = facts
        self.known = frozenset(facts)
        self._spaces = spaces
        """Version and path of objects that keep unknown fields."""

    def lacking_in(self, other: "_Facts") -> list[_Fact]:
        """The facts that the other definition neither has nor keeps as unknown fields."""
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
