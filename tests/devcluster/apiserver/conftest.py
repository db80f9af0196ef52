"""An API server in the test's own process, with its objects in memory, and a client that speaks to it over TLS."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from devcluster.apiserver.call import User
from devcluster.apiserver.objects import Objects
from devcluster.apiserver.server import ApiServer
from devcluster.apiserver.store import Store
from devcluster.certificates import server_context
from devcluster.client import AbruptResponse
from tests.devcluster.apiserver.client import Client

TOKEN = "the-token"


@pytest.fixture
async def api(certificates: Path) -> AsyncIterator[Client]:
    """A client of a fresh, empty server that keeps the last 50 changes of each kind."""
    server = ApiServer(Objects(Store(history=50)), {TOKEN: User("tester", "1", ("testers",))}, "node-token")
    context = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
    async with (
        server.serving(0, server_context(certificates)) as port,
        aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {TOKEN}"},
            connector=aiohttp.TCPConnector(ssl=context),
            response_class=AbruptResponse,
        ) as session,
    ):
        yield Client(session, f"https://127.0.0.1:{port}")
