"""The wheels as they would be released: of one version, and the demo runs from them in an empty folder."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from muster.page.docs import ARCHIVE

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LONGEST_SECONDS = 240.0


def test_the_version_is_the_same_wherever_a_tool_reads_it():
    version = PROJECT["version"]
    chart = yaml.safe_load((ROOT / "deploy/helm/muster/Chart.yaml").read_text())
    cluster = tomllib.loads((ROOT / "devcluster/pyproject.toml").read_text())["project"]
    (asked,) = re.findall(r"muster-devcluster==(\S+)'", str(PROJECT["optional-dependencies"]["demo"]))
    (image,) = re.findall(r"^ARG VERSION=(\S+)$", (ROOT / "Containerfile").read_text(), re.MULTILINE)
    assert {chart["version"], chart["appVersion"], cluster["version"], asked, image} == {version}
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_the_site_is_part_of_what_is_released_though_git_ignores_it(tmp_path: Path, target: str):
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("muster/page", "examples/digits"):
        shutil.copytree(ROOT / name, tmp_path / name)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    packed = ARCHIVE.relative_to(ROOT)
    (tmp_path / packed).write_text("the site")
    subprocess.run(["git", "check-ignore", "-q", packed], cwd=tmp_path, check=True)
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", target], cwd=tmp_path, check=True)
    [built] = (tmp_path / "dist").iterdir()
    shutil.unpack_archive(built, tmp_path / "unpacked", "zip" if target == "wheel" else "gztar")
    [site] = (tmp_path / "unpacked").rglob(packed.name)
    assert site.read_text() == "the site"


def test_wheels_and_images_are_built_with_the_site_of_now():
    makefile = (ROOT / "Makefile").read_text()
    rules = dict(re.findall(r"^([a-z]+):(.*?) #", makefile, re.MULTILINE))
    assert all("site" in rules[name].split() for name in ("image", "wheels"))
    assert f"tests.docs.site $(or $(SITE),site) {ARCHIVE.relative_to(ROOT)}" in makefile


@pytest.mark.e2e
def test_the_demo_runs_from_the_wheels_in_an_empty_folder(tmp_path: Path):
    wheels, installed, empty = (tmp_path / name for name in ("wheels", "installed", "empty"))
    empty.mkdir()
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "-w", wheels, ROOT, ROOT / "devcluster"], check=True, timeout=LONGEST_SECONDS)
    for wheel in wheels.iterdir():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(installed)
    # The dependencies are those of this environment; Muster itself comes from the wheels.
    ran = subprocess.run(
        [sys.executable, "-c", "import muster; print(muster.__file__); import muster.__main__ as m; m.main()", "demo"],
        cwd=empty,
        env={"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith(str(installed))
    assert "jobs compared: 1, different: 0" in ran.stdout
    assert [*empty.iterdir()] == []
