"""The whole stack as real processes, one for each module that asks."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.kit.hosts import HOSTS, MakeHost
from tests.kit.operator import Operator, an_operator


@pytest.fixture(params=HOSTS, scope="module")
def host(request: pytest.FixtureRequest) -> MakeHost:
    """What makes a cluster, each in turn."""
    made: MakeHost = request.param()
    return made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(host: MakeHost, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    async with an_operator(tmp_path_factory.mktemp("stack"), host) as operator:
        yield operator
