"""One embedded cluster with all four services for these tests, and an image for each release of each framework."""

import shutil
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devcluster.cluster import Devcluster
from shared.installation.plugins import GROUP
from tests.docs.test_frameworks_page import OWN_KIND
from tests.frameworks_real.environments import EXAMPLES, NAMES, OF_EXAMPLE, Release, Unavailable, environment, releases
from tests.frameworks_real.table import TABLE, Run, versions_of, with_runs
from tests.frameworks_real.training import Training
from tests.kit.operator import an_operator


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test of a framework runs with both of its releases, or with those that its mark names."""
    mark = metafunc.definition.get_closest_marker("frameworks")
    if mark is not None and mark.args:
        name, *only = mark.args
        metafunc.parametrize("framework", only or releases(name), indirect=True)


@pytest.fixture(scope="session")
def image_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Image names and what they are made of: a copy of the example, in which a framework is put by `framework`.

    The name of an example's image is that of its newest release.
    """
    folder = tmp_path_factory.mktemp("images")
    return {
        image_of(name, release): shutil.copytree(EXAMPLES / OF_EXAMPLE.get(name, name), folder / f"{name}-{release}")
        for name in NAMES
        for release in releases(name)
    } | {"muster-digits": shutil.copytree(EXAMPLES / "digits", folder / "digits")}


def image_of(name: str, release: Release) -> str:
    return f"muster-{name}" + ("" if release == releases(name)[-1] else f"-{release}")


@pytest.fixture(scope="session")
def flaxjob(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The framework of `examples/own_kind`, installed beside Muster for all processes that are started from here."""
    folder = tmp_path_factory.mktemp("packages")
    shutil.copy(OWN_KIND / "flaxjob.py", folder)
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

    async with an_operator(tmp_path_factory.mktemp("stack"), make, reports=True) as operator:
        yield Training(operator, tmp_path_factory.mktemp("manifests"))


@pytest.fixture(autouse=True)
def framework(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have the framework in its image that the test's mark names; skip the test where it cannot be had.

    What trained, in which versions and when, goes into the page.
    """
    mark = request.node.get_closest_marker("frameworks")
    if mark is None or not mark.args:
        yield
        return
    name, release = mark.args[0], request.param
    image = image_of(name, release)
    installed = request.getfixturevalue("image_folders")[image] / ".venv"
    if not installed.exists():
        try:
            installed.symlink_to(environment(name, release=release))
        except Unavailable as reason:
            pytest.skip(str(reason))
    training: Training = request.getfixturevalue("training")
    training.images = {f"muster-{OF_EXAMPLE.get(name, name)}": image}
    began = time.monotonic()
    failed = request.session.testsfailed
    yield
    if request.session.testsfailed == failed:
        what = request.node.originalname.removeprefix("test_").replace("_", " ")
        kinds = [str(value) for key, value in request.node.callspec.params.items() if key != "framework"]
        run = Run(
            framework=name,
            versions=versions_of(name, installed.resolve()),
            what=" ".join([what, *(f"({kind})" for kind in kinds)]),
            seconds=round(time.monotonic() - began),
            day=f"{datetime.now(UTC):%Y-%m-%d}",
        )
        TABLE.write_text(with_runs(TABLE.read_text(), [run]))
