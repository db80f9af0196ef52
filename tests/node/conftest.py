"""The whole stack on the real control plane with a real node, one for each module that asks."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from tests.kit.hosts import MakeHost, node
from tests.kit.image import Builder, obstacle
from tests.kit.operator import Operator, an_operator
from tests.kit.platform import CHART


@pytest.fixture(scope="module")
def host() -> MakeHost:
    """What makes the cluster with the node; where none can be, the test is skipped with the reason."""
    return node()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(host: MakeHost, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    async with an_operator(tmp_path_factory.mktemp("node"), host) as operator:
        yield operator


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Archives of our image, built twice, and of a NATS under the name that the chart has for it."""
    node()
    if reason := obstacle():
        pytest.skip(reason)
    named = yaml.safe_load((CHART / "values.yaml").read_text())["nats"]["image"]
    with Builder(tmp_path_factory.mktemp("image")) as builder:
        assert builder.build() == builder.build(), "the same sources make the same image"
        yield builder.archive(), builder.nats(f"{named['repository']}:{named['tag']}")
