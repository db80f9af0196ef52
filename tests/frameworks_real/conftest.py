"""One embedded cluster with all four services for these tests, and an image for each framework."""

import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devcluster.start import Devcluster
from tests.frameworks_real.environments import EXAMPLES, PYTHONS, Unavailable, environment
from tests.frameworks_real.training import Training
from tests.kit.operator import an_operator


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Image names and what they are made of: a copy of the example, in which a framework is put by `framework`."""
    folder = tmp_path_factory.mktemp("images")
    return {f"muster-{name}": shutil.copytree(EXAMPLES / name, folder / name) for name in PYTHONS}


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def training(images: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Training]:
    def make(
        data: Path, users: Sequence[str] = (), theirs: Mapping[str, Path] | None = None, **more: Any
    ) -> Devcluster:
        given = {**(theirs or more.pop("images", None) or {}), **images}
        return Devcluster(data, users, given, **more)

    async with an_operator(tmp_path_factory.mktemp("stack"), make) as operator:
        yield Training(operator)


@pytest.fixture(autouse=True)
def framework(request: pytest.FixtureRequest, images: dict[str, Path]) -> None:
    """Have the framework in its image that the test's mark names; skip the test where it cannot be had."""
    mark = request.node.get_closest_marker("frameworks")
    assert mark is not None, "every test here says which framework it needs"
    [name] = mark.args
    installed = images[f"muster-{name}"] / ".venv"
    if not installed.exists():
        try:
            installed.symlink_to(environment(name))
        except Unavailable as reason:
            pytest.skip(str(reason))
