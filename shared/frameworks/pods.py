"""Renders pods from templates: the user's fields, with those that Muster sets.  Pure.

Muster sets name, labels, owner, restartPolicy Never (Muster restarts pods itself), and a search domain, so that the
plain names of a job's pods resolve.  The old resource name of GPUs becomes the present one.

A pod reports its progress by what Kubeflow Trainer puts into its pods, from version 2.2 on.  Libraries such as
`transformers` read the three variables; the token is the pod's own, and for this port alone.  The authority comes in an
annotation and not in a ConfigMap: it is no secret, and one object less for each job.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from shared.cluster.objects import Custom
from shared.errors import Refused
from shared.frameworks.framework import Framework, PodContext, PodRenderer, key_of, metadata, slot_labels
from shared.frameworks.schemas import Document
from shared.frameworks.templates import GPU, NAMED_BY_MUSTER
from shared.job.naming import CONTAINER, HOSTS_VERSION, JobKey, Slot, Uid, WorkerName, service_name
from shared.job.spec import JobSpec
from shared.untrusted import at, objects

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
    spec = {name: value for name, value in template["spec"].items() if name not in NAMED_BY_MUSTER}
    spec |= {"restartPolicy": "Never"} | _dns_policy(spec)
    for kind in ("initContainers", "containers"):
        if isinstance(containers := spec.get(kind), list):
            spec[kind] = [_with_gpus(container) for container in containers]
    if search:
        dns = spec.get("dnsConfig") or {}
        domain = f"{service_name(key.name)}.{key.namespace}.svc.{context.cluster_domain}"
        spec |= {
            "hostname": context.name,
            "subdomain": service_name(key.name),
            # The job's domain comes first, so that a worker's plain name resolves in its own job.
            "dnsConfig": dns | {"searches": [domain, *(each for each in dns.get("searches") or () if each != domain)]},
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


AUDIENCE = "progress.muster.dev"

FOLDER = "/var/run/secrets/muster/progress"
VOLUME = "muster-progress"
AUTHORITY = "muster.dev/progress-authority"
URL = "muster.dev/progress-url"
"""Annotations of a pod.  A process that ssh starts has none of its container's variables, and finds the files."""

TOKEN_SECONDS = 3600

_PATH = re.compile("/v1/namespaces/([^/]{1,63})/jobs/([^/]{1,253})/([^/]{1,64})/progress")


class Port(NamedTuple):
    """Where programs report to."""

    url: str
    """Its beginning, such as `https://muster-progress.muster.svc:8443`."""
    authority: str
    """The certificates that it is checked by, as PEM."""


def path_of(key: JobKey) -> str:
    return f"/v1/namespaces/{key.namespace}/jobs/{key.name}/{key.uid}/progress"


def key_at(path: str) -> JobKey | None:
    """The job of a path; None for another one."""
    found = _PATH.fullmatch(path)
    return JobKey(found[1], found[2], Uid(found[3])) if found is not None else None


def with_reporting(pod: Document, key: JobKey, container: str, port: Port) -> Document:
    """The pod with what its training container needs to report; a variable of the user's stays."""
    url = port.url.rstrip("/") + path_of(key)
    meta, spec = pod["metadata"], pod["spec"]
    annotations = (meta.get("annotations") or {}) | {AUTHORITY: port.authority, URL: url}
    token = {"audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    files = [
        {"path": name, "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}
        for name, annotation in (("ca.crt", AUTHORITY), ("url", URL))
    ]
    sources = [{"serviceAccountToken": token}, {"downwardAPI": {"items": files}}]
    variables = {"URL": url, "CA_CERT": f"{FOLDER}/ca.crt", "TOKEN": f"{FOLDER}/token"}
    containers = [_reporting(each, variables) if each.get("name") == container else each for each in spec["containers"]]
    volumes = [*(spec.get("volumes") or []), {"name": VOLUME, "projected": {"sources": sources}}]
    return {
        **pod,
        "metadata": meta | {"annotations": annotations},
        "spec": spec | {"containers": containers, "volumes": volumes},
    }


def _reporting(container: dict[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    theirs = container.get("env") or []
    taken = {each.get("name") for each in theirs}
    ours = [{"name": f"KUBEFLOW_TRAINER_SERVER_{name}", "value": value} for name, value in variables.items()]
    mount = {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}
    return container | {
        "env": [*theirs, *(each for each in ours if each["name"] not in taken)],
        "volumeMounts": [*(container.get("volumeMounts") or []), mount],
    }


MOST_RESOURCES = 8
"""The most resources of a role that are kept: processors, memory, and devices by the names of their vendors."""

_LONGEST_NAME = 100
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,2}))?")
_SCALES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3} | {
    f"{prefix}{suffix}": base**power
    for suffix, base in (("", 1000.0), ("i", 1024.0))
    for power, prefix in enumerate("KMGTPE", 1)
    if prefix != "K" or suffix
}
"""By suffix (Kubernetes API, of quantities)."""


def amount(quantity: Any) -> float:
    """The number that a quantity stands for: `500m` is 0.5; 0 for another shape."""
    text = str(quantity) if isinstance(quantity, int | float | str) and not isinstance(quantity, bool) else ""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return 0.0
    number, suffix, exponent = found.groups()
    return float(number) * _SCALES.get(suffix, 1.0) * 10.0 ** int(exponent or 0)


def first_pods(framework: Framework, manifest: Custom, spec: JobSpec) -> dict[str, Document]:
    """The first pod of each role; empty if one cannot be rendered."""
    sizes = {role.name: role.replicas for role in spec.roles}
    key, pods = key_of(manifest), dict[str, Document]()
    for role in spec.roles:
        slot = Slot(0, role.name, 0)
        context = PodContext(key=key, slot=slot, name=WorkerName(f"{role.stem or key.name}0"), sizes=sizes)
        try:
            pods[role.name] = framework.pod(manifest, spec, context)
        except Refused:
            return {}
    return pods


def with_requests(spec: JobSpec, pods: Mapping[str, Document]) -> JobSpec:
    """The spec of which each role has the requests of its first pod, if there is one."""
    roles = [
        msgspec.structs.replace(role, requests=tuple(requests(pods[role.name].get("spec")).items()))
        for role in spec.roles
        if role.name in pods
    ]
    return msgspec.structs.replace(spec, roles=tuple(roles)) if roles else spec


def requests(pod: Any) -> dict[str, float]:
    """What a pod requests, by resource: processors in cores, memory in bytes.

    Its containers run together, and with them the init containers that stay; every other init container runs alone, and
    what it needs beyond them counts too.  Absent requests are the limits (Kubernetes docs, resource management).
    """
    together, most = defaultdict[str, float](float), defaultdict[str, float](float)
    for container in objects(at(pod, "initContainers")):
        stays = container.get("restartPolicy") == "Always"
        for name, found in _of_container(container).items():
            most[name] = max(most[name], together[name] + found)
            together[name] += found if stays else 0.0
    for container in objects(at(pod, "containers")):
        for name, found in _of_container(container).items():
            together[name] += found
    asked = {name: max(together[name], most[name]) for name in sorted({**together, **most})}
    kept = [name for name, value in asked.items() if value and len(name) <= _LONGEST_NAME]
    return {name: asked[name] for name in kept[:MOST_RESOURCES]}


def _of_container(container: Mapping[str, Any]) -> dict[str, float]:
    limits, asked = (at(container, "resources", kind) for kind in ("limits", "requests"))
    return {
        str(name): amount(value) for each in (limits, asked) if isinstance(each, dict) for name, value in each.items()
    }
