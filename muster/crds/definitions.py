"""The CustomResourceDefinitions of jobs and of scale requests as YAML, with the head of the history in each status."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import yaml

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.definition import Definition, Document, Scale, Version
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.scale_requests import GROUP, REQUEST_DEFINITIONS
from shared.frameworks.schemas import ANYTHING, HISTORY, TIME

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
    scale = described.scale if version.scale is None else version.scale
    return {
        "name": version.name,
        "served": True,
        "storage": storage,
        "subresources": {"status": {}} | ({"scale": _scale(scale)} if scale else {}),
        **_listed("additionalPrinterColumns", described.columns if version.columns is None else version.columns),
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
                    "status": _status(described.status if version.status is None else version.status),
                },
                **_listed("x-kubernetes-validations", described.rules if version.rules is None else version.rules),
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


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(document: dict[str, Any]) -> str:
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120)
    return text
