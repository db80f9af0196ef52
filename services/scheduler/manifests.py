"""The pods and the Service of a job, rendered from its resource.  Pure.

A pod is the user's template, every field as it came, with what Muster needs laid over it: name, labels, owner,
restartPolicy Never (restarting is the operator's decision), and names that resolve between the pods.
The resource must have been accepted by `parse_job`.
"""

from posixpath import normpath
from typing import Any

from shared.cluster.objects import Custom
from shared.frameworks.children import Document, child_metadata, slot_labels
from shared.frameworks.training import TRAININGJOBS
from shared.job.naming import (
    DEEPSPEED_HOSTFILE,
    DISCOVER_HOSTS,
    EDL_FOLDER,
    HOSTFILE,
    HOSTS_VERSION,
    JOB_FOLDER,
    JOB_UID,
    MPI_FOLDER,
    SCALEOUT_NAME,
    JobKey,
    Slot,
    config_name,
    pod_name,
    service_name,
)
from shared.job.spec import JobSpec

WORKER_COMMAND = ("sh", "-c", "/usr/sbin/sshd && sleep 365d")
"""When the template has neither command nor args: a worker that waits to be told by ssh."""

EXECUTABLE = 0o755

_HOSTS_FOLDERS: dict[str, tuple[str, dict[str, str]]] = {
    "muster-hosts-edl": (EDL_FOLDER, {HOSTFILE: HOSTFILE, DISCOVER_HOSTS: DISCOVER_HOSTS}),
    "muster-hosts-job": (JOB_FOLDER, {HOSTFILE: DEEPSPEED_HOSTFILE}),
    "muster-hosts-mpi": (
        MPI_FOLDER,
        {HOSTFILE: HOSTFILE, DISCOVER_HOSTS: DISCOVER_HOSTS, DEEPSPEED_HOSTFILE: DEEPSPEED_HOSTFILE},
    ),
}
"""Volume → folder in the launcher, and its files with the ConfigMap key of each."""


def worker_pod(
    job: Custom, spec: JobSpec, key: JobKey, slot: Slot, *, cluster_domain: str, scaleout: str = ""
) -> Document:
    """The pod of a worker's slot; `scaleout` names the ScaleOut that asked for it."""
    pod = _pod(job, key, slot, cluster_domain)
    if scaleout:
        pod["metadata"]["labels"][SCALEOUT_NAME] = scaleout
    first, *others = pod["spec"]["containers"]
    if not first.get("command") and not first.get("args"):
        first = first | {"command": [*WORKER_COMMAND]}
    pod["spec"]["containers"] = [first, *others]
    return pod


def launcher_pod(job: Custom, spec: JobSpec, key: JobKey, slot: Slot, *, cluster_domain: str) -> Document:
    """The pod of the launcher's slot, with the hosts files in its first container.

    Where that container already mounts something at one of our folders, or within it, the user's mount stays and
    ours is left out: two mounts at one path are refused, and nothing can be mounted into a read-only folder.
    """
    pod = _pod(job, key, slot, cluster_domain)
    first, *others = pod["spec"]["containers"]
    mounts = first.get("volumeMounts") or []
    taken = [normpath(str(mount.get("mountPath"))) + "/" for mount in mounts if mount]
    volumes = [*(pod["spec"].get("volumes") or [])]
    ours: list[Document] = []
    for volume, (folder, files) in _HOSTS_FOLDERS.items():
        if any(path.startswith(f"{folder}/") for path in taken):
            continue
        ours.append({"name": volume, "mountPath": folder, "readOnly": True})
        volumes.append({"name": volume, "configMap": {"name": config_name(key.name), "items": _items(files)}})
    if ours:
        pod["spec"]["volumes"] = volumes
        pod["spec"]["containers"] = [first | {"volumeMounts": [*mounts, *ours]}, *others]
    return pod


def headless_service(job: Custom, key: JobKey) -> Document:
    """The Service behind all pods' names, Ready or not: the launcher looks for workers that still start."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(TRAININGJOBS, key, service_name(key.name)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {JOB_UID: key.uid},
            "ports": [
                {"name": "ssh-port", "port": 22},
                {"name": "kubeai-service-port", "port": 9009},
            ],
        },
    }


def _pod(job: Custom, key: JobKey, slot: Slot, cluster_domain: str) -> Document:
    template = job.spec["etReplicaSpecs"][slot.role]["template"]
    theirs = template.get("metadata") or {}
    name = pod_name(key.name, slot)
    metadata = child_metadata(TRAININGJOBS, key, name)
    metadata["labels"] = (theirs.get("labels") or {}) | slot_labels(TRAININGJOBS, key, slot)
    annotations = {name: value for name, value in (theirs.get("annotations") or {}).items() if name != HOSTS_VERSION}
    if annotations:
        metadata["annotations"] = annotations
    search = f"{service_name(key.name)}.{key.namespace}.svc.{cluster_domain}"
    spec = template["spec"] | {
        "restartPolicy": "Never",
        "hostname": name,
        "subdomain": service_name(key.name),
        "dnsConfig": _dns(template["spec"].get("dnsConfig") or {}, search),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _dns(theirs: dict[str, Any], search: str) -> Document:
    """Ours first, so that a worker's plain name is asked for in its own job before anywhere else."""
    others = [domain for domain in theirs.get("searches") or [] if domain != search]
    return theirs | {"searches": [search, *others]}


def _items(files: dict[str, str]) -> list[Document]:
    return [
        {"key": source, "path": path} | ({"mode": EXECUTABLE} if path == DISCOVER_HOSTS else {})
        for path, source in files.items()
    ]
