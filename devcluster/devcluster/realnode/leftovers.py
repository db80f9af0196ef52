"""Removes a node from the machine: the last step of every run, and the first step of the next run after a kill.

Processes are ended by their ids: those in the node's control group, and its programs that were started with its
folders.  All steps can be repeated, and do nothing on a clean machine.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from devcluster.node import kernel
from devcluster.node.network import Netlink
from devcluster.realnode import machine

PROGRAMS = ("kubelet", "containerd", "containerd-shim", "coredns")
"""The prefixes of the names of the node's programs."""

PATIENCE = 10.0
"""Seconds until killed processes are gone, and until the kernel has released their mounts and groups."""

SYSCTL = Path("/proc/sys")
CGROUPS = Path("/sys/fs/cgroup")


class LeftoverError(Exception):
    """A process, mount or group of an earlier node cannot be removed; the message names it."""


def clean() -> None:
    """Remove a node's processes, mounts, networks, groups and files.  Raises LeftoverError."""
    # The kubelet goes first, or it restarts its pods; the shims go last, because they reap the pods' processes.
    _end(lambda: _programs("kubelet", "coredns"))
    end_pods()
    _end(lambda: _programs(*PROGRAMS))
    _unmount()
    _remove_bridge()
    _remove_cgroups()
    _restore_sysctls()
    _remove_files()


def end_pods() -> None:
    """Kill every process of every pod.  Raises LeftoverError."""
    _end(_pod_processes)


def cgroup_folders() -> list[Path]:
    """The node's control group in each hierarchy of the machine, existing or not."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS / machine.CGROUP]
    return [hierarchy / machine.CGROUP for hierarchy in sorted(CGROUPS.iterdir()) if hierarchy.is_dir()]


def make_cgroups() -> None:
    """Make the control group that is the kubelet's root; the kubelet does not make it."""
    if (CGROUPS / "cgroup.controllers").exists():
        controllers = (CGROUPS / "cgroup.controllers").read_text().split()
        (CGROUPS / "cgroup.subtree_control").write_text(" ".join(f"+{one}" for one in controllers))
    for folder in cgroup_folders():
        folder.mkdir(exist_ok=True)


def remember_sysctls() -> None:
    """Save the machine's settings, which the clean-up restores."""
    before = {name: (SYSCTL / name).read_text().strip() for name in machine.SYSCTLS if (SYSCTL / name).exists()}
    machine.SYSCTLS_BEFORE.write_text(json.dumps(before))


def _restore_sysctls() -> None:
    if not machine.SYSCTLS_BEFORE.exists():
        return
    for name, value in json.loads(machine.SYSCTLS_BEFORE.read_text()).items():
        (SYSCTL / name).write_text(value)


def _pod_processes() -> set[int]:
    found: set[int] = set()
    for group in _groups():
        # A group may disappear during the search.
        with contextlib.suppress(OSError):
            found.update(int(line) for line in (group / "cgroup.procs").read_text().split())
    return found


def _groups() -> list[Path]:
    """The node's control groups, the innermost first."""
    # Not `rglob`, which fails if a folder disappears during the search.
    return [Path(folder) for top in cgroup_folders() for folder, _, _ in os.walk(top, topdown=False)]


def _programs(*names: str) -> set[int]:
    found: set[int] = set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            ours = any(str(place) in word for word in words[1:] for place in (machine.STATE, machine.DATA))
            if ours and Path(words[0]).name.startswith(names):
                found.add(int(folder.name))
    return found


def _end(find: Callable[[], set[int]]) -> None:
    """Kill the processes that `find` returns until it returns none."""
    deadline = time.monotonic() + PATIENCE
    while left := find():
        if time.monotonic() > deadline:
            raise LeftoverError(f"processes {sorted(left)} of an earlier node do not end")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _mounts() -> Iterator[str]:
    """The node's mount points, the innermost first."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    for line in reversed(lines):
        place = line.split()[1].encode().decode("unicode_escape")
        if place.startswith((f"{machine.STATE}/", f"{machine.DATA}/")):
            yield place


def _unmount() -> None:
    for place in list(_mounts()):
        with contextlib.suppress(OSError):
            kernel.umount(place)
    if left := list(_mounts()):
        raise LeftoverError(f"still mounted of an earlier node: {', '.join(left)}")


def _remove_bridge() -> None:
    with contextlib.suppress(OSError), Netlink() as netlink:
        netlink.delete(socket.if_nametoindex(machine.BRIDGE))


def _remove_cgroups() -> None:
    deadline = time.monotonic() + PATIENCE
    while groups := _groups():
        if time.monotonic() > deadline:
            raise LeftoverError(f"the control groups {groups} of an earlier node cannot be removed")
        for group in groups:
            # Busy until the kernel has removed the last process from it.
            with contextlib.suppress(OSError):
                group.rmdir()
        time.sleep(0.01)


def _remove_files() -> None:
    for folder in (machine.STATE, machine.DATA):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
    for file in machine.CNI_CACHE.glob("*"):
        # The CNI plugins keep a file for every interface, the loopback too.
        if str(machine.STATE) in file.read_text():
            file.unlink(missing_ok=True)
    for link in machine.CONTAINER_LOG_LINKS.glob("*.log"):
        if link.is_symlink() and str(link.readlink()).startswith(f"{machine.POD_LOGS}/"):
            link.unlink(missing_ok=True)
