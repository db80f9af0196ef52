"""Manifests as users write them, and ways to spoil them."""

import copy
from typing import Any

import msgspec

from shared.cluster.objects import Custom
from shared.frameworks.framework import Framework
from shared.job.spec import JobSpec

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
    return msgspec.json.decode(msgspec.json.encode(document), type=Custom)


def spec_of(framework: Framework, document: Document) -> JobSpec:
    """What the kind reads in a job that can run."""
    spec = framework.parse(custom(document))
    assert isinstance(spec, JobSpec), spec
    return spec


def reasons_of(framework: Framework, document: Document) -> list[str]:
    """Why a job cannot run."""
    problems = framework.parse(custom(document))
    assert isinstance(problems, tuple), problems
    return [problem.reason for problem in problems]


def variables(pod: Document, container: int = 0) -> dict[str, str]:
    """The environment of a container, by name."""
    return {known["name"]: known["value"] for known in pod["spec"]["containers"][container].get("env", ())}


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


def mpi_job(*, v2beta1: bool = False, **replicas: int) -> Document:
    """As its definition hands it out: that of v2beta1 fills in where the keys are."""
    job = kubeflow_job("MPIJob", "mpiReplicaSpecs", "mpi", name="pi", **(replicas or {"Launcher": 1, "Worker": 2}))
    if v2beta1:
        job["apiVersion"] = "kubeflow.org/v2beta1"
        job["spec"]["sshAuthMountPath"] = "/root/.ssh"
    return job


def tf_job(**replicas: int) -> Document:
    return kubeflow_job("TFJob", "tfReplicaSpecs", "tensorflow", **(replicas or {"Worker": 2}))


def mx_job(group: str, spec: Any, *, kind: str = "MXJob", name: str = "mnist") -> Document:
    """A job of one of the MXNet operators; `group` with its version."""
    return {
        "apiVersion": group,
        "kind": kind,
        "metadata": {"name": name, "namespace": "team-a", "uid": "uid-1", "generation": 1, "resourceVersion": "7"},
        "spec": spec,
    }


def mx_replicas(type_field: str = "mxReplicaType", **replicas: int) -> list[Document]:
    """Entries of a list of replicas, in this order; scheduler, two servers and three workers when nothing is said."""
    template = {"spec": {"containers": [{"name": "mxnet", "image": "train"}], "restartPolicy": "OnFailure"}}
    return [
        {"replicas": count, type_field: role, "template": copy.deepcopy(template)}
        for role, count in (replicas or {"SCHEDULER": 1, "SERVER": 2, "WORKER": 3}).items()
    ]


def fioravanzo_job(name: str = "mnist", **replicas: int) -> Document:
    spec = {"RuntimeId": "1kkf", "replicaSpecs": mx_replicas(**replicas)}
    return mx_job("fioravanzo.org/v1alpha1", spec, name=name)


def mpba_job(name: str = "mnist", **replicas: int) -> Document:
    return mx_job("mpba.fbk.eu/v1", mx_replicas("replicaType", **replicas), name=name)


def mlkube_job(name: str = "mnist", mode: str = "dist", **replicas: int) -> Document:
    spec = {"RuntimeId": "1kkf", "jobMode": mode, "replicaSpecs": mx_replicas(**replicas)}
    return mx_job("mxnet.mlkube.io/v1beta1", spec, kind="MxJob", name=name)


def kubeflow_mx_job(mode: str = "MXTrain", **replicas: int) -> Document:
    roles = replicas or {"Scheduler": 1, "Server": 1, "Worker": 2}
    return changed(kubeflow_job("MXJob", "mxReplicaSpecs", "mxnet", **roles), "spec.jobMode", mode)


def of_each_kind(workers: int) -> list[Document]:
    """A job of every built-in kind with so many workers, and where it has servers two of them."""
    at = "spec.etReplicaSpecs.worker"
    return [
        changed(changed(training_job(), f"{at}.maxReplicas", workers), f"{at}.replicas", workers),
        tf_job(Chief=1, PS=2, Worker=workers),
        pytorch_job(Master=1, Worker=workers),
        mpi_job(Launcher=1, Worker=workers),
        kubeflow_mx_job(Scheduler=1, Server=2, Worker=workers),
        fioravanzo_job(SCHEDULER=1, SERVER=2, WORKER=workers),
        mpba_job(SCHEDULER=1, SERVER=2, WORKER=workers),
        mlkube_job(SCHEDULER=1, SERVER=2, WORKER=workers),
    ]
