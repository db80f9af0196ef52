"""The built-in kinds that Muster reads and writes."""

from shared.cluster import Resource
from shared.cluster.objects import Object, Pod

PODS = Resource("", "v1", "pods", "Pod", Pod)
SERVICES = Resource("", "v1", "services", "Service", Object)
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap", Object)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", Object)
