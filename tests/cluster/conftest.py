from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.cluster.kube import KubeCluster
from tests.kit.apiserver import ScriptedApiServer
from tests.kit.watching import Hurry


@pytest.fixture
async def server() -> AsyncIterator[ScriptedApiServer]:
    async with ScriptedApiServer() as scripted:
        yield scripted


@pytest.fixture
def hurry() -> Hurry:
    return Hurry()


@pytest.fixture
async def cluster(server: ScriptedApiServer, hurry: Hurry, tmp_path: Path) -> AsyncIterator[KubeCluster]:
    client = await KubeCluster.connect(server.kubeconfig(tmp_path), pace=hurry.pace)
    yield client
    await client.close()
