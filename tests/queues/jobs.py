"""Queues, and jobs in them."""

from typing import Any

from muster.queues import QUEUE
from tests.kit.operator import SHELL

API = "kueue.x-k8s.io/v1beta2"
POOL = "test.muster.dev/pool"
PRIORITY = "kueue.x-k8s.io/priority-class"
TERMINATION_SECONDS = 2
"""How long a pod takes to end when it is told to."""

FOR_EVER = f"trap 'sleep {TERMINATION_SECONDS}; exit 0' TERM; trap 'exit 0' USR1; while :; do sleep 0.1; done"


def queues(cpu: int) -> tuple[dict[str, Any], ...]:
    """A queue `team-a` with so many processors, where a job of higher priority preempts others."""
    flavor = {"name": "pool", "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    kinds: list[tuple[str, str, dict[str, Any]]] = [
        ("ResourceFlavor", "pool", {"spec": {"nodeLabels": {POOL: "a"}}}),
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


def template(container: str) -> dict[str, Any]:
    """A pod that asks for one processor."""
    main = {"name": container, "image": SHELL, "command": ["sh", "-c", FOR_EVER]}
    return {"spec": {"containers": [main | {"resources": {"requests": {"cpu": "1"}}}]}}


def a_job(kind: str, name: str, *, workers: int = 2, urgent: bool = False, version: str = "") -> dict[str, Any]:
    """A job in the queue with pods for ever; an MPIJob has a launcher, and one worker less."""
    labels = {QUEUE: "team-a"} | ({PRIORITY: "urgent"} if urgent else {})
    container = {"PyTorchJob": "pytorch", "TFJob": "tensorflow", "MPIJob": "mpi"}[kind]
    replica = {"restartPolicy": "Never", "template": template(container)}
    roles = {"Worker": replica | {"replicas": workers}}
    if kind == "MPIJob":
        roles = {"Launcher": replica | {"replicas": 1}, "Worker": replica | {"replicas": workers - 1}}
    spec: dict[str, Any] = {f"{container}ReplicaSpecs": roles}
    if kind == "PyTorchJob":
        spec["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 4}
    elif kind == "TFJob":
        spec = {"tfReplicaSpecs": roles}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": f"kubeflow.org/{version or 'v1'}", "kind": kind, "metadata": metadata, "spec": spec}
