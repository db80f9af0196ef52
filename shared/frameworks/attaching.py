"""How a launcher reaches its workers: ssh keys in both, and files that say who the workers are.  Pure.

Where a user's container already mounts something at one of these places, the user's mount stays.
"""

from base64 import b64encode
from collections.abc import Mapping
from posixpath import normpath

from shared.frameworks.framework import Document, Framework
from shared.job.naming import (
    AUTHORIZED_KEYS,
    DISCOVER_HOSTS,
    PRIVATE_KEY,
    PUBLIC_KEY,
    SSH_CONFIG,
    SSH_FOLDER,
    JobKey,
    config_name,
    secret_name,
)

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

_SSH_VOLUME = "muster-ssh"
_SSH_FILES = {
    PRIVATE_KEY: PRIVATE_KEY,
    PUBLIC_KEY: PUBLIC_KEY,
    AUTHORIZED_KEYS: PUBLIC_KEY,
    SSH_CONFIG: SSH_CONFIG,
}
"""File → key of the Secret."""


def mount_hosts(
    pod: Document, key: JobKey, folders: Mapping[str, tuple[str, Mapping[str, str]]], container: str = ""
) -> None:
    """Add the hosts files to the container of that name, or to the first one.

    `folders` are volume → folder, and its files with the ConfigMap key of each.  Where the container already mounts
    something at one of these folders, or within it, ours is left out: two mounts at one path are refused, and nothing
    can be mounted into a read-only folder.
    """
    taken = _taken(_container(pod, container))
    for volume, (folder, files) in folders.items():
        if any(path.startswith(f"{folder}/") for path in taken):
            continue
        source = {"configMap": {"name": config_name(key.name), "items": _items(files)}}
        _mount(pod, volume, source, [{"mountPath": folder}], container)


def ssh_secret(framework: Framework, key: JobKey, *, private: bytes, public: bytes) -> Document:
    """The Secret with the job's key pair.

    Not immutable: a kubelet that still has a pod of an older life with an immutable one would go on giving out that
    life's keys.
    """
    contents = {PRIVATE_KEY: private, PUBLIC_KEY: public, SSH_CONFIG: SSH_SETTINGS.encode()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": framework.metadata(key, secret_name(key.name)),
        "type": "Opaque",
        "data": {name: b64encode(content).decode() for name, content in contents.items()},
    }


def mount_keys(
    pod: Document,
    key: JobKey,
    theirs: str = "",
    folder: str = SSH_FOLDER,
    *,
    container: str = "",
    mode: int = FOR_OWNER_ONLY,
) -> None:
    """Add the ssh files to the container of that name, or to the first, from the Secret called `theirs`, or from the
    job's own.

    Where the user mounts that folder, or a file, the user's stays.  File by file, and not the volume as a folder: that
    has mode 1777, and sshd (`StrictModes`, which is on where nobody says otherwise) believes no authorized_keys below
    a folder that others may write to.  A folder that is made for mounts within it has 0755, and one of the image
    stays.  Such mounts do not follow the Secret, which does not change either.
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
    """The container of that name; without a name the first."""
    found: Document = next(known for known in pod["containers"] if name in ("", known["name"]))
    return found


def _taken(container: Document) -> list[str]:
    """Where it has mounts already, each with a slash at its end."""
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
        {"key": source, "path": path} | ({"mode": EXECUTABLE} if path == DISCOVER_HOSTS else {})
        for path, source in files.items()
    ]
