"""The built-in kinds that Muster reads and writes."""

from shared.cluster import Resource
from shared.cluster.objects import Custom, Node, Object, Pod

PODS = Resource("", "v1", "pods", "Pod", Pod)
SERVICES = Resource("", "v1", "services", "Service", Object)
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap", Object)
SECRETS = Resource("", "v1", "secrets", "Secret", Object)
"""Of which only the metadata is ever asked for."""
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", Object)
NODES = Resource("", "v1", "nodes", "Node", Node)
"""They belong to no namespace."""
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", Custom)
"""They belong to no namespace either."""
