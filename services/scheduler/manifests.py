"""The pods, the Service and the Secret of a job, rendered from its resource.  Pure.

A pod is the user's template, every field as it came, with what Muster needs laid over it: name, labels, owner,
restartPolicy Never (restarting is the operator's decision), and names that resolve between the pods.
The resource must have been accepted by `parse_job`.
"""

from base64 import b64encode
from posixpath import normpath
from typing import Any

from shared.cluster.objects import Custom
from shared.frameworks.children import Document, child_metadata, slot_labels
from shared.frameworks.training import TRAININGJOBS
from shared.job.naming import (
    AUTHORIZED_KEYS,
    DEEPSPEED_HOSTFILE,
    DISCOVER_HOSTS,
    EDL_FOLDER,
    HOSTFILE,
    HOSTS_VERSION,
    JOB_FOLDER,
    JOB_UID,
    MPI_FOLDER,
    PRIVATE_KEY,
    PUBLIC_KEY,
    SCALEOUT_NAME,
    SSH_CONFIG,
    SSH_FOLDER,
    JobKey,
    Slot,
    config_name,
    pod_name,
    secret_name,
    service_name,
)
from shared.job.spec import JobSpec

WORKER_COMMAND = ("sh", "-c", "/usr/sbin/sshd && sleep 365d")
"""When the template has neither command nor args: a worker that waits to be told by ssh."""

EXECUTABLE = 0o755

FOR_OWNER_ONLY = 0o600
"""ssh refuses a private key that others may read."""

SSH_SETTINGS = """\
Host *
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
    ConnectTimeout 5
    ConnectionAttempts 5
"""
"""The client's: a worker's host key is as new as its pod, so there is nothing to compare it with.

A worker's sshd may begin to listen a moment after its container, so ssh tries more than once.
No port: 22 is the default, and an image whose sshd listens elsewhere says so in its own ssh_config.
"""

_HOSTS_FOLDERS: dict[str, tuple[str, dict[str, str]]] = {
    "muster-hosts-edl": (EDL_FOLDER, {HOSTFILE: HOSTFILE, DISCOVER_HOSTS: DISCOVER_HOSTS}),
    "muster-hosts-job": (JOB_FOLDER, {HOSTFILE: DEEPSPEED_HOSTFILE}),
    "muster-hosts-mpi": (
        MPI_FOLDER,
        {HOSTFILE: HOSTFILE, DISCOVER_HOSTS: DISCOVER_HOSTS, DEEPSPEED_HOSTFILE: DEEPSPEED_HOSTFILE},
    ),
}
"""Volume → folder in the launcher, and its files with the ConfigMap key of each."""

_SSH_VOLUME = "muster-ssh"
_SSH_FILES = {
    PRIVATE_KEY: PRIVATE_KEY,
    PUBLIC_KEY: PUBLIC_KEY,
    AUTHORIZED_KEYS: PUBLIC_KEY,
    SSH_CONFIG: SSH_CONFIG,
}
"""File → key of the Secret."""


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
    _mount_keys(pod["spec"], spec, key)
    return pod


def launcher_pod(job: Custom, spec: JobSpec, key: JobKey, slot: Slot, *, cluster_domain: str) -> Document:
    """The pod of the launcher's slot, with the hosts files in its first container.

    Where that container already mounts something at one of our folders, or within it, the user's mount stays and
    ours is left out: two mounts at one path are refused, and nothing can be mounted into a read-only folder.
    """
    pod = _pod(job, key, slot, cluster_domain)
    taken = _taken(pod["spec"])
    for volume, (folder, files) in _HOSTS_FOLDERS.items():
        if any(path.startswith(f"{folder}/") for path in taken):
            continue
        source = {"configMap": {"name": config_name(key.name), "items": _items(files)}}
        _mount(pod["spec"], volume, source, [{"mountPath": folder}])
    _mount_keys(pod["spec"], spec, key)
    return pod


def ssh_secret(key: JobKey, *, private: bytes, public: bytes) -> Document:
    """The Secret with the job's key pair.

    Not immutable: a kubelet that still has a pod of an older life with an immutable one would go on giving out that
    life's keys.
    """
    contents = {PRIVATE_KEY: private, PUBLIC_KEY: public, SSH_CONFIG: SSH_SETTINGS.encode()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": child_metadata(TRAININGJOBS, key, secret_name(key.name)),
        "type": "Opaque",
        "data": {name: b64encode(content).decode() for name, content in contents.items()},
    }


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


def _mount_keys(pod: Document, spec: JobSpec, key: JobKey) -> None:
    """The files of `SSH_FOLDER` in the first container; where the user mounts that folder, or a file, theirs stays.

    File by file, and not the volume as a folder: that has mode 1777, and sshd (`StrictModes`, which is on where
    nobody says otherwise) believes no authorized_keys below a folder that others may write to.  A folder that is
    made for mounts within it has 0755, and one of the image stays.  Such mounts do not follow the Secret, which
    does not change either.
    """
    if spec.attach_mode != "ssh":
        return
    taken = _taken(pod)
    files = {file: source for file, source in _SSH_FILES.items() if f"{SSH_FOLDER}/{file}/" not in taken}
    if not files or f"{SSH_FOLDER}/" in taken:
        return
    secret = {
        "secretName": spec.ssh_secret or secret_name(key.name),
        "defaultMode": FOR_OWNER_ONLY,
        "items": [{"key": source, "path": file} for file, source in files.items()],
    }
    _mount(pod, _SSH_VOLUME, {"secret": secret}, [{"mountPath": f"{SSH_FOLDER}/{f}", "subPath": f} for f in files])


def _taken(pod: Document) -> list[str]:
    """Where the first container has mounts already, each with a slash at its end."""
    mounts = pod["containers"][0].get("volumeMounts") or []
    return [normpath(str(mount.get("mountPath"))) + "/" for mount in mounts if mount]


def _mount(pod: Document, volume: str, source: Document, mounts: list[Document]) -> None:
    """Add a volume, and read-only mounts of it in the first container."""
    first, *others = pod["containers"]
    ours = [{"name": volume, **mount, "readOnly": True} for mount in mounts]
    pod["volumes"] = [*(pod.get("volumes") or []), {"name": volume, **source}]
    pod["containers"] = [first | {"volumeMounts": [*(first.get("volumeMounts") or []), *ours]}, *others]


def _dns(theirs: dict[str, Any], search: str) -> Document:
    """Ours first, so that a worker's plain name is asked for in its own job before anywhere else."""
    others = [domain for domain in theirs.get("searches") or [] if domain != search]
    return theirs | {"searches": [search, *others]}


def _items(files: dict[str, str]) -> list[Document]:
    return [
        {"key": source, "path": path} | ({"mode": EXECUTABLE} if path == DISCOVER_HOSTS else {})
        for path, source in files.items()
    ]
