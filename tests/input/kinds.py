"""The kinds, in each version that is served, with a document that uses most of their fields."""

from collections.abc import Mapping
from typing import NamedTuple

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.scale_requests import REQUESTS
from tests.frameworks.documents import (
    Document,
    changed,
    fioravanzo_job,
    jax_job,
    kubeflow_mx_job,
    mlkube_job,
    mpba_job,
    mpi_job,
    paddle_job,
    pytorch_job,
    tf_job,
    xgboost_job,
)
from tests.frameworks.full import FULL_IN, FULL_JOB, FULL_OUT, SECRET
from tests.frameworks.test_pytorchjob import IN_FULL
from tests.kit.trainer import train_job

RUN_POLICY = {
    "cleanPodPolicy": "All",
    "backoffLimit": 3,
    "activeDeadlineSeconds": 60,
    "ttlSecondsAfterFinished": 60,
    "suspend": False,
    "schedulingPolicy": {"minAvailable": 2},
    "managedBy": "",
}


def template(container: str, port: str) -> Document:
    """A pod template in which other programs than Muster have their parts too."""
    return {
        "metadata": {"labels": {"a": "b"}, "annotations": {"tuner-server-key": "d"}},
        "spec": {
            "initContainers": [{"name": "init", "image": "init", "resources": {}, "env": [{"name": "A"}]}],
            "containers": [
                {
                    "name": container,
                    "image": "train",
                    "command": ["python", "train.py"],
                    "env": [{"name": "TOKEN", "value": SECRET}],
                    "ports": [{"name": port, "containerPort": 9999}],
                    "resources": {"limits": {"memory": "1Gi"}},
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                },
                {"name": "logs", "image": "shipper"},
            ],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "dnsConfig": {"searches": ["example.com"]},
            "restartPolicy": "Always",
        },
    }


def _full(document: Document, container: str, port: str, policy: Document | None = RUN_POLICY) -> Document:
    """Its first role has the whole template; `policy` goes where most kinds have theirs."""
    spec = document["spec"]
    (entries,) = [spec] if isinstance(spec, list) else [found for name, found in spec.items() if "eplicaSpecs" in name]
    first = entries[0] if isinstance(entries, list) else next(iter(entries.values()))
    first["template"] = template(container, port)
    return changed(document, "spec.runPolicy", policy) if policy is not None else document


_TF = changed(tf_job(Chief=1, PS=1, Worker=2, Evaluator=1), "spec.successPolicy", "AllWorkers")
_MPI = changed(changed(mpi_job(), "spec.slotsPerWorker", 2), "spec.mainContainer", "mpi")
_POD = {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"a": "b"}, "containers": [{"name": "node"}]}}
TRAIN_JOB = train_job(
    trainer={
        "image": "train",
        "command": ["python", "train.py"],
        "args": ["--fast"],
        "env": [{"name": "TOKEN", "value": SECRET}],
        "numNodes": 2,
        "numProcPerNode": 2,
        "resourcesPerNode": {"limits": {"memory": "1Gi"}},
    },
    runtimePatches=[
        {
            "manager": "example.com/team",
            "trainingRuntimeSpec": {
                "template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": _POD}}}]}}
            },
        }
    ],
    suspend=False,
    activeDeadlineSeconds=60,
    managedBy="trainer.kubeflow.org/trainjob-controller",
) | {"metadata": {"name": "resnet", "namespace": "team-a", "uid": "uid-1", "generation": 1, "resourceVersion": "7"}}
_CHIEF = {"chief": {"replicaName": "SCHEDULER", "replicaIndex": 0}}
FULL: Mapping[tuple[str, str], Document] = {
    (document["apiVersion"], document["kind"]): document
    for document in (
        FULL_JOB,
        FULL_IN,
        FULL_OUT,
        _full(changed(_TF, "spec.enableDynamicWorker", True), "tensorflow", "tfjob-port"),
        _full(pytorch_job(policy=IN_FULL, Master=1, Worker=2), "pytorch", "pytorchjob-port"),
        _full(_MPI, "mpi", "mpi-port"),
        _full(mpi_job(v2beta1=True), "mpi", "mpi-port"),
        _full(kubeflow_mx_job(), "mxnet", "mxjob-port"),
        _full(jax_job(), "jax", "jaxjob-port"),
        _full(changed(paddle_job(Master=1, Worker=2), "spec.elasticPolicy", {"maxReplicas": 4}), "paddle", "master"),
        _full(xgboost_job(), "xgboost", "xgboostjob-port"),
        _full(changed(fioravanzo_job(), "spec.terminationPolicy", _CHIEF), "mxnet", "mx-port", None),
        _full(mpba_job(), "mxnet", "mx-port", None),
        TRAIN_JOB,
        _full(changed(mlkube_job(), "spec.replicaSpecs[0].PsRootPort", 9092), "mxnet", "mx-port", None),
    )
}


class Kind(NamedTuple):
    """One served version of a kind; scale requests have no framework."""

    resource: Resource[Custom]
    framework: Framework | None

    @property
    def full(self) -> Document:
        return FULL[self.resource.api_version, self.resource.kind]

    def __str__(self) -> str:
        return f"{self.resource.plural}.{self.resource.group}/{self.resource.version}"


KINDS: list[Kind] = [
    *(Kind(version.resource, version) for kind in BUILT_IN for version in (kind, *kind.others)),
    *(Kind(resource, None) for resource in REQUESTS.values()),
]
