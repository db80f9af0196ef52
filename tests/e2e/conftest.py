"""The whole stack as real processes, one for each module that asks."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.kit.hosts import HOSTS, MakeHost
from tests.kit.operator import Operator, an_operator


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module's stories run on the clusters that it names as `CLUSTERS`, or else on each there is."""
    if "host" in metafunc.fixturenames:
        metafunc.parametrize("host", getattr(metafunc.module, "CLUSTERS", HOSTS), indirect=True, scope="module")


@pytest.fixture(scope="module")
def host(request: pytest.FixtureRequest) -> MakeHost:
    """What makes a cluster."""
    made: MakeHost = request.param()
    return made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(host: MakeHost, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    async with an_operator(tmp_path_factory.mktemp("stack"), host) as operator:
        yield operator
