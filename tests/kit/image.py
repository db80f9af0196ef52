"""Muster's own image, built of the Containerfile with buildah where no registry of images can be asked.

The base is the real node's bare Debian with its own Python, in place of the one that the Containerfile names.
"""

import hashlib
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from devcluster.realnode import images, machine
from shared.eventlog.server import _program

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
IMAGE = f"muster:{VERSION}"
LOCKS = [ROOT / "deploy" / "image" / name for name in ("build.lock", "requirements.lock")]

BASE = "localhost/base:1"
TIMESTAMP = "1700000000"
"""Of all files and of the image, as `make image` takes the commit's."""


def obstacle() -> str:
    """Why no image can be built here, and what to do; empty when one can."""
    return "" if shutil.which("buildah") else "not installed: buildah, with which the image is built; install it"


class Builder:
    """`with Builder(folder) as builder`: the base is there; nothing is left after."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = ["--root", str(folder / "store"), "--runroot", str(folder / "run"), "--storage-driver", "overlay"]

    def __enter__(self) -> "Builder":
        container = self._buildah("from", "scratch")
        self._buildah("add", "--quiet", container, str(images.root()), "/")
        version = "import sys; print('%d.%d' % sys.version_info[:2])"
        self._python = self._buildah("run", "--isolation", "chroot", container, "python3", "-c", version)
        self._buildah("commit", "--quiet", "--rm", "--timestamp", "0", container, BASE)
        return self

    def __exit__(self, *_: object) -> None:
        self._buildah("rm", "--all")
        self._buildah("rmi", "--all", "--force")
        shutil.rmtree(self._folder / "store")

    def build(self) -> str:
        """From the working tree; the identity of what came out."""
        options = ["--isolation", "chroot", "--no-cache", "--pull=never", "--timestamp", TIMESTAMP]
        arguments = {"BASE": BASE, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/packages", "VERSION": VERSION}
        options += [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
        options += ["--volume", f"{packages(self._python)}:/packages:ro", "--file", str(ROOT / "Containerfile")]
        return self._buildah("build", "--quiet", *options, "--tag", f"localhost/{IMAGE}", str(ROOT))

    def archive(self, image: str = IMAGE) -> Path:
        """What `docker save` would write, under the name by which a pod asks for it."""
        made = self._folder / f"{image.partition(':')[0]}.tar"
        made.unlink(missing_ok=True)
        self._buildah("push", "--quiet", f"localhost/{image}", f"docker-archive:{made}:{images.DOCKER_HUB}/{image}")
        return made

    def nats(self, image: str) -> Path:
        """An archive with the server of our wheel and the node's shell, under the name that the chart has for it."""
        container = self._buildah("from", "scratch")
        self._buildah("add", "--quiet", container, _program(), "/usr/local/bin/nats-server")
        busybox = shutil.which("busybox")
        assert busybox, "`python -m devcluster.realnode` installs it"
        self._buildah("add", "--quiet", container, busybox, "/usr/local/bin/sh")
        self._buildah("config", "--env", "PATH=/usr/local/bin", container)
        self._buildah("commit", "--quiet", "--rm", container, f"localhost/{image}")
        return self.archive(image)

    def _buildah(self, command: str, *words: str) -> str:
        whole = ["buildah", *self._store, command, *words]
        done = subprocess.run(whole, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(whole)} ended with {done.returncode}:\n{done.stderr[-3000:]}"
        return done.stdout.strip()


def have(archive: Path) -> None:
    """The node has what is in it, as if pulled."""
    ctr = ["ctr", "--address", str(machine.CONTAINERD_SOCKET), "--namespace", "k8s.io"]
    subprocess.run([*ctr, "images", "import", str(archive)], check=True, capture_output=True)


def packages(python: str) -> Path:
    """A folder with all that the locks name, for this version of Python; kept beside the images of the node."""
    digest = hashlib.sha256(b"".join(lock.read_bytes() for lock in LOCKS)).hexdigest()[:16]
    kept = images.cache() / f"packages-{python}-{digest}"
    if not kept.exists():
        unfinished = kept.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        locked = [word for lock in LOCKS for word in ("--requirement", str(lock))]
        options = ["--quiet", "--no-deps", "--require-hashes", "--python-version", python, "--dest", str(unfinished)]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, *locked], check=True)
        unfinished.rename(kept)
    return kept
