"""Files that change all at once, in the kubelet's way: a reader sees all of the old version or all of the new one.

folder/..2026_01_02_03_04_05.8zx1/hosts     the files
folder/..data -> ..2026_01_02_03_04_05.8zx1  swapped by one rename
folder/hosts -> ..data/hosts
"""

import os
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

DATA = "..data"


class File(NamedTuple):
    content: bytes
    mode: int


def write(folder: Path, files: Mapping[str, File], group: int | None = None) -> bool:
    """Make `folder` show exactly these files, by relative path and of this group; whether anything changed."""
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / DATA
    before = folder / link.readlink() if link.is_symlink() else None
    if before is not None and _read(before) == files:
        return False
    version = folder / f"..{time.strftime('%Y_%m_%d_%H_%M_%S')}.{secrets.token_hex(4)}"
    version.mkdir(mode=0o755)
    for path, file in files.items():
        target = version / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        if group is not None:
            os.chown(target, -1, group)
        target.chmod(file.mode)
    new = folder / f"{DATA}_tmp"
    new.unlink(missing_ok=True)
    new.symlink_to(version.name)
    new.rename(link)
    _show(folder, {path.partition("/")[0] for path in files})
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)
    return True


def _read(version: Path) -> dict[str, File]:
    return {
        str(path.relative_to(version)): File(path.read_bytes(), path.stat().st_mode & 0o7777)
        for path in version.rglob("*")
        if path.is_file()
    }


def _show(folder: Path, names: set[str]) -> None:
    for name in names:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"{DATA}/{name}")
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()
