"""The Pythons that Muster runs with, where they are installed, each with an environment of its own.

An environment has what the image has, by its lock, and is made anew when the lock changes.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from tests.determinism.processes import ROOT

MINORS = (11, 12, 13)
LOCK = ROOT / "deploy" / "image" / "requirements.lock"
PYENV = Path.home() / ".pyenv" / "versions"


def environment(minor: int) -> Path | None:
    """The Python of an environment with CPython 3.`minor`; None where no such Python is installed."""
    if sys.version_info[:2] == (3, minor):
        return Path(sys.executable)
    base = next((found for found in _installed(minor) if _runs(found, minor)), None)
    if base is None:
        return None
    folder = ROOT / f".venv-3.{minor}"
    mark, wanted = folder / ".ready", sha256(LOCK.read_bytes()).hexdigest()
    if not mark.exists() or mark.read_text() != wanted:
        print(f"an environment with Python 3.{minor} in {folder.name}: a minute", flush=True)
        subprocess.run([base, "-m", "venv", "--clear", folder], check=True)
        install = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input", "--require-hashes"]
        subprocess.run([folder / "bin" / "python", *install, "-r", LOCK], check=True)
        mark.write_text(wanted)
    return folder / "bin" / "python"


def _installed(minor: int) -> Iterator[Path]:
    on_path = shutil.which(f"python3.{minor}")
    if on_path:
        yield Path(on_path)
    yield from (folder / "bin" / "python" for folder in sorted(PYENV.glob(f"3.{minor}.*"), reverse=True))


def _runs(python: Path, minor: int) -> bool:
    """It is CPython 3.`minor`: a version manager's stand-in on the path may lead nowhere."""
    asked = "import sys; print(sys.implementation.name, *sys.version_info[:2])"
    try:
        ended = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return ended.stdout.strip() == f"cpython 3 {minor}"
