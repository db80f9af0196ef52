"""The system calls that Python does not offer: namespaces, mounts, capabilities.

The zygote imports this module, so it has few and small imports.
"""

import ctypes
import os
import struct

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 4096, 16384, 1 << 18

_MNT_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_ATTR_RDONLY = 1
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_LAST_CAPABILITY = 40
_MOUNT_SETATTR = 442
"""The system call's number, which is the same on every architecture."""
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int = 0) -> None:
    _checked(_libc.setns(descriptor, kind), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    arguments = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _checked(_libc.mount(*arguments), f"mount {source or kind} on {target}")


def umount(target: str) -> None:
    """Detach the mount; the kernel removes it when the last process has left it."""
    _checked(_libc.umount2(target.encode(), _MNT_DETACH), f"umount {target}")


def bind(source: str, target: str) -> None:
    """Bind a folder with the mounts below it; in a user namespace a bind without them is not permitted."""
    mount(source, target, flags=MS_BIND | MS_REC)


def set_read_only(target: str, *, value: bool = True, recursive: bool = False) -> None:
    """Make a mount read-only or writable.  It needs Linux 5.12: the older call cannot change the mounts below."""
    attributes = struct.pack("QQQQ", _ATTR_RDONLY if value else 0, 0 if value else _ATTR_RDONLY, 0, 0)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    flags = _AT_RECURSIVE if recursive else 0
    number = ctypes.c_long(_MOUNT_SETATTR)
    size = ctypes.c_size_t(len(attributes))
    _checked(_libc.syscall(number, _AT_FDCWD, target.encode(), flags, buffer, size), f"mount_setattr {target}")


def pivot_root(folder: str) -> None:
    """Make `folder`, a mount, the root; the old root is unmounted."""
    os.chdir(folder)
    # The old root is mounted over the new one and unmounted, so it needs no folder.
    _checked(_libc.syscall(ctypes.c_long(_PIVOT_ROOT[os.uname().machine]), b".", b"."), "pivot_root")
    _checked(_libc.umount2(b".", _MNT_DETACH), "umount of the old root")
    os.chdir("/")


def set_hostname(name: str) -> None:
    _checked(_libc.sethostname(name.encode(), ctypes.c_size_t(len(name.encode()))), "sethostname")


def die_with_parent(number: int) -> None:
    """Make the kernel send the signal `number` to this process when the thread that forked it ends."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, number), "prctl")


def keep_capabilities(kept: frozenset[int]) -> None:
    """Drop all other capabilities from this process and the programs that it starts, even as root."""
    for capability in range(_LAST_CAPABILITY + 1):
        if capability not in kept:
            # An older kernel does not have the newest capabilities.
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def no_new_privileges() -> None:
    """Make programs that this process starts gain no rights from their files, such as setuid."""
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
