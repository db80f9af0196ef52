"""How a request leaves its connection."""

import asyncio
import socket
import ssl
from pathlib import Path

import aiohttp
import pytest

from devcluster.apiserver.tls import server_context
from shared.cluster.calls import AbruptResponse, Timeouts
from shared.cluster.kinds import PODS
from shared.cluster.kube import KubeCluster
from shared.errors import Transient
from tests.kit.apiserver import write_kubeconfig
from tests.kit.watching import PATIENCE

HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"


def _serve(answer: bytes, listening: socket.socket, trust: ssl.SSLContext) -> str:
    """Take one request and answer no more than this; how the client left."""
    connection, _ = listening.accept()
    connection.settimeout(PATIENCE)
    with trust.wrap_socket(connection, server_side=True, suppress_ragged_eofs=False) as tls:
        try:
            tls.sendall(answer)
            while tls.recv(4096):
                pass
        except (ssl.SSLEOFError, ConnectionResetError):
            return "dropped"
    return "waits for a goodbye"


async def test_a_request_that_timed_out_drops_its_connection(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(asyncio.to_thread(_serve, b"", listening, server_context(tmp_path)))
        user = {"token": "t"}
        address = f"https://127.0.0.1:{listening.getsockname()[1]}"
        config = write_kubeconfig(
            tmp_path / "kubeconfig", address, user, **{"certificate-authority": str(tmp_path / "ca.crt")}
        )
        cluster = await KubeCluster.connect(config, timeouts=Timeouts(total=0.2))
        with pytest.raises(Transient, match="timed out"):
            await cluster.get(PODS, "team-a", "p")
        assert await asyncio.wait_for(serving, PATIENCE) == "dropped"
        await cluster.close()


async def test_an_answer_left_in_the_middle_drops_its_connection(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(asyncio.to_thread(_serve, HALF, listening, server_context(tmp_path)))
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(tmp_path / "ca.crt")))
        address = f"https://127.0.0.1:{listening.getsockname()[1]}"
        async with aiohttp.ClientSession(connector=connector, response_class=AbruptResponse) as session:
            async with session.get(address) as response:
                assert response.status == 200
            assert await asyncio.wait_for(serving, PATIENCE) == "dropped"
