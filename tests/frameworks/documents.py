"""Manifests as users write them, and ways to spoil them."""

import copy
from typing import Any

import msgspec

from shared.cluster.objects import Custom

Document = dict[str, Any]

ABSENT = object()
"""As a value: take the field away."""


def training_job(name: str = "resnet") -> Document:
    """et-operator's own example, in short."""
    return {
        "apiVersion": "kai.alibabacloud.com/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "team-a", "uid": "uid-1", "generation": 1, "resourceVersion": "7"},
        "spec": {
            "cleanPodPolicy": "Running",
            "etReplicaSpecs": {
                "launcher": {
                    "replicas": 1,
                    "template": {
                        "spec": {
                            "containers": [
                                {"name": "main", "image": "horovod", "command": ["horovodrun", "python", "train.py"]}
                            ]
                        }
                    },
                },
                "worker": {
                    "replicas": 2,
                    "minReplicas": 1,
                    "maxReplicas": 9,
                    "template": {"spec": {"containers": [{"name": "main", "image": "horovod"}]}},
                },
            },
        },
    }


def pytorch_job(*, policy: Document | None = None, **replicas: int) -> Document:
    job = kubeflow_job("PyTorchJob", "pytorchReplicaSpecs", "pytorch", **(replicas or {"Master": 1, "Worker": 2}))
    return job if policy is None else changed(job, "spec.elasticPolicy", policy)


def scale_in(**to_delete: object) -> Document:
    return _request("ScaleIn", {"toDelete": to_delete or {"count": 1}})


def scale_out(**to_add: object) -> Document:
    return _request("ScaleOut", {"toAdd": to_add or {"count": 1}})


def changed(document: Document, path: str, value: object) -> Document:
    """A copy with another value at a path such as `spec.env[0].name`; objects on the way are made."""
    document = copy.deepcopy(document)
    *way, last = [int(step) if step.isdigit() else step for step in path.replace("[", ".").replace("]", "").split(".")]
    place: Any = document
    for step in way:
        place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
    if value is ABSENT:
        del place[last]
    else:
        place[last] = value
    return document


def custom(document: Document) -> Custom:
    return msgspec.convert(document, Custom)


def _request(kind: str, wish: Document) -> Document:
    return {
        "apiVersion": "kai.alibabacloud.com/v1alpha1",
        "kind": kind,
        "metadata": {"name": f"{kind.lower()}-1", "namespace": "team-a", "uid": "request-1"},
        "spec": {"selector": {"name": "resnet"}, **wish},
    }


def kubeflow_job(kind: str, replica_specs: str, container: str, name: str = "mnist", **replicas: int) -> Document:
    """A job of the training operator's, with so many replicas of each type."""
    template = {"spec": {"containers": [{"name": container, "image": "train", "command": ["python", "train.py"]}]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "team-a", "uid": "uid-1", "generation": 1, "resourceVersion": "7"},
        "spec": {
            replica_specs: {
                role: {"replicas": count, "template": copy.deepcopy(template)} for role, count in replicas.items()
            }
        },
    }


def tf_job(**replicas: int) -> Document:
    return kubeflow_job("TFJob", "tfReplicaSpecs", "tensorflow", **(replicas or {"Worker": 2}))
