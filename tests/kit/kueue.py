"""Kueue's kinds, as far as Muster and its command line read and write them."""

from typing import Any

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.queueing import FLAVORS, GROUP, PRIORITIES, VERSION, WORKLOADS

OPEN: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
QUEUES = Resource(GROUP, VERSION, "localqueues", "LocalQueue", Custom)
CLUSTER_QUEUES = Resource(GROUP, VERSION, "clusterqueues", "ClusterQueue", Custom)


def _definition(resource: Resource[Any], *, of_cluster: bool = False) -> dict[str, Any]:
    open_schema = OPEN | {"properties": {"spec": OPEN, "status": OPEN}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Cluster" if of_cluster else "Namespaced",
            "names": {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind},
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": open_schema},
                }
            ],
        },
    }


DEFINITION = _definition(WORKLOADS)
DEFINITIONS = (
    DEFINITION,
    _definition(QUEUES),
    *(_definition(each, of_cluster=True) for each in (CLUSTER_QUEUES, FLAVORS, PRIORITIES)),
)
