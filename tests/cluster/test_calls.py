"""How a request leaves its connection."""

import asyncio
import os
import socket
import ssl
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from devcluster.certificates import server_context
from shared.cluster.calls import Timeouts
from shared.cluster.connections import AbruptResponse
from shared.cluster.examination import Right
from shared.cluster.kinds import PODS
from shared.cluster.kube import KubeCluster
from shared.errors import Transient, Withheld
from shared.flow import INTERACTIVE, OF_ONE, only_while
from tests.kit.apiserver import write_kubeconfig
from tests.kit.virtual_time import until
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
        cluster = await KubeCluster.connect(config, timeouts=Timeouts(total=1.5))
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


async def test_a_number_that_the_loop_never_gives_back_is_used_by_no_other_call(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    config = tmp_path / "kubeconfig"
    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as held:
        address = listening.getsockname()
        write_kubeconfig(config, f"http://127.0.0.1:{address[1]}", {"token": "t"})
        transport, _ = await loop.create_connection(asyncio.Protocol, *address)
        number = transport.get_extra_info("socket").fileno()
        lower = 0
        while lower < number:
            lower = os.open(os.devnull, os.O_RDONLY)
            held.callback(os.close, lower)
        # Its end has not come to the loop's ears, and the next socket gets its number.
        os.close(number)
        cluster = await KubeCluster.connect(config)
        with pytest.raises(Transient, match="is used by transport"):
            await cluster.get(PODS, "team-a", "p")
        for _ in ("the held one", "the failed one"):
            listening.accept()[0].close()
        listening.setblocking(False)
        arriving = asyncio.create_task(loop.sock_accept(listening))
        again = asyncio.create_task(cluster.get(PODS, "team-a", "p"))
        first, _ = await asyncio.wait([again, arriving], return_when=asyncio.FIRST_COMPLETED)
        assert first == {arriving}
        arriving.result()[0].close()
        again.cancel()
        await asyncio.wait([again])
        await cluster.close()
        os.dup2(listening.fileno(), number)
        transport.abort()


async def test_who_may_not_change_anything_asks_and_sends_nothing_else(tmp_path: Path) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path}")
        return web.json_response({"metadata": {"name": "p"}, "status": {"allowed": True}}, status=201)

    config = tmp_path / "kubeconfig"
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        write_kubeconfig(config, f"http://127.0.0.1:{server.port}", {"token": "t"})
        cluster = await KubeCluster.connect(config)
        allowed = True
        cluster.change_only_while(lambda: allowed)
        await cluster.create(PODS, "team-a", {"metadata": {"name": "p"}})
        assert asked == ["POST /api/v1/namespaces/team-a/pods"]
        allowed = False
        for change in (
            lambda: cluster.create(PODS, "team-a", {"metadata": {"name": "p"}}),
            lambda: cluster.patch(PODS, "team-a", "p", {"metadata": {"labels": {"a": "b"}}}),
            lambda: cluster.delete(PODS, "team-a", "p", uid="u"),
            lambda: cluster.execute("team-a", "p", "main", ["true"], timeout=5),
        ):
            with pytest.raises(Withheld):
                await change()
        assert len(asked) == 1
        await cluster.get(PODS, "team-a", "p")
        assert await cluster.may(Right("get", "", "pods"), "team-a")
        assert len(asked) == 3
        await cluster.close()


async def test_what_is_wanted_no_more_when_its_place_comes_is_not_created(tmp_path: Path) -> None:
    """All places are taken while the API server takes its time; a decision comes meanwhile."""
    answers, config, asked, wanted = asyncio.Event(), tmp_path / "kubeconfig", list[str](), True
    places = int(INTERACTIVE * OF_ONE)

    async def answer(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path.rpartition('/')[2]}")
        await answers.wait()
        return web.json_response({"metadata": {"name": "p"}}, status=201)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        write_kubeconfig(config, f"http://127.0.0.1:{server.port}", {"token": "t"})
        cluster = await KubeCluster.connect(config)
        with only_while(lambda: wanted):
            pod = {"metadata": {"name": "p"}}
            tries = [asyncio.create_task(cluster.create(PODS, "team-a", pod)) for _ in range(places + 3)]
            await until(lambda: len(asked) == places)
            wanted = False
            answers.set()
            found = await asyncio.gather(*tries, return_exceptions=True)
            assert [isinstance(each, Withheld) for each in found] == [False] * places + [True] * 3
            await cluster.patch(PODS, "team-a", "p", {"metadata": {"labels": {"a": "b"}}})
        assert asked == ["POST pods"] * places + ["PATCH p"]
        await cluster.close()


async def test_who_may_not_change_anything_when_the_connection_is_there_at_last_sends_nothing(tmp_path: Path) -> None:
    allowed, held_up, config = True, 0.2, tmp_path / "kubeconfig"
    trust, loop = server_context(tmp_path), asyncio.get_running_loop()
    received: list[bytes] = []

    def lose() -> None:
        nonlocal allowed
        allowed = False

    def serve(listening: socket.socket) -> None:
        """Stand still before the TLS handshake, and lose the lease meanwhile."""
        connection, _ = listening.accept()
        connection.settimeout(PATIENCE)
        loop.call_soon_threadsafe(lose)
        time.sleep(held_up)
        with suppress(OSError), trust.wrap_socket(connection, server_side=True) as tls:
            received.append(tls.recv(4096))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"https://127.0.0.1:{listening.getsockname()[1]}"
        write_kubeconfig(config, address, {"token": "t"}, **{"certificate-authority": str(tmp_path / "ca.crt")})
        cluster = await KubeCluster.connect(config)
        cluster.change_only_while(lambda: allowed)
        for change in (
            lambda: cluster.create(PODS, "team-a", {"metadata": {"name": "p"}}),
            lambda: cluster.execute("team-a", "p", "main", ["true"], timeout=5),
        ):
            allowed = True
            serving = asyncio.create_task(asyncio.to_thread(serve, listening))
            with pytest.raises(Withheld):
                await change()
            await asyncio.wait_for(serving, PATIENCE)
        await cluster.close()
    assert b"".join(received) == b""
