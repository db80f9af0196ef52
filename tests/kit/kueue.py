"""Kueue's kinds, as far as Muster and its command line read and write them."""

from typing import Any

from shared.cluster import Manifest, Resource
from shared.cluster.objects import Custom
from shared.frameworks.queueing import FLAVORS, GROUP, PRIORITIES, VERSION, WORKLOADS
from tests.kit.definitions import a_definition, a_version

OPEN: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
QUEUES = Resource(GROUP, VERSION, "localqueues", "LocalQueue", Custom)
CLUSTER_QUEUES = Resource(GROUP, VERSION, "clusterqueues", "ClusterQueue", Custom)


def _definition(resource: Resource[Any], scope: str = "Namespaced") -> Manifest:
    version = a_version(resource.version, OPEN, OPEN, storage=True)
    version["schema"]["openAPIV3Schema"] |= OPEN
    definition = a_definition(resource, version)
    definition["spec"]["scope"] = scope
    return definition


DEFINITION = _definition(WORKLOADS)
DEFINITIONS = (
    DEFINITION,
    _definition(QUEUES),
    *(_definition(each, "Cluster") for each in (CLUSTER_QUEUES, FLAVORS, PRIORITIES)),
)
