"""Queues, and jobs in them."""

import json
from typing import Any

from shared.frameworks.queueing import QUEUE
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.operator import SHELL, Operator
from tests.kit.trainer import replicated_job, runtime, train_job

API = "kueue.x-k8s.io/v1beta2"
POOL = "test.muster.dev/pool"
PRIORITY = "kueue.x-k8s.io/priority-class"
TOLERATION = {"key": "test.muster.dev/busy", "operator": "Exists", "effect": "NoSchedule"}
TERMINATION_SECONDS = 2
"""How long a pod takes to end when it is told to."""

FOR_EVER = f"trap 'sleep {TERMINATION_SECONDS}; exit 0' TERM; trap 'exit 0' USR1; while :; do sleep 0.1; done"


def queues(cpu: int | str) -> tuple[dict[str, Any], ...]:
    """A queue `team-a` with so many processors, where a job of higher priority preempts others."""
    flavor = {"name": "pool", "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    kinds: list[tuple[str, str, dict[str, Any]]] = [
        ("ResourceFlavor", "pool", {"spec": {"nodeLabels": {POOL: "a"}, "tolerations": [TOLERATION]}}),
        (
            "ClusterQueue",
            "all",
            {
                "spec": {
                    "namespaceSelector": {},
                    "preemption": {"withinClusterQueue": "LowerPriority"},
                    "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}],
                }
            },
        ),
        ("LocalQueue", "team-a", {"spec": {"clusterQueue": "all"}}),
        ("WorkloadPriorityClass", "urgent", {"value": 1000}),
    ]
    return tuple(
        {
            "apiVersion": API,
            "kind": kind,
            "metadata": {"name": name} | ({"namespace": "default"} if kind == "LocalQueue" else {}),
        }
        | rest
        for kind, name, rest in kinds
    )


async def give(operator: Operator, cpu: str) -> None:
    """Give the queue so much quota from now on."""
    path = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota"
    patch = json.dumps([{"op": "replace", "path": path, "value": cpu}])
    await operator.kubectl("patch", "clusterqueue", "all", "--type=json", "-p", patch)


def template(container: str, cpu: str = "1") -> dict[str, Any]:
    """A pod that asks for one processor, or a part of it."""
    main = {"name": container, "image": SHELL, "command": ["sh", "-c", FOR_EVER]}
    return {"spec": {"containers": [main | {"resources": {"requests": {"cpu": cpu}}}]}}


def a_runtime(name: str = "torch-distributed", policy: dict[str, Any] | None = None, *jobs: str) -> dict[str, Any]:
    """A runtime whose pods ask for one processor and run for ever; its replicated jobs are the nodes, or these."""
    main = template("node")["spec"]["containers"][0]
    replicated = [
        replicated_job(job, trains=job == (jobs or ("node",))[-1], **{key: main[key] for key in main if key != "name"})
        for job in jobs or ("node",)
    ]
    return runtime(name, policy or {"torch": {}}, *replicated)


def a_train_job(name: str, *, nodes: int = 2, urgent: bool = False, **spec: Any) -> dict[str, Any]:
    """A TrainJob in the queue."""
    made = train_job(name, trainer={"numNodes": nodes}, **spec)
    made["metadata"] |= {"namespace": "default", "labels": _labels(urgent=urgent)}
    return made


def _labels(*, urgent: bool) -> dict[str, str]:
    return {QUEUE: "team-a"} | ({PRIORITY: "urgent"} if urgent else {})


def a_job(
    kind: str, name: str, *, workers: int = 2, urgent: bool = False, version: str = "", cpu: str = "1"
) -> dict[str, Any]:
    """A job in the queue with pods for ever; an MPIJob has a launcher, and one worker less."""
    if kind == "TrainJob":
        return a_train_job(name, nodes=workers, urgent=urgent)
    container = {"PyTorchJob": "pytorch", "TFJob": "tensorflow", "MPIJob": "mpi"}[kind]
    replica = {"restartPolicy": "Never", "template": template(container, cpu)}
    roles = {"Worker": replica | {"replicas": workers}}
    if kind == "MPIJob":
        roles = {"Launcher": replica | {"replicas": 1}, "Worker": replica | {"replicas": workers - 1}}
    spec: dict[str, Any] = {f"{container}ReplicaSpecs": roles}
    if kind == "PyTorchJob":
        # These pods have no PyTorch, which a rendezvous pod needs.
        spec["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 4, "rdzvHost": f"{name}-worker-0"}
    elif kind == "TFJob":
        spec = {"tfReplicaSpecs": roles}
    metadata = {"name": name, "namespace": "default", "labels": _labels(urgent=urgent)}
    return {"apiVersion": f"kubeflow.org/{version or 'v1'}", "kind": kind, "metadata": metadata, "spec": spec}


def a_training_job(name: str, *, workers: int = 1, urgent: bool = False, **spec: Any) -> dict[str, Any]:
    """A TrainingJob in the queue, with a launcher and up to 4 workers that run until they are told to end.

    Each pod asks for a tenth of a processor.
    """
    roles: dict[str, Any] = {
        "launcher": {"template": template("main", "100m")},
        "worker": {"replicas": workers, "minReplicas": 1, "maxReplicas": 4, "template": template("main", "100m")},
    }
    return {
        "apiVersion": TRAININGJOBS.api_version,
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "default", "labels": _labels(urgent=urgent)},
        "spec": {"etReplicaSpecs": roles, **spec},
    }


def by_capacity(name: str, *, urgent: bool = False) -> dict[str, Any]:
    """A TrainingJob that trains with as many of four workers as it gets."""
    size = {"size": "Capacity", "settleSeconds": 1, "growSeconds": 1}
    return a_training_job(name, workers=4, urgent=urgent, elasticity=size)
