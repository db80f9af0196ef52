"""`docs/tutorial.md`: walked as it stands, with PyTorch."""

import os
import sys
from pathlib import Path

import pytest

from devcluster import binaries
from tests.frameworks_real.training import PATIENCE_SECONDS, Training
from tests.kit.commands import run
from tests.kit.walking import agrees, steps

pytestmark = [pytest.mark.frameworks("pytorch", "newest"), pytest.mark.asyncio(loop_scope="session")]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"


async def test_the_tutorial_is_walked_as_it_stands(training: Training):
    folders = [binaries.kubectl().parent, Path(sys.executable).parent]
    environment = training.operator.stack.reader() | {"PATH": os.pathsep.join([*map(str, folders), os.environ["PATH"]])}
    for step in steps(PAGE):
        command = f"cd {ROOT} && {step.command}"
        ended = await run("bash", "-c", command, environment=environment, patience=PATIENCE_SECONDS)
        said = ended.out + ended.complaint
        assert ended.code == 0, f"$ {step.command}\n{said}"
        assert not step.shown or agrees(step.shown, ended.out), f"$ {step.command}\n{said}\nshown:\n{step.shown}"
