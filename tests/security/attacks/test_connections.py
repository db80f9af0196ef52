"""Connections at NATS: those without a login, those of one user, and leaf nodes."""

import asyncio
import json
import socket
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from shared.errors import Trouble
from shared.eventlog.account import AUTHORS, COPIES, HISTORY, MAX_CONNECTIONS, READER, SERVICE_CONNECTIONS, USERS
from shared.eventlog.server import NatsServer
from shared.ports import HOST
from tests.kit.nats import a_server, at, connected

pytestmark = pytest.mark.nats

RAW = 1500
"""Clients that connect and say nothing; NATS closes each after two seconds, and another one comes."""


@pytest.mark.attack("a pod without credentials", "memory, connections, queues, the time of others")
async def test_clients_that_never_log_in_keep_no_service_out(tmp_path: Path):
    async def silent(server: NatsServer) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with socket.socket() as one, suppress(OSError):
                one.setblocking(False)
                await loop.sock_connect(one, (HOST, server.port))
                while await loop.sock_recv(one, 4096):
                    pass
            await asyncio.sleep(0.1)

    async with a_server(tmp_path) as server:
        crowd = [asyncio.create_task(silent(server)) for _ in range(RAW)]
        try:
            await asyncio.sleep(1.0)
            for user in 5 * AUTHORS:
                async with connected(server, user, patience=1.0) as log:
                    assert await log.identity()
        finally:
            for each in crowd:
                each.cancel()
            await asyncio.gather(*crowd, return_exceptions=True)


@pytest.mark.attack("the password of a service, or of the reader, at NATS", "the start of every service")
@pytest.mark.parametrize(
    ("user", "most"), [(READER, MAX_CONNECTIONS), ("watcher", SERVICE_CONNECTIONS), (HISTORY, SERVICE_CONNECTIONS)]
)
async def test_a_user_has_so_many_connections_and_others_notice_nothing(tmp_path: Path, user: str, most: int):
    async with a_server(tmp_path) as server, AsyncExitStack() as held:
        for _ in range(most):
            await held.enter_async_context(at(server, user))
        with pytest.raises((Trouble, TimeoutError)):
            async with asyncio.timeout(3), at(server, user):
                pass
        async with connected(server, "status") as log:
            assert await log.identity()


@pytest.mark.attack("the password of a service, or of the reader, at NATS", "events, leases and heads of others")
async def test_the_copies_alone_connect_as_a_leaf_node(nats_server: NatsServer):
    port = int((nats_server.directory / "leafnodes-port").read_text())

    async def answer(user: str) -> bytes:
        reader, writer = await asyncio.open_connection(HOST, port)
        login = {"user": user, "pass": nats_server.users[user], "name": "leaf", "server_id": "x", "domain": "there"}
        await reader.readline()
        writer.write(f"CONNECT {json.dumps(login)}\r\nPING\r\n".encode())
        heard = b""
        try:
            async with asyncio.timeout(1):
                while line := await reader.readline():
                    heard += line
        except (TimeoutError, ConnectionError):
            pass
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        return heard

    refused = {user for user in USERS if b"Authorization Violation" in await answer(user)}
    assert refused == {*USERS} - {COPIES}
