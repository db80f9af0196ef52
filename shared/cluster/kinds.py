"""The built-in kinds that Muster reads and writes."""

from shared.cluster import Resource
from shared.cluster.objects import ConfigMap, Custom, KubernetesEvent, Node, Object, Pod, TokenReview

PODS = Resource("", "v1", "pods", "Pod", Pod)
SERVICES = Resource("", "v1", "services", "Service", Object)
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap", Object)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", Object)
CONFIGMAPS_WITH_DATA = Resource("", "v1", "configmaps", "ConfigMap", ConfigMap)
SECRETS = Resource("", "v1", "secrets", "Secret", Object)
"""Only their metadata is requested."""
EVENTS = Resource("", "v1", "events", "Event", Object)
"""Of the core group: events.k8s.io refuses the first and last time and the count, which many readers take."""
EVENTS_WITH_WORDS = Resource("", "v1", "events", "Event", KubernetesEvent)
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", Object)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", Object)
"""Cluster-scoped."""
NODES = Resource("", "v1", "nodes", "Node", Node)
"""Cluster-scoped."""
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", Custom)
"""Cluster-scoped."""
TOKENREVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", TokenReview)
"""Cluster-scoped; a question, of which nothing is kept."""
