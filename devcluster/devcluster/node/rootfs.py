"""A container's root: the files of the host, read-only, with private folders and the pod's volumes.

The root is a fresh tmpfs into which the entries of the host's root are bound.  Where a mount point is missing, the
parent folder is *opened*: it is made in the tmpfs, and its entries are bound in the same way.
"""

# The zygote imports this module, so it has few and small imports.
# ruff: noqa: PTH101, PTH102, PTH103, PTH110, PTH112, PTH113, PTH115, PTH116, PTH120, PTH123, PTH211

import errno
import os
import stat
from collections.abc import Iterable
from typing import TypedDict

from devcluster.node import kernel

PRIVATE = {"/tmp": 0o1777, "/run": 0o755, "/dev": 0o755, "/proc": 0o555}  # noqa: S108
"""Folders that begin empty in each container and end with it, with their modes."""

IMAGE_FOLDERS = ("/run/sshd",)
"""Folders below the private ones that images have: sshd does not start without `/run/sshd`."""

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}

SIZE = "64m"
"""The size of the tmpfs, which has only files that the container writes outside its volumes."""

_UNBINDABLE = (errno.EACCES, errno.ENOENT, errno.EINVAL, errno.EPERM)


class Mount(TypedDict):
    source: str
    target: str
    read_only: bool


def enter(
    base: str, mounts: Iterable[Mount], files: dict[str, str], *, read_only: bool = False, for_any_user: bool = False
) -> None:
    """Make the root at the folder `base` and change into it; the caller has a mount namespace of its own.

    `files` has texts by path, which replace the host's files; their folders exist on the host.
    With `read_only`, only volumes are writable.  With `for_any_user`, users other than root can reach mounts below
    folders that other users cannot enter on the host, such as /root.
    """
    kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", base, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, f"mode=755,size={SIZE}")
    wanted = [Mount(**{**one, "target": os.path.realpath(one["target"])}) for one in mounts]
    wanted.sort(key=lambda one: one["target"].count("/"))
    opened = _to_open(wanted, files)
    if for_any_user:
        for one in wanted:
            _open_up_to(_closed(one["target"]), opened)
    for folder in sorted(opened, key=lambda folder: (folder.count("/"), folder)):
        _open(folder, base, opened, files)
    kernel.set_read_only(base, recursive=True)
    kernel.set_read_only(base, value=False)
    _fill_private(base)
    _hide(os.path.dirname(base), base)
    for path, text in files.items():
        with open(base + path, "w") as file:
            file.write(text)
    for one in wanted:
        _mount(base, one)
    if read_only:
        # Mounts below it, volumes and /dev/shm, stay writable.
        kernel.set_read_only(base)
    kernel.pivot_root(base)


def _to_open(mounts: list[Mount], files: dict[str, str]) -> set[str]:
    opened = {"/"}
    inside = list(PRIVATE)
    for path in files:
        _open_up_to(os.path.dirname(path), opened)
    for one in mounts:
        target = one["target"]
        covered = any(target.startswith(f"{folder}/") for folder in inside)
        fits = os.path.isdir(target) if os.path.isdir(one["source"]) else os.path.isfile(target)
        if not covered and not fits:
            folder = os.path.dirname(target)
            while not os.path.isdir(folder):
                folder = os.path.dirname(folder)
            _open_up_to(folder, opened)
        inside.append(target)
    return opened


def _closed(path: str) -> str:
    """The deepest folder above `path` that is closed to other users; the root if there is none."""
    folder = os.path.dirname(path)
    while folder != "/":
        if os.path.isdir(folder) and not os.stat(folder).st_mode & stat.S_IXOTH:
            return folder
        folder = os.path.dirname(folder)
    return folder


def _open_up_to(folder: str, opened: set[str]) -> None:
    while folder != "/":
        opened.add(folder)
        folder = os.path.dirname(folder)


def _open(folder: str, base: str, opened: set[str], files: dict[str, str]) -> None:
    try:
        entries = [*os.scandir(folder)]
    except PermissionError:
        # An agent that is not root cannot read a folder such as /root: it is empty in the container.
        return
    for entry in entries:
        if entry.path in files:
            continue
        target = base + entry.path
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        elif entry.path in PRIVATE or entry.path in opened:
            os.mkdir(target)
        else:
            _bind_entry(entry, target)


def _bind_entry(entry: "os.DirEntry[str]", target: str) -> None:
    try:
        if entry.is_dir():
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        kernel.bind(entry.path, target)
    except OSError as error:
        # An entry that cannot be bound (another user's FUSE mount, a removed file) is empty in the container.
        if error.errno not in _UNBINDABLE:
            raise


def _fill_private(base: str) -> None:
    for folder, mode in PRIVATE.items():
        os.makedirs(base + folder, exist_ok=True)
        os.chmod(base + folder, mode)
    for folder in IMAGE_FOLDERS:
        os.makedirs(base + folder, mode=0o755)
    kernel.mount("proc", f"{base}/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    for name in DEVICES:
        os.close(os.open(f"{base}/dev/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
        kernel.bind(f"/dev/{name}", f"{base}/dev/{name}")
    for name, target in DEVICE_LINKS.items():
        os.symlink(target, f"{base}/dev/{name}")
    os.mkdir(f"{base}/dev/pts")
    kernel.mount("devpts", f"{base}/dev/pts", "devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, "newinstance,ptmxmode=666")
    shared = f"{base}/dev/shm"  # noqa: S108 - the container's own
    os.mkdir(shared)
    kernel.mount("tmpfs", shared, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")


def _hide(folder: str, base: str) -> None:
    """Hide the node's own folder, which has the volumes of other pods."""
    if os.path.isdir(base + folder):
        kernel.mount("tmpfs", base + folder, "tmpfs", kernel.MS_RDONLY)


def _mount(base: str, one: Mount) -> None:
    target = base + one["target"]
    if os.path.isdir(one["source"]):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.bind(one["source"], target)
    if one["read_only"]:
        kernel.set_read_only(target, recursive=True)
