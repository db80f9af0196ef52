"""LICENSE: the standard text of Apache-2.0, in the wheel and so in the image, which installs the wheel."""

import hashlib
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
LICENSE = ROOT / "LICENSE"
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""SHA-256 of the text that the Apache Software Foundation publishes."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_licence_is_the_standard_text():
    assert hashlib.sha256(LICENSE.read_bytes()).hexdigest() == APACHE_2


def test_the_wheel_carries_the_licence_that_its_metadata_names(wheel: Path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    about = f"muster-{project['version']}.dist-info"
    with ZipFile(wheel) as archive:
        metadata = archive.read(f"{about}/METADATA").decode()
        assert archive.read(f"{about}/licenses/LICENSE") == LICENSE.read_bytes()
    assert "License-Expression: Apache-2.0\nLicense-File: LICENSE\n" in metadata


def test_the_image_is_built_from_a_folder_that_has_the_licence():
    assert "!LICENSE" in (ROOT / ".dockerignore").read_text().splitlines()
