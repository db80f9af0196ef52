"""The three CustomResourceDefinitions as YAML: names, columns, subresources, and the rules of whole resources."""

from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel

from muster.crds.fields import rule
from muster.crds.models import ScaleInSpec, ScaleOutSpec, TrainingJobSpec
from muster.crds.status import ScaleInStatus, ScaleOutStatus, TrainingJobStatus
from muster.crds.structural import structural
from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.training import (
    JOB_NAME_PATTERN,
    LONGEST_REQUEST_NAME,
    SCALEINS,
    SCALEOUTS,
    TRAININGJOBS,
)
from shared.job.naming import LONGEST_JOB_NAME

HEADER = "# Written by `python -m muster.crds` from the models there; a change here would be overwritten.\n"

AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
PHASE = {"name": "Phase", "type": "string", "jsonPath": ".status.phase"}

# A status has to be written even for a resource that came before these rules; a new resource has none yet.
_KNOWN = "has(self.status)"

JOB_NAME_RULE = rule(
    f"{_KNOWN} || (size(self.metadata.name) <= {LONGEST_JOB_NAME}"
    f" && self.metadata.name.matches('^{JOB_NAME_PATTERN}$'))",
    f"name the job with at most {LONGEST_JOB_NAME} lower-case letters, digits and hyphens, beginning with a letter "
    "and not ending with a hyphen: its pods are named after it",
)
REQUEST_NAME_RULE = rule(
    f"{_KNOWN} || size(self.metadata.name) <= {LONGEST_REQUEST_NAME}",
    f"name the request with at most {LONGEST_REQUEST_NAME} characters: its workers carry the name in a label",
)


def _fixed(field: str, message: str) -> dict[str, str]:
    """A field that changes only while no pod depends on it; "" is the phase of a job whose spec was refused."""
    was, now = f"oldSelf.{field}", f"self.{field}"
    return rule(
        "(has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase in ['', 'Suspended'])"
        f" || (has({was}) == has({now}) && (!has({now}) || {now} == {was}))",
        message,
        field=f".{field}",
    )


JOB_RULES = (
    JOB_NAME_RULE,
    *(
        _fixed(
            f"spec.etReplicaSpecs.{role}.template",
            "a pod template cannot be changed unless the job is Suspended: its pods would differ; set spec.suspend "
            "to true first, or create the job again",
        )
        for role in ("launcher", "worker")
    ),
    _fixed(
        "spec.slotsPerWorker",
        "slotsPerWorker cannot be changed unless the job is Suspended: the launcher counts on it; set spec.suspend "
        "to true first, or create the job again",
    ),
)


class Kind(NamedTuple):
    """What a definition is made of, beside its resource."""

    resource: Resource[Custom]
    description: str
    spec: type[BaseModel]
    status: type[BaseModel]
    short_names: tuple[str, ...]
    rules: tuple[dict[str, str], ...]
    columns: tuple[dict[str, Any], ...]
    scale: dict[str, str] | None = None
    """Where `kubectl scale` and autoscalers find its size."""


def _wide(name: str, kind: str, path: str) -> dict[str, Any]:
    """A column of `-o wide`."""
    return {"name": name, "type": kind, "jsonPath": path, "priority": 1}


KINDS = (
    Kind(
        TRAININGJOBS,
        "An elastic training job: a launcher, and workers that come and go while it trains.",
        TrainingJobSpec,
        TrainingJobStatus,
        ("tj",),
        JOB_RULES,
        (
            PHASE,
            AGE,
            _wide("Workers", "string", ".status.workers"),
            _wide("Min", "integer", ".spec.etReplicaSpecs.worker.minReplicas"),
            _wide("Max", "integer", ".spec.etReplicaSpecs.worker.maxReplicas"),
            _wide("Restarts", "integer", ".status.restartCount"),
        ),
        {
            "specReplicasPath": ".spec.etReplicaSpecs.worker.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    ),
    Kind(
        SCALEINS,
        "A request for fewer workers of a TrainingJob; it is carried out once.",
        ScaleInSpec,
        ScaleInStatus,
        ("sin",),
        (REQUEST_NAME_RULE,),
        (PHASE, AGE),
    ),
    Kind(
        SCALEOUTS,
        "A request for more workers of a TrainingJob; it is carried out once.",
        ScaleOutSpec,
        ScaleOutStatus,
        ("sout",),
        (REQUEST_NAME_RULE,),
        (PHASE, AGE),
    ),
)


def render() -> dict[str, str]:
    """File name → YAML, one file for each kind."""
    return {f"{kind.resource.plural}.yaml": HEADER + _yaml(definition(kind)) for kind in KINDS}


def manifests() -> list[dict[str, Any]]:
    """All of them, for whoever creates them through the API."""
    return [definition(kind) for kind in KINDS]


def definition(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    resource = kind.resource
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
                "singular": resource.kind.lower(),
                "shortNames": [*kind.short_names],
                "categories": ["muster"],
            },
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}} | ({"scale": kind.scale} if kind.scale else {}),
                    "additionalPrinterColumns": [*kind.columns],
                    "schema": {"openAPIV3Schema": _schema(kind)},
                }
            ],
        },
    }


def _schema(kind: Kind) -> dict[str, Any]:
    return {
        "type": "object",
        "description": kind.description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(kind.spec),
            "status": structural(kind.status),
        },
        "x-kubernetes-validations": [*kind.rules],
    }


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(document: dict[str, Any]) -> str:
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120)
    return text
