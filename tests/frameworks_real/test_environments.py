"""How the environments of the real frameworks are made, without asking any package index."""

import hashlib
import re
import sys
import tarfile
from pathlib import Path

import pytest

from tests.frameworks_real import environments
from tests.frameworks_real.environments import PYTHONS, Broken, Unavailable, environment, locks, versions

BUILDS = """
import os, zipfile

def build_wheel(folder, *_):
    name = "tiny-1.0-py3-none-any.whl"
    about = "tiny-1.0.dist-info"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("tiny.py", os.environ.get("FLAVOUR", ""))
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{about}/RECORD", "")
    return name
"""
"""Builds a package whose module is the value of a variable."""

NO_INDEX = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
NOBODY_ANSWERS = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "1", "PIP_FIND_LINKS": ""}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where environments are made instead of people's own, of the Python that runs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(PYTHONS, "mpi", (".".join(map(str, sys.version_info[:2])),))
    return tmp_path / "muster" / "frameworks" / "mpi"


@pytest.mark.parametrize("name", PYTHONS)
def test_every_package_is_an_exact_version_with_hashes_and_from_no_address(name):
    text = "".join(file.read_text() for file in locks(name))
    lines = [line for line in text.replace("\\\n", " ").splitlines() if not line.startswith("#")]
    assert lines
    assert all(re.match(r"[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line) for line in lines)
    assert "://" not in text


@pytest.mark.parametrize(
    ("settings", "problem", "words"),
    [
        pytest.param(NO_INDEX, Unavailable, "mpi: no wheel for this platform", id="no wheel is a reason to skip"),
        pytest.param(NOBODY_ANSWERS, Broken, "mpi could not be installed", id="no index is an error"),
    ],
)
def test_what_cannot_be_installed_leaves_nothing(cache, monkeypatch, settings, problem, words):
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(problem, match=words):
        environment("mpi", lambda line: None)
    assert [path.name for path in cache.iterdir() if path.is_dir()] == []


def test_without_a_python_that_has_wheels_the_reason_names_those_that_have(cache, monkeypatch):
    monkeypatch.setitem(PYTHONS, "mpi", ("3.1", "3.2"))
    with pytest.raises(Unavailable, match=r"for Python 3\.1 or 3\.2, and none is on this machine"):
        environment("mpi", lambda line: None)


def test_without_a_compiler_the_reason_names_the_programs_that_are_missing(cache, monkeypatch):
    monkeypatch.setenv("PATH", str(cache))
    with pytest.raises(Unavailable, match=r"cmake, g\+\+, make must be installed"):
        environment("horovod", lambda line: None)


def test_an_environment_that_was_not_finished_is_made_again_and_a_finished_one_is_used(cache, monkeypatch):
    made = []

    def make(name, files, python, folder, say):
        assert not folder.exists()
        folder.mkdir()
        made.append(folder)

    monkeypatch.setattr(environments, "_make", make)
    first = environment("mpi")
    (first / ".ready").unlink()
    assert environment("mpi") == environment("mpi") == first
    assert made == [first, first]


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package without a wheel, which pip finds; the digest of its archive."""
    folder = tmp_path / "tiny-1.0"
    folder.mkdir()
    (folder / "builds.py").write_text(BUILDS)
    (folder / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    (folder / "pyproject.toml").write_text('[build-system]\nrequires=[]\nbuild-backend="builds"\nbackend-path=["."]\n')
    archive = tmp_path / "tiny-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder, folder.name)
    monkeypatch.setattr(environments, "COMPILERS", ())
    for name, value in (NO_INDEX | {"PIP_FIND_LINKS": str(tmp_path), "PIP_CACHE_DIR": str(tmp_path / "pip")}).items():
        monkeypatch.setenv(name, value)
    return hashlib.sha256(archive.read_bytes()).hexdigest()


def test_what_has_no_wheel_is_compiled_with_its_variables_though_pip_keeps_wheels(cache, monkeypatch, tmp_path, tiny):
    example = tmp_path / "examples" / "mpi"
    example.mkdir(parents=True)
    (example / "requirements.txt").write_text("")
    (example / "sources.txt").write_text(f"tiny==1.0 --hash=sha256:{tiny}\n")
    monkeypatch.setattr(environments, "EXAMPLES", example.parent)
    for flavour in ("sweet", "sour"):
        monkeypatch.setitem(environments.COMPILED_WITH, "mpi", {"FLAVOUR": flavour})
        made = environment("mpi", lambda line: None)
        assert module_of(made).read_text() == flavour
        (made / ".ready").unlink()


def test_a_newest_release_without_wheels_is_compiled_too(cache, monkeypatch, tiny):
    monkeypatch.setitem(environments.NEWEST, "mpi", ("tiny",))
    monkeypatch.setattr(environments, "COMPILED", ("tiny",))
    monkeypatch.setattr(environments, "PYTHONS_OF_NEWEST", PYTHONS["mpi"])
    monkeypatch.setitem(environments.COMPILED_WITH, "mpi", {"FLAVOUR": "fresh"})
    made = environment("mpi", lambda line: None, release="newest")
    assert module_of(made).read_text() == "fresh"
    assert versions(made) == {"tiny": "1.0"}
    # For a week its versions are known, and pip asks and downloads nothing.
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    assert environment("mpi", release="newest") == made
    monkeypatch.setattr(environments, "ASKED_AGAIN_SECONDS", -1)
    with pytest.raises(Broken, match="its newest release could not be found"):
        environment("mpi", release="newest")


def module_of(made: Path) -> Path:
    [module] = made.glob("lib/python*/site-packages/tiny.py")
    return module
