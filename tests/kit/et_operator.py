"""Definitions as clusters have them that ran et-operator, reduced to what matters to a client that writes there.

Same kinds and columns, no rules, some defaults, fields of today's pods kept, every other unknown field dropped.  A
status needs `conditions` and `replicaStatuses`, a job's also `restartCount`; there is no `history` in it.
(Read in its `config/crd/bases`, v1alpha1.)
"""

from typing import Any

from shared.cluster import Manifest, Resource
from shared.cluster.objects import Custom
from tests.kit.definitions import a_definition, a_version

Schema = dict[str, Any]

GROUP = "kai.alibabacloud.com"
TEXT: Schema = {"type": "string"}
TIME: Schema = {"type": "string", "format": "date-time"}
COUNT: Schema = {"type": "integer", "format": "int32"}
TEXTS: Schema = {"type": "array", "items": TEXT}
OPEN: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _object(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties} | ({"required": [*required]} if required else {})


_CONDITION = _object(
    ("type", "status"), type=TEXT, status=TEXT, reason=TEXT, message=TEXT, lastUpdateTime=TIME, lastTransitionTime=TIME
)
_STATUS = {
    "phase": TEXT,
    "conditions": {"type": "array", "items": _CONDITION},
    "replicaStatuses": {"type": "object", "additionalProperties": _object(active=COUNT, succeeded=COUNT, failed=COUNT)},
    "currentScaler": TEXT,
    "startTime": TIME,
    "completionTime": TIME,
    "lastReconcileTime": TIME,
}
_ALWAYS = ("conditions", "replicaStatuses")
_REPLICA = {"replicas": COUNT, "restartPolicy": TEXT, "template": _object(metadata=OPEN, spec=OPEN)}
_REQUEST = {
    "selector": _object(name=TEXT),
    "script": TEXT,
    "timeout": COUNT,
    "env": {"type": "array", "items": _object(name=TEXT, value=TEXT)},
    "backoffLimit": COUNT,
}

_JOB = _object(
    ("etReplicaSpecs",),
    backoffLimit={**COUNT, "minimum": 0, "default": 6},
    cleanPodPolicy=TEXT,
    etReplicaSpecs=_object(
        ("launcher", "worker"),
        launcher=_object(**_REPLICA),
        worker=_object(**_REPLICA, minReplicas={**COUNT, "minimum": 1}, maxReplicas={**COUNT, "minimum": 1}),
    ),
    launcherAttachMode=TEXT,
    restartPolicy={**TEXT, "enum": ["Never", "OnFailure"], "default": "Never"},
    slotsPerWorker=COUNT,
)
_JOB_STATUS = _object(
    (*_ALWAYS, "restartCount"),
    **_STATUS,
    restartCount=COUNT,
    targetWorkers=TEXTS,
    currentWorkers=TEXTS,
    replicas=COUNT,
    workerSelector=TEXT,
)
_SCALE = {
    "specReplicasPath": ".spec.etReplicaSpecs.worker.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.workerSelector",
}


def definitions() -> list[dict[str, Any]]:
    """The three CustomResourceDefinitions."""
    return [
        _definition("TrainingJob", _JOB, _JOB_STATUS, scale=_SCALE),
        _definition(
            "ScaleIn",
            _object(**_REQUEST, toDelete=_object(count={"type": "integer"}, podNames=TEXTS)),
            _object(_ALWAYS, **_STATUS, toDeletePods=TEXTS),
        ),
        _definition(
            "ScaleOut",
            _object(**_REQUEST, toAdd=_object(count={"type": "integer"})),
            _object(_ALWAYS, **_STATUS, addPods=TEXTS),
        ),
    ]


def _definition(kind: str, spec: Schema, status: Schema, **subresources: Schema) -> Manifest:
    version = a_version(
        "v1alpha1",
        spec,
        status,
        storage=True,
        subresources={"status": {}, **subresources},
        additionalPrinterColumns=[
            {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    )
    version["schema"]["openAPIV3Schema"]["properties"] |= {
        "apiVersion": TEXT,
        "kind": TEXT,
        "metadata": {"type": "object"},
    }
    return a_definition(Resource(GROUP, "v1alpha1", f"{kind.lower()}s", kind, Custom), version, listKind=f"{kind}List")
