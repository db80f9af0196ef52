"""The whole stack on the real control plane with a real node, one for each module that asks."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.kit.hosts import MakeHost, node
from tests.kit.operator import Operator, an_operator


@pytest.fixture(scope="module")
def host() -> MakeHost:
    """What makes the cluster with the node; where none can be, the test is skipped with the reason."""
    return node()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(host: MakeHost, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    async with an_operator(tmp_path_factory.mktemp("node"), host) as operator:
        yield operator
