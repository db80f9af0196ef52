"""Renders pods from templates: the user's fields, with those that Muster sets.  Pure.

Muster sets name, labels, owner, restartPolicy Never (Muster restarts pods itself), and a search domain, so that the
plain names of a job's pods resolve.  The old resource name of GPUs becomes the present one.
"""

from collections.abc import Sequence
from typing import Any

from shared.frameworks.framework import PodContext, PodRenderer, metadata, slot_labels
from shared.frameworks.schemas import Document
from shared.frameworks.templates import GPU, POD
from shared.job.naming import CONTAINER, HOSTS_VERSION, service_name

_OF_MUSTER = tuple(name for name, rule in POD.items() if rule.told)

OLD_GPU = "alpha.kubernetes.io/nvidia-gpu"
"""The name of `nvidia.com/gpu` before Kubernetes 1.10, which rejects pods that use it."""


def pod_of(framework: PodRenderer, template: Document, context: PodContext, *, search: bool) -> Document:
    """Render the pod of a slot; with `search` the plain names of the others resolve through the job's Service."""
    key = context.key
    theirs = template.get("metadata") or {}
    meta = metadata(framework, key, context.name)
    meta["labels"] = (theirs.get("labels") or {}) | slot_labels(framework, key, context.slot)
    annotations = {name: value for name, value in (theirs.get("annotations") or {}).items() if name != HOSTS_VERSION}
    if context.hosts:
        annotations[HOSTS_VERSION] = str(context.hosts)
    if annotations:
        meta["annotations"] = annotations
    spec = {name: value for name, value in template["spec"].items() if name not in _OF_MUSTER}
    spec |= {"restartPolicy": "Never"} | _dns_policy(spec)
    for kind in ("initContainers", "containers"):
        if isinstance(containers := spec.get(kind), list):
            spec[kind] = [_with_gpus(container) for container in containers]
    if search:
        domain = f"{service_name(key.name)}.{key.namespace}.svc.{context.cluster_domain}"
        spec |= {
            "hostname": context.name,
            "subdomain": service_name(key.name),
            "dnsConfig": _dns(spec.get("dnsConfig") or {}, domain),
        }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _dns_policy(spec: Document) -> Document:
    """The policy by which the names of pods resolve; a user's own name servers (None) stay."""
    if spec.get("dnsPolicy") not in (None, "", "ClusterFirst", "Default"):
        return {}
    if spec.get("hostNetwork"):
        # With ClusterFirst such a pod would ask the node's name server, which does not know pods.
        return {"dnsPolicy": "ClusterFirstWithHostNet"}
    return {"dnsPolicy": "ClusterFirst"} if spec.get("dnsPolicy") == "Default" else {}


def _dns(theirs: dict[str, Any], search: str) -> Document:
    """The job's domain comes first, so that a worker's plain name resolves in its own job."""
    others = [domain for domain in theirs.get("searches") or [] if domain != search]
    return theirs | {"searches": [search, *others]}


def _with_gpus(container: Any) -> Any:
    """The container with the old resource name of GPUs replaced."""
    resources = container.get("resources") if isinstance(container, dict) else None
    if not isinstance(resources, dict):
        return container
    return container | {"resources": {kind: _renamed(quantities) for kind, quantities in resources.items()}}


def _renamed(quantities: Any) -> Any:
    if not isinstance(quantities, dict) or OLD_GPU not in quantities:
        return quantities
    # If a container has both names, the present one counts.
    return {GPU: quantities[OLD_GPU]} | {name: value for name, value in quantities.items() if name != OLD_GPU}


def with_token_if_asked(pod: Document) -> Document:
    """The pod without a service account's token, unless its template asks for one or names the account."""
    asks = ("automountServiceAccountToken", "serviceAccountName", "serviceAccount")
    if any(pod["spec"].get(name) not in (None, "") for name in asks):
        return pod
    return pod | {"spec": pod["spec"] | {"automountServiceAccountToken": False}}


def with_last_words(pod: Document) -> Document:
    """The pod with `FallbackToLogsOnError` in every container whose template has no terminationMessagePolicy.

    The kubelet uses the log only if the container's own message file is empty.
    """
    policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    kinds = {
        kind: [policy | each if isinstance(each, dict) else each for each in pod["spec"][kind]]
        for kind in ("initContainers", "containers")
        if isinstance(pod["spec"].get(kind), list)
    }
    return pod | {"spec": pod["spec"] | kinds}


def with_training_container(pod: Document, name: str) -> Document:
    """The pod with the name of its training container, for the watcher: admission may put others before it."""
    meta = pod["metadata"]
    annotations = (meta.get("annotations") or {}) | {CONTAINER: name}
    return pod | {"metadata": meta | {"annotations": annotations}}


RULES = "restartPolicyRules"
"""The field of a container with the rules of its restarts (Kubernetes 1.35 and newer)."""


def with_restarts(pod: Document, name: str, final: list[int]) -> Document:
    """The pod whose training container the kubelet begins again, but for these exit codes; one with a policy stays."""
    rule = {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": final}}
    containers = [
        {**each, "restartPolicy": "Never", RULES: [rule]}
        if each["name"] == name and not each.get("restartPolicy")
        else each
        for each in pod["spec"]["containers"]
    ]
    return pod | {"spec": pod["spec"] | {"containers": containers}}


def off_nodes(pod: Document, nodes: Sequence[str]) -> Document:
    """The pod that these nodes get only if no other has room for it."""
    if not nodes:
        return pod
    others = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    affinity = dict(pod["spec"].get("affinity") or {})
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    preferred = [*(of_nodes.get(_PREFERRED) or ()), {"weight": 100, "preference": {"matchFields": others}}]
    return pod | {"spec": pod["spec"] | {"affinity": affinity | {"nodeAffinity": of_nodes | {_PREFERRED: preferred}}}}


_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
