"""The CustomResourceDefinitions as YAML: those of our own kinds from models, those of all others as their frameworks
describe them, each with the head of the history in its status.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import yaml

from muster.crds.models import ScaleInSpec, ScaleOutSpec, TrainingJobSpec
from muster.crds.status import History, ScaleInStatus, ScaleOutStatus, TrainingJobStatus
from muster.crds.structural import structural
from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.framework import Definition, Document, Scale, Version
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.schemas import AGE, ANYTHING, TIME, by_phase, fixed, name_rule, rule
from shared.frameworks.training import (
    JOB_NAME_PATTERN,
    LONGEST_REQUEST_NAME,
    SCALEINS,
    SCALEOUTS,
    TRAININGJOBS,
)
from shared.job.naming import LONGEST_JOB_NAME

HEADER = "# Written by `python -m muster.crds` from the models there; a change here would be overwritten.\n"
OF_FRAMEWORK = "# Written by `python -m muster.crds` from the kind's framework; a change here would be overwritten.\n"

PHASE = {"name": "Phase", "type": "string", "jsonPath": ".status.phase"}

JOB_NAME_RULE = name_rule(
    JOB_NAME_PATTERN,
    LONGEST_JOB_NAME,
    f"name the job with at most {LONGEST_JOB_NAME} lower-case letters, digits and hyphens, beginning with a letter "
    "and not ending with a hyphen: its pods are named after it",
)
REQUEST_NAME_RULE = rule(
    f"has(self.status) || size(self.metadata.name) <= {LONGEST_REQUEST_NAME}",
    f"name the request with at most {LONGEST_REQUEST_NAME} characters: its workers carry the name in a label",
)

# "" is the phase of a job whose spec was refused.
_FREE = by_phase("", "Suspended")

JOB_RULES = (
    JOB_NAME_RULE,
    *(
        fixed(
            f"spec.etReplicaSpecs.{role}.template",
            "a pod template cannot be changed unless the job is Suspended: its pods would differ; set spec.suspend "
            "to true first, or create the job again",
            within=f"spec.etReplicaSpecs.{role}",
            free=_FREE,
        )
        for role in ("launcher", "worker")
    ),
    fixed(
        "spec.slotsPerWorker",
        "slotsPerWorker cannot be changed unless the job is Suspended: the launcher counts on it; set spec.suspend "
        "to true first, or create the job again",
        within="spec",
        free=_FREE,
    ),
)


class Kind(NamedTuple):
    """One CustomResourceDefinition to be, and the file that it goes to."""

    resource: Resource[Custom]
    definition: Definition
    file: str
    header: str = HEADER


def _wide(name: str, kind: str, path: str) -> Document:
    """A column of `-o wide`."""
    return {"name": name, "type": kind, "jsonPath": path, "priority": 1}


TRAINING = Kind(
    TRAININGJOBS,
    Definition(
        "An elastic training job: a launcher, and workers that come and go while it trains.",
        structural(TrainingJobSpec),
        status=structural(TrainingJobStatus),
        short_names=("tj",),
        rules=JOB_RULES,
        columns=(
            PHASE,
            AGE,
            _wide("Workers", "string", ".status.workers"),
            _wide("Min", "integer", ".spec.etReplicaSpecs.worker.minReplicas"),
            _wide("Max", "integer", ".spec.etReplicaSpecs.worker.maxReplicas"),
            _wide("Restarts", "integer", ".status.restartCount"),
        ),
        scale=Scale(".spec.etReplicaSpecs.worker.replicas"),
    ),
    "trainingjobs.yaml",
)
REQUESTS = (
    Kind(
        SCALEINS,
        Definition(
            "A request for fewer workers of a TrainingJob; it is carried out once.",
            structural(ScaleInSpec),
            status=structural(ScaleInStatus),
            short_names=("sin",),
            rules=(REQUEST_NAME_RULE,),
            columns=(PHASE, AGE),
        ),
        "scaleins.yaml",
    ),
    Kind(
        SCALEOUTS,
        Definition(
            "A request for more workers of a TrainingJob; it is carried out once.",
            structural(ScaleOutSpec),
            status=structural(ScaleOutStatus),
            short_names=("sout",),
            rules=(REQUEST_NAME_RULE,),
            columns=(PHASE, AGE),
        ),
        "scaleouts.yaml",
    ),
)


def render(kinds: Kinds = BUILT_IN) -> dict[str, str]:
    """File name → YAML, one file for each kind."""
    return {kind.file: kind.header + _yaml(definition(kind)) for kind in _all(kinds)}


def manifests(kinds: Kinds = BUILT_IN) -> list[dict[str, Any]]:
    """All of them, for whoever creates them through the API."""
    return [definition(kind) for kind in _all(kinds)]


def _all(kinds: Kinds) -> Iterator[Kind]:
    """Those of the kinds, and of the requests that change the size of a TrainingJob."""
    for framework in kinds:
        resource, described = framework.resource, framework.definition
        if described is not None:
            yield Kind(resource, described, f"{resource.plural}.{resource.group}.yaml", OF_FRAMEWORK)
        elif resource == TRAININGJOBS:
            yield TRAINING
            yield from REQUESTS
        else:
            raise ValueError(f"{framework.name} describes no definition")


def definition(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    resource, described = kind.resource, kind.definition
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
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
    """A field with these items; without any it is left out, because the API server keeps no empty list, and every
    apply of the same file would seem to change something."""
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
    """A schema of a status with what Muster writes into that of every kind."""
    known = ANYTHING if schema is None else schema
    ours = {"lastReconcileTime": TIME, "history": structural(History)}
    declared = known.get("properties", {})
    return known | {"properties": declared | {name: each for name, each in ours.items() if name not in declared}}


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(document: dict[str, Any]) -> str:
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120)
    return text
