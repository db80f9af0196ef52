"""Pods from templates: every field as the user wrote it, with what Muster needs laid over it.  Pure.

Laid over are name, labels, owner, restartPolicy Never (restarting is the operator's decision), and names that resolve
between the pods of a job.  GPUs that go by their old name are asked for under today's.
"""

from typing import Any

from shared.frameworks.framework import Document, Framework, Place
from shared.frameworks.templates import GPU
from shared.job.naming import HOSTS_VERSION, service_name

OLD_GPU = "alpha.kubernetes.io/nvidia-gpu"
"""What `nvidia.com/gpu` was called before Kubernetes 1.10, which refuses a pod that still says so."""


def pod_of(framework: Framework, template: Document, place: Place, *, search: bool) -> Document:
    """The pod of a slot; `search` has the plain names of the others resolve through the job's one Service."""
    key = place.key
    theirs = template.get("metadata") or {}
    metadata = framework.metadata(key, place.name)
    metadata["labels"] = (theirs.get("labels") or {}) | framework.slot_labels(key, place.slot)
    annotations = {name: value for name, value in (theirs.get("annotations") or {}).items() if name != HOSTS_VERSION}
    if annotations:
        metadata["annotations"] = annotations
    spec = template["spec"] | {"restartPolicy": "Never"}
    for kind in ("initContainers", "containers"):
        if isinstance(containers := spec.get(kind), list):
            spec[kind] = [_with_gpus(container) for container in containers]
    if search:
        domain = f"{service_name(key.name)}.{key.namespace}.svc.{place.cluster_domain}"
        spec |= {
            "hostname": place.name,
            "subdomain": service_name(key.name),
            "dnsConfig": _dns(spec.get("dnsConfig") or {}, domain),
        }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _dns(theirs: dict[str, Any], search: str) -> Document:
    """Ours first, so that a worker's plain name is asked for in its own job before anywhere else."""
    others = [domain for domain in theirs.get("searches") or [] if domain != search]
    return theirs | {"searches": [search, *others]}


def _with_gpus(container: Any) -> Any:
    """The container with the old name of GPUs replaced, wherever it stands in its resources."""
    resources = container.get("resources") if isinstance(container, dict) else None
    if not isinstance(resources, dict):
        return container
    return container | {"resources": {kind: _renamed(quantities) for kind, quantities in resources.items()}}


def _renamed(quantities: Any) -> Any:
    if not isinstance(quantities, dict) or OLD_GPU not in quantities:
        return quantities
    # Where both stand, today's is what counts.
    return {GPU: quantities[OLD_GPU]} | {name: value for name, value in quantities.items() if name != OLD_GPU}
