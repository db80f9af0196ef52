"""One cluster for all tests that do not break it, and a namespace for each of them."""

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from devcluster.cluster import Devcluster
from tests.devcluster.node.kit import Space, a_cluster, a_space

numbers = itertools.count()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Devcluster]:
    with a_cluster(tmp_path_factory.mktemp("node") / "shared", "--sync-period", "1") as cluster:
        yield cluster


@pytest.fixture
async def space(cluster: Devcluster) -> AsyncIterator[Space]:
    async with a_space(cluster, f"space-{next(numbers)}") as space:
        yield space
