"""How a launcher reaches its workers: ssh keys, hosts files, and the variables of Open MPI's mpirun.  Pure.

If a user's container already mounts something at one of these paths, the user's mount stays.

Up to version 4 mpirun reads the names that begin with OMPI_MCA.  From version 5 on it is a program of PRRTE, which
reads only those that begin with PRTE_MCA: without them every rank runs beside mpirun.  A launcher gets both, because
the version is known in its image alone.
"""

from base64 import b64encode
from collections.abc import Mapping
from posixpath import basename, normpath

from shared.frameworks.framework import PodContext, PodRenderer, metadata
from shared.frameworks.reading import Fields
from shared.frameworks.schemas import Document
from shared.job import naming
from shared.job.naming import JobKey, config_name
from shared.job.spec import LAUNCHER, WORKER

WORKER_COMMAND = ("sh", "-c", "trap 'exit 143' TERM; /usr/sbin/sshd && { sleep 365d & wait $!; }")
"""The command of a worker whose template has neither command nor args: it waits for ssh.

The kernel delivers to the first process of a container only signals that it handles: without the trap a worker would
take its whole grace period to end.  143 is what SIGTERM gives elsewhere, and is retried as the 137 of SIGKILL is.
"""

EXECUTABLE = 0o755

FOR_OWNER_ONLY = 0o600
"""The mode of keys: ssh rejects a private key that others may read."""

FOR_ALL_TO_READ = 0o644
"""The mode of keys outside of root's home: another user reads them, and ssh checks only files that its user owns."""

SSH_SETTINGS = """\
Host *
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
    ConnectTimeout 5
    ConnectionAttempts 5
"""
"""The client's configuration for hosts whose keys Muster does not know.

A worker's sshd may listen later than its container starts, so ssh retries.
No port: 22 is the default, and an image whose sshd listens elsewhere says so in its own ssh_config.
"""

_PINNED_SETTINGS = """\
Host {workers}
    StrictHostKeyChecking yes
    UserKnownHostsFile ~/.ssh/known_hosts
    CheckHostIP no
"""
"""Comes before `SSH_SETTINGS`: of two values ssh takes the first.  The key of a worker has to be the Secret's."""

SSH_VOLUME = "muster-ssh"

_OF_LAUNCHER = {
    naming.PRIVATE_KEY: naming.PRIVATE_KEY,
    naming.PUBLIC_KEY: naming.PUBLIC_KEY,
    naming.AUTHORIZED_KEYS: naming.PUBLIC_KEY,
    naming.SSH_CONFIG: naming.SSH_CONFIG,
}
"""File → key of the Secret."""
_PINNED = _OF_LAUNCHER | {naming.SSH_CONFIG: naming.PINNED_SSH_CONFIG, naming.KNOWN_HOSTS: naming.KNOWN_HOSTS}
_OF_WORKER_OF_OTHER_KEYS = {naming.AUTHORIZED_KEYS: naming.PUBLIC_KEY}
# The images of the MPI operator have `.ssh/id_rsa` as the host key of an sshd without root.
_OF_WORKER = _OF_WORKER_OF_OTHER_KEYS | {
    naming.PRIVATE_KEY: naming.HOST_KEY,
    naming.PUBLIC_KEY: naming.PUBLIC_HOST_KEY,
}
_HOST_KEYS = {name: name for name in (naming.HOST_KEY, naming.PUBLIC_HOST_KEY)}


def check_ssh_folder(fields: Fields) -> None:
    """Refuse a `sshAuthMountPath` that is no folder, or one that the hosts files take."""
    path = fields.text("sshAuthMountPath")
    if path and (not path.startswith("/") or not path.strip("/.") or ":" in path or "\0" in path):
        fields.refuse("InvalidPath", "write the absolute path of a folder, without a colon", "sshAuthMountPath")
    elif f"/{normpath(path).lstrip('/')}/".startswith(f"{naming.MPI_FOLDER}/"):
        # The kubelet cannot mount into a read-only folder.
        message = f"write a folder outside of {naming.MPI_FOLDER}, which has the hosts"
        fields.refuse("InvalidPath", message, "sshAuthMountPath")


def mount_hosts(
    pod: Document, key: JobKey, folders: Mapping[str, tuple[str, Mapping[str, str]]], container: str = ""
) -> None:
    """Add the hosts files to the container of that name, or to the first one.

    `folders` are volume → folder, and its files with their ConfigMap keys.  If the container already mounts something
    at one of these folders, or in it, Muster adds no mount: the API server rejects two mounts at one path, and the
    kubelet cannot mount into a read-only folder.
    """
    taken = _mount_paths(_container(pod, container))
    for volume, (folder, files) in folders.items():
        if any(path.startswith(f"{folder}/") for path in taken):
            continue
        items = [
            {"key": source, "path": path} | ({"mode": EXECUTABLE} if path == naming.DISCOVER_HOSTS else {})
            for path, source in files.items()
        ]
        source = {"configMap": {"name": config_name(key.name), "items": items}}
        _mount(pod, volume, source, [{"mountPath": folder}], container)


def ssh_secret(
    framework: PodRenderer, key: JobKey, name: str, *, private: bytes, public: bytes, host: bytes, public_host: bytes
) -> Document:
    """The Secret with the launcher's key pair, and the workers' host key pair.

    It is not immutable: a kubelet with a pod of an earlier incarnation would go on serving the keys of an
    immutable Secret of that.
    """
    workers = f"{key.name}-{WORKER}-*"
    pinned = _PINNED_SETTINGS.format(workers=workers) + SSH_SETTINGS
    contents = {
        naming.PRIVATE_KEY: private,
        naming.PUBLIC_KEY: public,
        naming.SSH_CONFIG: SSH_SETTINGS.encode(),
        naming.HOST_KEY: host,
        naming.PUBLIC_HOST_KEY: public_host,
        # ssh writes a host whose port is not 22 in brackets.
        naming.KNOWN_HOSTS: f"{workers},[{workers}]:* ".encode() + public_host,
        naming.PINNED_SSH_CONFIG: pinned.encode(),
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(framework, key, name),
        "type": "Opaque",
        "data": {file: b64encode(content).decode() for file, content in contents.items()},
    }


def mount_keys(
    pod: Document,
    context: PodContext,
    theirs: str = "",
    folder: str = naming.SSH_FOLDER,
    *,
    workers: Document,
    container: str = "",
) -> None:
    """Mount the ssh files in a container: from the user's Secret `theirs`, or from the attempt's.

    The private key is the launcher's alone; a worker has the public key, and its own host key.  The launcher checks
    host keys if the workers (`workers` is their template) have theirs from the Secret.
    The container is the one of that name, or the first.  A user's mount of the folder or of a file stays.
    Each file is mounted by itself.  A volume mounted as a folder has mode 1777, and sshd (`StrictModes`, on by default)
    ignores authorized_keys in a folder that others may write to; a folder that the runtime makes for a mount has 0755.
    A change of the Secret does not reach such mounts, but the Secret does not change.
    """
    folder = normpath(folder)
    mode = FOR_OWNER_ONLY if folder == naming.SSH_FOLDER else FOR_ALL_TO_READ
    taken = _mount_paths(_container(pod, container))
    secret, launches = theirs or context.ssh_secret, context.slot.role == LAUNCHER
    own = secret == naming.secret_name(context.key, context.slot.attempt)
    shares = not own and not theirs
    pins = own and folder.endswith("/.ssh") and _takes_host_key(workers)
    if launches or shares:
        # The pods of an attempt that was taken over go on as they began.
        files = _PINNED if pins and f"{folder}/{naming.KNOWN_HOSTS}/" not in taken else _OF_LAUNCHER
    else:
        files = _OF_WORKER if own else _OF_WORKER_OF_OTHER_KEYS
    sources = {f"{folder}/{file}": source for file, source in files.items()} if f"{folder}/" not in taken else {}
    if pins and not launches:
        sources |= {f"{naming.HOST_KEY_FOLDER}/{file}": file for file in _HOST_KEYS}
    sources = {path: source for path, source in sources.items() if f"{path}/" not in taken}
    if not sources:
        return
    items: list[Document] = [{"key": source, "path": basename(path)} for path, source in sources.items()]
    for item in items:
        if item["path"] == naming.HOST_KEY:
            item["mode"] = FOR_OWNER_ONLY
    volume = {"secretName": secret, "defaultMode": mode, "items": items}
    mounts: list[Document] = [{"mountPath": path, "subPath": basename(path)} for path in sources]
    _mount(pod, SSH_VOLUME, {"secret": volume}, mounts, container)


def _takes_host_key(workers: Document) -> bool:
    """False if the workers bring host keys of their own, or if sshd would reject Muster's.

    sshd rejects a host key that a group may read, and the kubelet has the pod's fsGroup read every file.
    """
    annotations, spec = (workers.get("metadata") or {}).get("annotations") or {}, workers.get("spec") or {}
    paths = [path for container in spec.get("containers") or () for path in _mount_paths(container)]
    folder = f"{naming.HOST_KEY_FOLDER}/"
    mounts = any(path.startswith(folder) or folder.startswith(path) for path in paths)
    grouped = (spec.get("securityContext") or {}).get("fsGroup") is not None
    return not (mounts or grouped or annotations.get(naming.HOST_KEYS) == "own")


def _container(pod: Document, name: str) -> Document:
    """The container of that name, or without a name the first."""
    found: Document = next(known for known in pod["containers"] if name in ("", known["name"]))
    return found


def _mount_paths(container: Document) -> list[str]:
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


OMPI_HOSTS = "OMPI_MCA_orte_default_hostfile"
OMPI_ARGS = "OMPI_MCA_plm_rsh_args"
"""Arguments of ssh."""
OMPI_KEEP = "OMPI_MCA_orte_keep_fqdn_hostnames"
"""Without it mpirun cuts the hosts' names at their first dot."""
OMPI_SLOTS = "OMPI_MCA_orte_set_default_slots"
OMPI_FLAT = "OMPI_MCA_plm_rsh_no_tree_spawn"
"""With 1 mpirun reaches every worker from the launcher; otherwise it reaches some of more than 64 from others."""
OMPI_AGENTS = ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent")
"""The program in the place of ssh, which Muster does not set."""

_NEWER: Mapping[str, str] = {
    OMPI_HOSTS: "PRTE_MCA_prte_default_hostfile",
    OMPI_ARGS: "PRTE_MCA_plm_ssh_args",
    OMPI_KEEP: "PRTE_MCA_prte_keep_fqdn_hostnames",
    OMPI_SLOTS: "PRTE_MCA_prte_set_default_slots",
    OMPI_FLAT: "PRTE_MCA_plm_ssh_no_tree_spawn",
}

OMPI_RESOLVING = {"PRTE_MCA_prte_do_not_resolve": "0"}
"""Has version 5 know the launcher by its whole name, if it is one of the hosts; otherwise mpirun reaches it by ssh."""


def for_all_versions(variables: Mapping[str, str]) -> dict[str, str]:
    """These variables, and each under the name of version 5 too."""
    return {**variables, **{_NEWER[name]: value for name, value in variables.items()}}
