"""The Makefile in a fresh clone: what each target installs and prints, and what an interruption leaves.

Two small projects with wheels of their own stand for ours, so that nothing is fetched.
"""

import base64
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LONGEST_SECONDS = 120.0

PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "{name}"
version = "1"
"""

BACKEND = """
import shutil

def build_editable(folder, settings=None, metadata=None):
    return shutil.copy("{wheel}", folder).rpartition("/")[2]
"""


def wheel(folder: Path, name: str) -> str:
    """A package of one empty module in `folder`; its line in a lock."""
    info = f"{name}-1.dist-info"
    files = {
        f"{name}.py": b"",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_digest(content)},{len(content)}\n" for path, content in files.items())
    made = folder / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, content in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()}.items():
            archive.writestr(path, content)
    return f"{name}==1 \\\n    --hash=sha256:{hashlib.sha256(made.read_bytes()).hexdigest()}\n"


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


class Checkout:
    """A clone of the small project, with our Makefile."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        wheels = folder / "wheels"
        wheels.mkdir()
        for name, project in (("muster", folder), ("devcluster", folder / "devcluster")):
            wheel(wheels, name)
            project.mkdir(exist_ok=True)
            (project / "pyproject.toml").write_text(PROJECT.format(name=name))
            (project / "backend.py").write_text(BACKEND.format(wheel=wheels / f"{name}-1-py3-none-any.whl"))
        (folder / "requirements.lock").write_text(wheel(wheels, "running"))
        (folder / "requirements-dev.lock").write_text(wheel(wheels, "developing"))
        shutil.copy(ROOT / "Makefile", folder)
        self._environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
        # Those of a `make test` that we run under would be inherited.
        for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
            self._environment.pop(name, None)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["make", f"PYTHON={sys.executable}", *words],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
            # A shell's background job ignores Ctrl-C, and so would all that it starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  one system call
        )

    def make(self, *words: str) -> tuple[int, str]:
        """Exit code and output of `make`."""
        with self.start(*words) as process:
            said, _ = process.communicate(timeout=LONGEST_SECONDS)
        return process.returncode, said

    def installed(self) -> set[str]:
        """The project's packages in the virtual environment."""
        (folder,) = self.folder.glob(".venv/lib/python*/site-packages")
        return {path.name.partition("-")[0] for path in folder.glob("*-1.dist-info")}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_running_installs_only_what_running_needs_and_each_step_is_told(checkout: Checkout):
    code, said = checkout.make(".venv/.ready")
    assert code == 0, said
    assert checkout.installed() == {"devcluster", "muster", "running"}
    assert [line[:3] for line in said.splitlines() if re.match(r"\d/\d", line)] == ["1/3", "2/3", "3/3"], said
    assert " running" in said, "each package is named when its turn comes"

    assert "done" not in checkout.make(".venv/.ready")[1], "it is done once"

    code, said = checkout.make(".venv/.developing")
    assert code == 0, said
    assert checkout.installed() == {"devcluster", "muster", "running", "developing"}
    assert " developing" in said

    # A new lock is installed into what is there.
    mark = checkout.folder / ".venv" / "mark"
    mark.touch()
    with (checkout.folder / "requirements.lock").open("a") as lock:
        lock.write(wheel(checkout.folder / "wheels", "another"))
    code, said = checkout.make(".venv/.developing")
    assert code == 0, said
    assert checkout.installed() == {"devcluster", "muster", "running", "developing", "another"}
    assert mark.exists()


def test_an_interrupted_installation_is_finished_by_the_next_one(checkout: Checkout):
    # What Ctrl-C leaves in the first seconds: a Python, and no pip yet.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", checkout.folder / ".venv"], check=True)
    for step in ("2/3", "3/3"):
        with checkout.start(".venv/.ready") as process:
            assert process.stdout is not None
            assert any(line.startswith(step) for line in process.stdout), f"never said {step}"
            os.killpg(process.pid, signal.SIGINT)
            process.communicate(timeout=LONGEST_SECONDS)
        assert process.returncode != 0
        assert not (checkout.folder / ".venv" / ".ready").exists()
    code, said = checkout.make(".venv/.ready")
    assert code == 0, said
    assert checkout.installed() == {"devcluster", "muster", "running"}


def test_a_package_of_another_content_is_refused_and_nothing_counts_as_installed(checkout: Checkout):
    file = checkout.folder / "requirements-dev.lock"
    file.write_text(re.sub(r"sha256:\w+", f"sha256:{'0' * 64}", file.read_text()))
    code, said = checkout.make(".venv/.developing")
    assert code != 0
    assert "DO NOT MATCH THE HASHES" in said
    assert "not installed: the next make begins again" in said
    assert not (checkout.folder / ".venv" / ".ready").exists()


@pytest.mark.parametrize(
    ("target", "developing"),
    [
        pytest.param(["demo"], False, id="the demo"),
        pytest.param(["demo", "CLUSTER=k3s"], True, id="the demo in a container takes testcontainers"),
        pytest.param(["control-plane"], False, id="a control plane"),
        pytest.param(["test"], True, id="tests"),
        pytest.param(["lint"], True, id="lint"),
        pytest.param(["types"], True, id="types"),
    ],
)
def test_a_target_installs_the_development_set_only_if_it_takes_a_tool_of_it(target: list[str], developing: bool):
    assert ("requirements-dev.lock" in would_run("--always-make", *target)) is developing


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        pytest.param("KEEP=1", True, id="one"),
        pytest.param("KEEP=yes", True, id="yes"),
        pytest.param("KEEP=0", False, id="zero"),
        pytest.param("KEEP=no", False, id="no"),
        pytest.param("KEEP=", False, id="nothing"),
    ],
)
def test_keep_is_passed_on_unless_its_value_says_no(keep: str, kept: bool):
    assert ("--keep" in would_run("demo", keep)) is kept


def test_the_help_stays_short_enough_to_be_read():
    said = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert 10 <= sum(line.startswith(" ") for line in said.splitlines()) <= 15


def would_run(*words: str) -> str:
    """The commands that `make` would run in this checkout."""
    return subprocess.run(["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout
