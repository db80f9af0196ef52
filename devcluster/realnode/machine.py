"""The requirements of a real node on this machine, and the installation of its packages."""

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
    """The folder with the CNI plugins."""
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
