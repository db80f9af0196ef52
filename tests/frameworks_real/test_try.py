"""`muster try` with an ordinary program for torchrun, as the tutorial begins."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.frameworks_real.environments import EXAMPLES, environment
from tests.kit.demo import demo, until


@pytest.mark.frameworks("pytorch", "newest")
def test_an_ordinary_program_is_tried_grows_and_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mine, state = shutil.copytree(EXAMPLES / "pytorch", tmp_path / "mine"), tmp_path / "state"
    state.mkdir()
    monkeypatch.chdir(mine)
    monkeypatch.setenv("VIRTUAL_ENV", str(environment("pytorch", release="newest")))
    # A pod has none of the person's variables.
    program = re.sub('"EPOCH_SECONDS", "0"', '"EPOCH_SECONDS", "1"', (mine / "train.py").read_text())
    (mine / "train.py").write_text(program.replace('"EPOCHS", "12"', '"EPOCHS", "40"'))
    with demo(state, "train.py", command="try") as process:
        (prepared,) = re.findall(r"terminal: (\. \S+);", until(process, "in another terminal")[-1])
        until(process, "epoch=3 ")
        subprocess.run(["bash", "-c", f"{prepared}; muster scale pytorchjob/train --to 3"], check=True)
        until(process, "[train-worker-2] group workers=3")
        until(process, "epoch=40 ")
        process.communicate()
    assert process.returncode == 0
