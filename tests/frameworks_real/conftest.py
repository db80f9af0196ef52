"""One embedded cluster with all four services for these tests, and an image for each framework."""

import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devcluster.start import Devcluster
from shared.installation.plugins import GROUP
from tests.docs.test_frameworks_page import the_code
from tests.frameworks_real.environments import EXAMPLES, PYTHONS, Unavailable, environment
from tests.frameworks_real.training import Training
from tests.kit.operator import an_operator


@pytest.fixture(scope="session")
def image_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Image names and what they are made of: a copy of the example, in which a framework is put by `framework`."""
    folder = tmp_path_factory.mktemp("images")
    return {f"muster-{name}": shutil.copytree(EXAMPLES / name, folder / name) for name in PYTHONS}


@pytest.fixture(scope="session")
def flaxjob(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The framework of `docs/frameworks.md`, installed beside Muster for all processes that are started from here."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "flaxjob.py").write_text(the_code())
    about = folder / "flaxjob-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: flaxjob\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{GROUP}]\nflaxjob = flaxjob:FlaxJob\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        yield


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def training(
    image_folders: dict[str, Path], flaxjob: None, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Training]:
    def make(data: Path, *, images: Mapping[str, Path], **more: Any) -> Devcluster:
        return Devcluster(data, images={**images, **image_folders}, **more)

    async with an_operator(tmp_path_factory.mktemp("stack"), make) as operator:
        yield Training(operator)


@pytest.fixture(autouse=True)
def framework(request: pytest.FixtureRequest) -> None:
    """Have the framework in its image that the test's mark names; skip the test where it cannot be had."""
    mark = request.node.get_closest_marker("frameworks")
    if mark is None:
        return
    [name] = mark.args
    installed = request.getfixturevalue("image_folders")[f"muster-{name}"] / ".venv"
    if not installed.exists():
        try:
            installed.symlink_to(environment(name))
        except Unavailable as reason:
            pytest.skip(str(reason))
