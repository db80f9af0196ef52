"""The images of the node, made here: a Debian root from debootstrap, and layers of this repository on it.

One archive has all of them; it is kept outside the tree, named by the digest of its sources.
"""

import fcntl
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from devcluster.realnode.machine import PACKAGES

RECIPE = 1
"""Raised when this file makes other images from the same sources."""

DEBIAN_PACKAGES = ("python3", "python3-numpy", "python3-venv", "python-is-python3", "openssh-server")
"""Packages for the examples, for workers of MPI jobs, and for Muster's own image, besides a minimal system."""

SUPERFLUOUS = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "var/cache/apt",
    "var/lib/apt/lists",
    "dev",
    "proc",
)
"""Files of the root that no container needs: half of its size."""

PAUSE = "localhost/pause:1"
SHELL = "docker.io/library/shell:1"
"""The bare Debian root.  A pod asks for `shell:1`; without a tag the kubelet would try to pull it."""

KEPT_SECONDS = 7 * 24 * 3600
"""A week: each change of an example makes an archive of 200 MB."""

DOCKER_HUB = "docker.io/library"
"""The registry that containerd adds to a name without one."""

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
UNPRIVILEGED = "65534"


class ImageError(Exception):
    """An image could not be made; the message ends with the tool's output."""


def cache() -> Path:
    """The folder of the images, outside the tree; after its deletion they are made again."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "muster" / "images"


def archive(folders: Mapping[str, Path]) -> Path:
    """One docker-archive with the pause image, the shell, and an image for each folder, by image name.

    The first call with the same folders builds it, in about a minute.  Raises ImageError.
    """
    place = cache()
    place.mkdir(parents=True, exist_ok=True)
    with _alone(place):
        made = place / f"{_digest(folders)}.tar"
        if not made.exists():
            with tempfile.TemporaryDirectory(dir=place) as scratch:
                _build(Path(scratch), folders, place).rename(made)
        made.touch()
        _forget(place, made)
        return made


def root() -> Path:
    """The bare Debian root as an archive.  Raises ImageError."""
    place = cache()
    place.mkdir(parents=True, exist_ok=True)
    with _alone(place), tempfile.TemporaryDirectory(dir=place) as scratch:
        return _root(Path(scratch), place)


def _root(scratch: Path, place: Path) -> Path:
    made = place / f"root-{_root_digest()}.tar"
    if not made.exists():
        _debian(scratch).rename(made)
    made.touch()
    return made


def _forget(place: Path, newest: Path) -> None:
    """Remove archives whose last use was `KEPT_SECONDS` or more before that of the newest."""
    for file in place.glob("*.tar"):
        if file != newest and file.stat().st_mtime < newest.stat().st_mtime - KEPT_SECONDS:
            file.unlink()


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(folders: Mapping[str, Path]) -> str:
    digest = hashlib.sha256(_root_digest().encode())
    for name, folder in sorted(folders.items()):
        digest.update(name.encode())
        for file in _programs(folder):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _root_digest() -> str:
    parts = (RECIPE, *_suite(), platform.machine(), *DEBIAN_PACKAGES)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _suite() -> tuple[str, str]:
    """The release of the machine's distribution, and the mirror of its packages."""
    facts = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    release = facts.get("VERSION_CODENAME", "").strip('"')
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)", f"Codename: {release}", "Created-By: Packages"]
    mirrors = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    if not release or not mirrors:
        raise ImageError("no package sources of this machine's release are known to apt; images are built from them")
    return release, mirrors[0]


def _programs(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.is_file())


def _build(scratch: Path, folders: Mapping[str, Path], place: Path) -> Path:
    images: list[tuple[str, list[Path], dict[str, Any]]] = []
    base = _root(scratch, place)
    images.append((SHELL, [base], {"Cmd": ["/bin/sh"]}))
    images.append((PAUSE, [_pause(scratch)], {"Entrypoint": ["/busybox", "sleep", "1000000000"]}))
    for number, (name, folder) in enumerate(sorted(folders.items())):
        home = f"/{folder.name}"
        layer = scratch / f"layer-{number}.tar"
        with tarfile.open(layer, "w") as tar:
            _add_folder(tar, home)
            for file in _programs(folder):
                tar.add(file, f"{home}/{file.name}", filter=_plain)
        images.append((f"{DOCKER_HUB}/{name}:latest", [base, layer], {"WorkingDir": home, "User": UNPRIVILEGED}))
    return _docker_archive(scratch / "images.tar", images)


def _debian(scratch: Path) -> Path:
    release, mirror = _suite()
    root = scratch / "root"
    include = ",".join(DEBIAN_PACKAGES)
    command = ["debootstrap", "--variant=minbase", f"--include={include}", release, str(root), mirror]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ImageError(f"debootstrap ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    layer = scratch / "root.tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(root, "/", filter=_needed)
        for folder in ("/dev", "/proc", "/sys"):
            _add_folder(tar, folder)
    return layer


def _pause(scratch: Path) -> Path:
    """The root of the pause image, whose process keeps a pod's namespaces."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise ImageError(f"busybox is not installed; install {' '.join(PACKAGES)}")
    layer = scratch / "pause.tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(busybox, "/busybox", filter=_plain)
    return layer


def _add_folder(tar: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    tar.addfile(entry)


def _needed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.lstrip("/").startswith(SUPERFLUOUS) else entry


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The entry owned by root and readable by any user, so that an image does not depend on this user's files."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode |= 0o444
    return entry


def _docker_archive(archive: Path, images: list[tuple[str, list[Path], dict[str, Any]]]) -> Path:
    """The format of `docker save`: layers, a configuration for each image, and a list of the images."""
    manifest = []
    names: dict[Path, tuple[str, str]] = {}
    with tarfile.open(archive, "w") as tar:
        for name, layers, config in images:
            for layer in layers:
                if layer not in names:
                    with layer.open("rb") as file:
                        digest = hashlib.file_digest(file, "sha256").hexdigest()
                    names[layer] = (f"{digest}.tar", f"sha256:{digest}")
                    tar.add(layer, names[layer][0])
            document = {
                "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
                "os": "linux",
                "config": config,
                "rootfs": {"type": "layers", "diff_ids": [names[layer][1] for layer in layers]},
            }
            config_name = f"{hashlib.sha256(name.encode()).hexdigest()}.json"
            _add_document(tar, config_name, document)
            manifest.append(
                {"Config": config_name, "RepoTags": [name], "Layers": [names[layer][0] for layer in layers]}
            )
        _add_document(tar, "manifest.json", manifest)
    return archive


def _add_document(tar: tarfile.TarFile, name: str, document: Any) -> None:
    data = json.dumps(document).encode()
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o644
    tar.addfile(entry, io.BytesIO(data))
