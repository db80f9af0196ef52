"""Kueue's Workload as far as the command line reads it."""

from typing import Any

from shared.frameworks.queueing import WORKLOADS

OPEN: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{WORKLOADS.plural}.{WORKLOADS.group}"},
    "spec": {
        "group": WORKLOADS.group,
        "scope": "Namespaced",
        "names": {"plural": WORKLOADS.plural, "singular": "workload", "kind": WORKLOADS.kind},
        "versions": [
            {
                "name": WORKLOADS.version,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": OPEN, "status": OPEN}}},
            }
        ],
    },
}
