"""The server as a child process, and connecting to one that is not there."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from shared.errors import Refused, Transient
from shared.eventlog.connection import Connection
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import NatsServer
from shared.ports import free_port
from tests.kit.nats import a_decision, a_server, connected, until

pytestmark = pytest.mark.nats

PARENT = """
import sys, time
from pathlib import Path
from shared.eventlog.server import NatsServer
server = NatsServer(Path(sys.argv[1]))
server.spawn()
print(server.pid, flush=True)
time.sleep(60)
"""


async def test_it_keeps_port_users_and_events_over_restarts(tmp_path: Path):
    async with a_server(tmp_path) as server:
        async with connected(server) as log:
            sequence = await log.append(a_decision(), expect=0)
        before = (server.url, server.users)
        server.kill()
        await server.restart()
        assert (server.url, server.users) == before
        async with connected(server) as log:
            assert await log.end() == sequence
    async with NatsServer(tmp_path) as again, connected(again) as log:
        assert again.users == server.users
        assert await log.end() == sequence


async def test_it_dies_with_the_process_that_started_it(tmp_path: Path):
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    assert _runs(child)
    parent.kill()
    await parent.wait()

    async def gone() -> bool:
        return not _runs(child)

    await until(gone)


async def test_a_server_that_cannot_start_says_why(tmp_path: Path):
    async with NatsServer(tmp_path / "one") as server:
        with pytest.raises(Refused, match="address already in use"):
            await NatsServer(tmp_path / "two", port=server.port).start()


async def test_a_folder_that_another_server_uses_is_refused_and_left_as_it_is(tmp_path: Path):
    async with NatsServer(tmp_path) as server:
        before = server.log.read_bytes()
        with pytest.raises(Refused, match=f"the process {os.getpid()} keeps its log in {tmp_path}") as refusal:
            async with NatsServer(tmp_path):
                pass
        assert refusal.value.reason == "InUse"
        assert server.log.read_bytes() == before
    async with NatsServer(tmp_path):
        pass


def test_stopping_what_never_ran_is_harmless(tmp_path: Path):
    server = NatsServer(tmp_path)
    server.stop()
    server.kill()


def test_secrets_are_for_their_owner_alone(tmp_path: Path):
    NatsServer(tmp_path)
    assert (tmp_path / "users.json").stat().st_mode & 0o077 == 0


def test_secrets_are_private_also_in_a_file_that_was_there_before(tmp_path: Path):
    users = tmp_path / "users.json"
    users.write_text("{}")
    users.chmod(0o644)
    assert NatsServer(tmp_path).users
    assert users.stat().st_mode & 0o077 == 0


async def test_a_wrong_password_is_refused_at_once(nats_server: NatsServer):
    # Well before its patience with a server that is not there ends.
    async with asyncio.timeout(10):
        with pytest.raises(Refused) as refusal:
            await JetStreamEventLog.connect(nats_server.url, name="scheduler", user="scheduler", password="wrong")
    assert refusal.value.reason == "Unauthorized"


async def test_a_refused_client_leaves_nothing_running(nats_server: NatsServer):
    before = asyncio.all_tasks()
    for _ in range(3):
        with pytest.raises(Refused):
            await Connection.open(nats_server.url, name="scheduler", user="scheduler", password="wrong")
    assert asyncio.all_tasks() == before


async def test_an_address_without_a_server_is_transient_after_some_patience():
    with pytest.raises(Transient, match="connect to"):
        await JetStreamEventLog.connect(f"nats://127.0.0.1:{free_port()}", name="scheduler", patience=0.3)


async def test_an_address_that_is_none_is_refused():
    with pytest.raises(Refused) as refusal:
        await JetStreamEventLog.connect("nats://:::", name="scheduler")
    assert refusal.value.reason == "Invalid"


async def test_a_server_that_comes_later_is_waited_for(tmp_path: Path):
    server = NatsServer(tmp_path)
    connecting = asyncio.create_task(
        JetStreamEventLog.connect(server.url, name="status", user="status", password=server.users["status"])
    )
    await asyncio.sleep(0)
    async with server:
        log = await connecting
        assert log.connected
        await log.close()


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    # A dead child of a dead parent may wait a moment for its new parent to notice.
    return state != "Z"
