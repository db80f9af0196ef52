"""TrainJobs and the runtimes that they name, as users write them."""

from typing import Any

import msgspec

from shared.cluster.objects import Custom
from shared.frameworks.runtimes import JobRuntime, read
from shared.frameworks.trainer_schemas import CLUSTER_RUNTIMES

Document = dict[str, Any]

API = "trainer.kubeflow.org/v1alpha1"
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"


def replicated_job(name: str, *, trains: bool = True, **container: Any) -> Document:
    """A replicated job of a runtime with the container `node`."""
    labels = {"metadata": {"labels": {ANCESTOR: "trainer"}}} if trains else {}
    pod = {"containers": [{"name": "node", "image": "train", **container}]}
    return {"name": name, "template": {**labels, "spec": {"template": {"spec": pod}}}}


def runtime(name: str, policy: Document, *jobs: Document, kind: str = "ClusterTrainingRuntime") -> Document:
    """A runtime with these replicated jobs, or with nodes alone."""
    template = {"spec": {"replicatedJobs": [*(jobs or (replicated_job("node"),))]}}
    return {
        "apiVersion": API,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"mlPolicy": policy, "template": template},
    }


def torch_runtime(**more: Any) -> Document:
    return runtime("torch-distributed", {"numNodes": 1, "torch": more})


def jax_runtime() -> Document:
    return runtime("jax-distributed", {"numNodes": 1, "jax": {}})


def mpi_runtime(**more: Any) -> Document:
    """As upstream's for DeepSpeed, in short."""
    policy = {"numNodes": 1, "mpi": {"numProcPerNode": 1, "mpiImplementation": "OpenMPI", **more}}
    sshd = replicated_job("node", trains=False, command=["/usr/sbin/sshd"])
    return runtime("mpi-distributed", policy, sshd, replicated_job("launcher"))


def train_job(name: str = "mnist", *, runtime: str = "torch-distributed", **spec: Any) -> Document:
    return {
        "apiVersion": API,
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": runtime}, **spec},
    }


def as_read(document: Document) -> JobRuntime:
    """A runtime as the watcher reads it."""
    return read(CLUSTER_RUNTIMES, msgspec.json.decode(msgspec.json.encode(document), type=Custom))


A_RUNTIME = as_read(torch_runtime())
