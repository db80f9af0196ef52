"""Connecting to the log and leaving it: no secret is told, and no trouble keeps us."""

import asyncio
import json
from pathlib import Path

import pytest

from shared.errors import Trouble
from shared.eventlog.connection import Connection, NoAnswer, NotSent, without_secrets
from shared.eventlog.jetstream import JetStreamEventLog
from tests.kit.nats import READY, a_server


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        pytest.param("nats://10.0.0.1:4222", "nats://10.0.0.1:4222", id="an address alone stays"),
        pytest.param("nats://me:s3cret@a:1", "nats://a:1", id="a user and a password go"),
        pytest.param("tls://token@a:1", "tls://a:1", id="so does a token"),
        pytest.param("me:s3cret@a:1", "a:1", id="also without a scheme"),
        pytest.param("nats://me:w@rd@a:1", "nats://a:1", id="even one that was not encoded"),
        pytest.param("nats://a:1,nats://me:s3cret@b:1", "nats://a:1,nats://b:1", id="of each of several"),
    ],
)
def test_without_secrets(url, shown):
    assert without_secrets(url) == shown


@pytest.mark.parametrize("place", ["127.0.0.1:1", "127.0.0.1:none"], ids=["no answer", "no address"])
async def test_a_password_in_the_address_is_not_told(place: str):
    with pytest.raises(Trouble, match=place) as trouble:
        await JetStreamEventLog.connect(f"nats://watcher:s3cret@{place}", name="watcher", wait=0.2)
    assert "s3cret" not in str(trouble.value)


async def test_it_can_be_closed_while_the_log_is_down(tmp_path: Path):
    """A service that begins anew, or stops, closes first; an error here would end the process."""
    async with a_server(tmp_path) as server:
        connection = await Connection.open(
            server.url, name="watcher", user="watcher", password=server.users["watcher"], patience=5
        )
        stop = await connection.listen(connection.new_inbox(), lambda *_: None, lost=lambda: None)
        server.kill()
        async with asyncio.timeout(READY):
            while connection.connected:
                await asyncio.sleep(0.01)
        await stop()
        await connection.close()


async def test_who_stopped_listening_hears_of_no_loss(tmp_path: Path):
    heard: list[str] = []
    async with a_server(tmp_path) as server:
        connection = await Connection.open(
            server.url, name="watcher", user="watcher", password=server.users["watcher"], patience=5
        )
        inbox = connection.new_inbox()
        stop = await connection.listen(f"{inbox}.a", lambda *_: None, lost=lambda: heard.append("stopped"))
        await connection.listen(f"{inbox}.b", lambda *_: None, lost=lambda: heard.append("listens"))
        await stop()
        server.kill()
        async with asyncio.timeout(READY):
            while not heard:
                await asyncio.sleep(0.01)
        await connection.close()
    assert {*heard} == {"listens"}


async def test_it_can_be_closed_after_a_caller_gave_up_waiting_for_its_end(tmp_path: Path):
    """As a reconnection does that is broken off: it waits for the socket's end, and that wait is everybody's."""
    async with a_server(tmp_path) as server:
        connection = await Connection.open(
            server.url, name="watcher", user="watcher", password=server.users["watcher"], patience=5
        )
        waiting = asyncio.create_task(connection._client._transport.wait_closed())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await connection.close()


async def test_a_connection_that_breaks_under_a_write_is_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def broken(**_: object) -> None:
        raise ConnectionResetError("Connection lost")

    async with a_server(tmp_path) as server:
        connection = await Connection.open(
            server.url, name="watcher", user="watcher", password=server.users["watcher"], patience=5
        )
        stop = await connection.listen(connection.new_inbox(), lambda *_: None, lost=lambda: None)
        await connection.request("$JS.API.STREAM.INFO.JOBS", timeout=5)
        # What nats-py does with a socket that is no longer read.
        monkeypatch.setattr(connection._client, "_flush_pending", broken)
        with pytest.raises(NoAnswer, match="Connection lost"):
            await connection.request("$JS.API.STREAM.INFO.JOBS", timeout=1)
        with pytest.raises(NotSent, match="Connection lost"):
            await connection.send("$JS.API.STREAM.INFO.JOBS", b"", reply="nobody")
        with pytest.raises(NotSent, match="Connection lost"):
            await connection.listen(connection.new_inbox(), lambda *_: None, lost=lambda: None)
        await stop()
        monkeypatch.undo()
        await connection.close()


async def test_an_address_that_the_servers_no_longer_tell_is_forgotten():
    """A pod of NATS that is made again has another address: the old ones would be tried for ever, five seconds each."""
    told = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(a_greeting("10.0.0.1:4222", "10.0.0.2:4222"))
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
                if not told.is_set():
                    continue
                writer.write(a_greeting("10.0.0.2:4222", "10.0.0.3:4222"))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        mine = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        connection = await Connection.open(f"nats://{mine}", name="watcher", user="watcher", patience=5)
        assert known_to(connection) == {mine, "10.0.0.1:4222", "10.0.0.2:4222"}
        told.set()
        async with asyncio.timeout(READY):
            while "10.0.0.3:4222" not in known_to(connection):
                await asyncio.sleep(0.01)
        assert known_to(connection) == {mine, "10.0.0.2:4222", "10.0.0.3:4222"}
        await connection.close()


def a_greeting(*others: str) -> bytes:
    return b"INFO " + json.dumps({"max_payload": 1048576, "headers": True, "connect_urls": others}).encode() + b"\r\n"


def known_to(connection: Connection) -> set[str]:
    return {server.netloc for server in connection._client.servers}
