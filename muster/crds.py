"""The CustomResourceDefinitions of all kinds, made from the frameworks' `definition`s and compared with installed ones.

`python -m muster.crds` (`make crds`) writes `crds/`.  A kind's `parse` checks again what its definition checks, because
older definitions accept anything.  `muster setup` removes nothing that stored objects or clients may use: no version,
field, conversion or short name.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.scale_requests import GROUP, REQUEST_DEFINITIONS
from shared.frameworks.schemas import ANYTHING, HISTORY, TIME, Definition, Document, Scale, Version
from shared.release import MARK, is_older, this_release

Installed = Mapping[str, Any]
"""A definition as an object of the API server."""

HEADER = "# Written by `python -m muster.crds` from shared/frameworks; the next run overwrites a change here.\n"


class Kind(NamedTuple):
    """The source of one CustomResourceDefinition."""

    resource: Resource[Custom]
    definition: Definition
    of_cluster: bool = False

    @property
    def file(self) -> str:
        """The file's name, with the group, because groups share kinds; kinds of the first group go without it."""
        group = "" if self.resource.group == GROUP else f".{self.resource.group}"
        return f"{self.resource.plural}{group}.yaml"


def render(kinds: Kinds = BUILT_IN) -> dict[str, str]:
    """File name → YAML, one file for each kind."""
    return {kind.file: HEADER + _yaml(definition(kind)) for kind in _all(kinds)}


def manifests(kinds: Kinds = BUILT_IN) -> list[dict[str, Any]]:
    """All definitions, as objects for the API server."""
    return [definition(kind) for kind in _all(kinds)]


def _all(kinds: Kinds) -> Iterator[Kind]:
    """The kinds with their definitions, the scale requests that name their jobs, and the runtimes that these name."""
    for framework in kinds:
        yield Kind(framework.resource, framework.definition)
        yield from (Kind(resource, REQUEST_DEFINITIONS[resource]) for resource in framework.requests)
        yield from (Kind(*runtime) for runtime in framework.runtimes)


def definition(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    resource, described = kind.resource, kind.definition
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Cluster" if kind.of_cluster else "Namespaced",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": described.singular or resource.kind.lower(),
                **_listed("shortNames", described.short_names),
                "categories": ["muster"],
            },
            "versions": [
                _version(described, Version(resource.version), storage=True),
                *(_version(described, version, storage=False) for version in described.versions),
            ],
        },
    }


def _listed(name: str, items: Sequence[Any]) -> Document:
    """A field with these items, or no field without any.

    The API server drops an empty list, so that every later apply of the same file would seem to be a change.
    """
    return {name: [*items]} if items else {}


def _version(described: Definition, version: Version, *, storage: bool) -> Document:
    return {
        "name": version.name,
        "served": True,
        "storage": storage,
        "subresources": {"status": {}} | ({"scale": _scale(described.scale)} if described.scale else {}),
        **_listed("additionalPrinterColumns", described.columns),
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "description": described.description,
                "required": ["spec"],
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"type": "object"},
                    "spec": described.spec if version.spec is None else version.spec,
                    "status": _status(described.status),
                },
                **_listed("x-kubernetes-validations", described.rules),
            }
        },
    }


def _scale(scale: Scale) -> dict[str, str]:
    return {
        "specReplicasPath": scale.spec,
        "statusReplicasPath": scale.status,
        "labelSelectorPath": scale.selector,
    }


def _status(schema: Document | None) -> Document:
    """The schema of a status, with the fields that Muster writes into the status of every kind."""
    known = ANYTHING if schema is None else schema
    when = TIME | {"description": "When the event of `history` happened."}
    ours = {"lastReconcileTime": when, "history": HISTORY}
    declared = known.get("properties", {})
    return known | {"properties": declared | {name: each for name, each in ours.items() if name not in declared}}


class PlainYaml(yaml.SafeDumper):
    """YAML without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(document: dict[str, Any]) -> str:
    text: str = yaml.dump(document, Dumper=PlainYaml, sort_keys=False, width=120)
    return text


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


def compare(installed: Installed | None, ours: Installed) -> Comparison:
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


def merged(installed: Installed, ours: Installed) -> dict[str, Any]:
    """The installed spec with this release's versions; additions of others stay."""
    spec, mine = installed["spec"], ours["spec"]
    known = {version["name"] for version in mine["versions"]}
    kept = [version for version in spec["versions"] if version["name"] not in known]
    # Objects may be stored in a version that only the installed definition has.
    stores = not any(version["storage"] for version in kept)
    versions = [version | {"storage": version["storage"] and stores} for version in mine["versions"]]
    return {**spec, "names": _names(spec["names"], mine["names"]), "versions": [*versions, *kept]}


def _names(theirs: Installed, mine: Installed) -> dict[str, Any]:
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


def _facts(spec: Installed) -> _Facts:
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


def _fields(schema: Installed, path: str) -> Iterator[tuple[str, Installed]]:
    yield path, schema
    for name, inner in (schema.get("properties") or {}).items():
        yield from _fields(inner, f"{path}.{name}")
    for keyword, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(inner := schema.get(keyword), Mapping):
            yield from _fields(inner, path + mark)


def _told(facts: Sequence[_Fact]) -> str:
    more = f" and {len(facts) - MOST_TOLD} more" if len(facts) > MOST_TOLD else ""
    return ", ".join(str(fact) for fact in facts[:MOST_TOLD]) + more


if __name__ == "__main__":
    for name, text in render().items():
        (Path("crds") / name).write_text(text)
