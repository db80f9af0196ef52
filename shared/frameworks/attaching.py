"""Adds ssh keys and hosts files to pods, by which a launcher reaches its workers.  Pure.

If a user's container already mounts something at one of these paths, the user's mount stays.
"""

from base64 import b64encode
from collections.abc import Mapping
from posixpath import normpath

from shared.frameworks.definition import Document
from shared.frameworks.framework import PodRenderer, metadata
from shared.job import naming
from shared.job.naming import JobKey, config_name, secret_name

WORKER_COMMAND = ("sh", "-c", "/usr/sbin/sshd && sleep 365d")
"""The command of a worker whose template has neither command nor args: it waits for ssh."""

EXECUTABLE = 0o755

FOR_OWNER_ONLY = 0o600
"""The mode of keys: ssh rejects a private key that others may read."""

SSH_SETTINGS = """\
Host *
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
    ConnectTimeout 5
    ConnectionAttempts 5
"""
"""The client's configuration: a worker's host key is as new as its pod, so it cannot be checked.

A worker's sshd may listen later than its container starts, so ssh retries.
No port: 22 is the default, and an image whose sshd listens elsewhere says so in its own ssh_config.
"""

_SSH_VOLUME = "muster-ssh"
_SSH_FILES = {
    naming.PRIVATE_KEY: naming.PRIVATE_KEY,
    naming.PUBLIC_KEY: naming.PUBLIC_KEY,
    naming.AUTHORIZED_KEYS: naming.PUBLIC_KEY,
    naming.SSH_CONFIG: naming.SSH_CONFIG,
}
"""File → key of the Secret."""


def mount_hosts(
    pod: Document, key: JobKey, folders: Mapping[str, tuple[str, Mapping[str, str]]], container: str = ""
) -> None:
    """Add the hosts files to the container of that name, or to the first one.

    `folders` are volume → folder, and its files with their ConfigMap keys.  If the container already mounts something
    at one of these folders, or in it, Muster adds no mount: the API server rejects two mounts at one path, and the
    kubelet cannot mount into a read-only folder.
    """
    taken = _taken(_container(pod, container))
    for volume, (folder, files) in folders.items():
        if any(path.startswith(f"{folder}/") for path in taken):
            continue
        source = {"configMap": {"name": config_name(key.name), "items": _items(files)}}
        _mount(pod, volume, source, [{"mountPath": folder}], container)


def ssh_secret(framework: PodRenderer, key: JobKey, *, private: bytes, public: bytes) -> Document:
    """The Secret with the job's key pair.

    It is not immutable: a kubelet with a pod of an earlier incarnation would go on serving the keys of an
    immutable Secret of that.
    """
    contents = {naming.PRIVATE_KEY: private, naming.PUBLIC_KEY: public, naming.SSH_CONFIG: SSH_SETTINGS.encode()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(framework, key, secret_name(key.name)),
        "type": "Opaque",
        "data": {name: b64encode(content).decode() for name, content in contents.items()},
    }


def mount_keys(
    pod: Document,
    key: JobKey,
    theirs: str = "",
    folder: str = naming.SSH_FOLDER,
    *,
    container: str = "",
    mode: int = FOR_OWNER_ONLY,
) -> None:
    """Mount the ssh files in a container: from the user's Secret `theirs`, or from the job's own.

    The container is the one of that name, or the first.  A user's mount of the folder or of a file stays.
    Each file is mounted by itself.  A volume mounted as a folder has mode 1777, and sshd (`StrictModes`, on by default)
    ignores authorized_keys in a folder that others may write to; a folder that the runtime makes for a mount has 0755.
    A change of the Secret does not reach such mounts, but the Secret does not change.
    """
    taken = _taken(_container(pod, container))
    files = {file: source for file, source in _SSH_FILES.items() if f"{folder}/{file}/" not in taken}
    if not files or f"{folder}/" in taken:
        return
    secret = {
        "secretName": theirs or secret_name(key.name),
        "defaultMode": mode,
        "items": [{"key": source, "path": file} for file, source in files.items()],
    }
    mounts: list[Document] = [{"mountPath": f"{folder}/{file}", "subPath": file} for file in files]
    _mount(pod, _SSH_VOLUME, {"secret": secret}, mounts, container)


def _container(pod: Document, name: str) -> Document:
    """The container of that name, or without a name the first."""
    found: Document = next(known for known in pod["containers"] if name in ("", known["name"]))
    return found


def _taken(container: Document) -> list[str]:
    """The paths of its mounts, each with a slash at the end."""
    mounts = container.get("volumeMounts") or []
    return [normpath(str(mount.get("mountPath"))) + "/" for mount in mounts if mount]


def _mount(pod: Document, volume: str, source: Document, mounts: list[Document], container: str) -> None:
    """Add a volume, and read-only mounts of it in one container."""
    chosen = _container(pod, container)
    ours = [{"name": volume, **mount, "readOnly": True} for mount in mounts]
    pod["volumes"] = [*(pod.get("volumes") or []), {"name": volume, **source}]
    mounted = chosen | {"volumeMounts": [*(chosen.get("volumeMounts") or []), *ours]}
    pod["containers"] = [mounted if known is chosen else known for known in pod["containers"]]


def _items(files: Mapping[str, str]) -> list[Document]:
    return [
        {"key": source, "path": path} | ({"mode": EXECUTABLE} if path == naming.DISCOVER_HOSTS else {})
        for path, source in files.items()
    ]
