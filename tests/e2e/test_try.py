"""`muster try`: a person's program in the embedded cluster, in their folder; what it refuses, and how it ends."""

import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from muster.trial import examined, manifest
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.job.spec import JobSpec
from shared.ports import ALL, RANGE
from tests.crds.judges import Embedded
from tests.frameworks.documents import custom
from tests.kit.commands import run
from tests.kit.demo import demo, until
from tests.kit.traces import nothing_running

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 120.0
WITHOUT_MUSTER = str(Path(sys.base_prefix) / "bin" / "python3")
"""As a person's own Python is."""
TRAINS = """
import os, pathlib, sys, time
number = os.environ["HOSTNAME"]
print("trains", sys.argv[1:], sys.executable, flush=True)
from muster.train import report
report(7, 9)
while not pathlib.Path("enough").exists():
    time.sleep(0.1)
pathlib.Path(number).write_text("done")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The person's folder, below `/tmp` as few are; the state of Muster is beside it."""
    made = tmp_path / "mine"
    made.mkdir()
    (tmp_path / "state").mkdir()
    monkeypatch.chdir(made)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    return made


def trying(folder: Path, program: str, text: str, *options: str):
    (folder / program).write_text(text)
    return demo(folder.parent / "state", "--python", WITHOUT_MUSTER, program, *options, command="try")


def files(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def leaves_nothing(folder: Path) -> None:
    assert nothing_running(folder.parent / "state") == []
    assert files(folder.parent / "state") == set()


async def test_a_program_of_a_person_runs_scales_and_ends_in_its_own_folder(folder: Path):
    with trying(folder, "my_train.py", TRAINS, "--workers", "2", "--", "--epochs", "3") as process:
        printed = until(process, "in another terminal")
        # A pipe has no live line, and the start takes seconds.
        assert "starting NATS" in printed[0]
        (prepared,) = re.findall(r"in another terminal: (\. \S+);", printed[-1])
        (address,) = re.findall(r"watch it at (http://\S+)", "\n".join(printed))
        first, last = map(int, os.environ.get(RANGE, ALL).split("-"))
        assert first <= int(address.split("/")[2].rpartition(":")[2]) <= last
        told = until(process, "[my-train-worker-1] trains")
        for awaited in ("pytorchjob/my-train Running", "reported: current_step 7, total_steps 9"):
            if not any(awaited in line for line in told):
                told += until(process, awaited)
        assert f"trains ['--epochs', '3'] {WITHOUT_MUSTER}" in "\n".join(told)
        said = await run("bash", "-c", f"{prepared}; muster scale pytorchjob/my-train --to 3; curl -sf {address}")
        assert said.code == 0, said
        until(process, "[my-train-worker-2] trains")
        (folder / "enough").touch()
        ended = until(process, "trained")
        # Workers that did the same share a line.
        lanes = [[*map(int, line.split()[1].split("-"))] for line in ended if line.startswith("worker ")]
        assert [number for lane in lanes for number in range(lane[0], lane[-1] + 1)] == [0, 1, 2]
        process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0
    assert all(f"my-train-worker-{number}" in files(folder) for number in range(3))
    leaves_nothing(folder)


async def test_a_program_that_fails_ends_the_job_with_its_last_words(folder: Path):
    with trying(folder, "train.py", "import nothing_of_this_name", "--workers", "1") as process:
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 1
    last = said.splitlines()[-1]
    assert last.startswith("muster: pytorchjob/train is Failed")
    assert last.endswith("ModuleNotFoundError: No module named 'nothing_of_this_name')")


def test_ctrl_c_leaves_nothing(folder: Path):
    with trying(folder, "train.py", TRAINS) as process:
        until(process, "[train-worker-0] trains")
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 130
        assert "Traceback" not in said
    leaves_nothing(folder)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param(["other.py"], "there is no program at other.py", id="no such file"),
        pytest.param(["notes.py"], "notes.py: line 2 is not Python: invalid syntax", id="no Python"),
        pytest.param(["train.py", "--workers", "0"], "greater than or equal to 1", id="no worker"),
        pytest.param(["train.py", "--python", "/nowhere"], "/nowhere does not run", id="a Python that is not there"),
    ],
)
async def test_what_cannot_be_tried_is_one_line(folder: Path, options: Sequence[str], said: str):
    (folder / "train.py").write_text(TRAINS)
    (folder / "notes.py").write_text("\nsome notes of mine\n")
    ended = await run(sys.executable, "-m", "muster", "try", *options)
    assert (ended.code, ended.out) == (2, "")
    (line,) = ended.complaint.splitlines()
    assert said in line


@pytest.mark.parametrize("has_torch", [True, False], ids=["with torch", "without"])
async def test_the_exported_job_is_one_that_a_cluster_takes(folder: Path, has_torch: bool):
    (folder / "train.py").write_text(TRAINS)
    program = examined(Path("train.py"), ["--epochs", "3"], sys.executable)._replace(has_torch=has_torch)
    made = manifest(program, 2, folder, "registry.example/mine:1")
    assert await Embedded().refusals(made) == []
    assert await Embedded().pruned(made) == []
    (container,) = made["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    begins = ["torchrun"] if has_torch else ["python"]
    assert container["command"] == [*begins, "train.py", "--epochs", "3"]
    assert str(folder) not in str(made)
    made["metadata"]["uid"] = "uid-1"
    spec = PYTORCHJOB.parse(custom(made))
    assert isinstance(spec, JobSpec)
    assert spec.handling.elastic


async def test_what_is_exported_can_be_applied_as_it_is_printed(folder: Path):
    (folder / "train.py").write_text(TRAINS)
    ended = await run(
        sys.executable, "-m", "muster", "try", "train.py", "--workers", "4", "--export", "--image", "me/it"
    )
    assert ended.code == 0, ended
    made = yaml.safe_load(ended.out)
    assert made["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 4
    assert await Embedded().refusals(made) == []


def test_the_active_environment_comes_before_the_path(folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / "train.py").write_text(TRAINS)
    monkeypatch.setenv("VIRTUAL_ENV", str(Path(sys.executable).parents[1]))
    monkeypatch.setenv("PATH", "/nowhere")
    assert examined(Path("train.py"), (), "").python == sys.executable


def test_without_an_environment_the_python_is_not_that_of_muster(folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / "train.py").write_text(TRAINS)
    (folder / "bin").mkdir()
    (folder / "bin" / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    monkeypatch.setenv("PATH", f"{sys.prefix}/bin:{folder}/bin")
    assert examined(Path("train.py"), (), "").prefixes[0] == Path(sys.base_prefix)
    monkeypatch.setenv("PATH", f"{sys.prefix}/bin")
    assert examined(Path("train.py"), (), "").python == sys.executable
