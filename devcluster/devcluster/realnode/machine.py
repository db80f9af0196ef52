"""A real node and this machine: what it requires, the packages, and the files, networks and groups that it makes.

Their names are fixed, so that the next run finds them.
"""

import os
import platform
import shutil
import subprocess
from pathlib import Path

PACKAGES = (
    "containerd",
    "runc",
    "containernetworking-plugins",
    "busybox-static",
    "debootstrap",
)
"""The packages of Debian and Ubuntu."""

PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "busybox", "debootstrap")

CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
"""The folders of the CNI plugins: Debian's, and the usual one."""

CNI_PLUGINS = ("bridge", "host-local", "loopback")

CAPABILITIES = {
    "chown": 0,
    "kill": 5,
    "net_bind_service": 10,
    "net_admin": 12,
    "sys_chroot": 18,
    "sys_admin": 21,
    "mknod": 27,
}
"""The capabilities that the kubelet, containerd and debootstrap need, with their numbers."""


def unfit() -> str:
    """Why this machine cannot run a node, even with all packages; empty if it can."""
    if platform.system() != "Linux":
        return f"a real node needs Linux, this is {platform.system()}"
    if os.geteuid() != 0:
        return "a real node needs root, to make containers, mounts and networks"
    have = _capabilities()
    lacking = [name for name, number in CAPABILITIES.items() if not have >> number & 1]
    return f"a real node needs the capabilities {', '.join(lacking)}" if lacking else ""


def missing() -> list[str]:
    """The programs that are not installed."""
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    return lacking if cni_folder() else [*lacking, "the CNI plugins"]


def cni_folder() -> Path | None:
    for folder in CNI_FOLDERS:
        if all((folder / plugin).exists() for plugin in CNI_PLUGINS):
            return folder
    return None


def install() -> None:
    """Install the packages with apt-get if a program is missing.  Raises CalledProcessError, FileNotFoundError."""
    if not missing():
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
    command = ["apt-get", "install", "-qq", "--no-install-recommends", *PACKAGES]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def _capabilities() -> int:
    """The effective capabilities of this process, as bits."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))


STATE = Path("/run/muster-node")
"""Sockets and running containers."""

DATA = Path("/var/lib/muster-node")
"""Images, file systems of containers, volumes, logs of pods."""

LOCK = Path("/run/muster-node.lock")
"""Locked while a node runs: a machine can have one."""

CONTAINERD_SOCKET = STATE / "containerd.sock"
KUBELET_FOLDER = DATA / "kubelet"
POD_LOGS = DATA / "pod-logs"

CGROUP = "muster-node"
"""The control group of all pods of the node; pods of another kubelet are in other groups."""

BRIDGE = "muster-node0"
NETWORK, GATEWAY, PREFIX = "10.88.0.0/16", "10.88.0.1", 16
"""The pods' network.  The gateway is also the address of the kubelet, which refuses a loopback address, and the DNS."""

LAST_POD = "10.88.254.255"
SERVICES = "10.88.255.0/24"
"""The Services' network, a part of the pods' network so that the machine needs only one; only the first address, the
API server's, is in use.
"""

POD_NETWORK = "muster-node"
"""The name of the pods' network for the CNI plugins."""

SYSCTLS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""The settings that the kubelet and the bridge plugin change for the whole machine."""

SYSCTLS_BEFORE = STATE / "sysctls.json"

CNI_CACHE = Path("/var/lib/cni/results")
CONTAINER_LOG_LINKS = Path("/var/log/containers")
"""Folders of containerd and the kubelet whose paths cannot be changed."""
