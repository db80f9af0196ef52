"""`muster subscriber` at a server whose users are in a folder, and what set-up says without a place for a copy."""

import asyncio
import errno
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from muster.asking import open_log
from muster.commands.installing import SetupOptions
from muster.setup import add_subscriber as add
from muster.setup import remove_subscriber as remove
from muster.setup import set_up as command
from muster.setup import show_subscribers as show
from muster.setup import sizes_of
from shared.errors import Refused
from shared.eventlog import api
from shared.eventlog.account import ADMIN, COPIES, RELAY, Copy
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import changed_users
from shared.eventlog.setup import set_up
from shared.eventlog.subscribers import fed_copies
from shared.process.settings import Settings
from tests.kit.nats import READY, a_decision, at, connected
from tests.kit.subscribers import COPY_BYTES, TEAM_A, TEAM_B, Log, stranger, write

pytestmark = pytest.mark.nats

SIZE = 2**22


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Log]:
    async with Log(tmp_path) as server:
        await set_up(server.url, password=server.users[ADMIN])
        yield server


def passwords(server: Log) -> dict[str, str]:
    found: dict[str, str] = json.loads((server.copies.directory / "users.json").read_bytes())
    return found


async def read(server: Log, copy: Copy, number: int) -> list[int]:
    """The sequences of the first events that the user reads."""
    server.copies.users = passwords(server)
    async with stranger(server, copy.user) as client:
        events = await client.jetstream().subscribe(">", ordered_consumer=True)
        return [(await events.next_msg(timeout=READY)).metadata.sequence.stream for _ in range(number)]


async def test_a_reader_is_added_while_the_services_write(server: Log, capsys: pytest.CaptureFixture[str]):
    wanted = await write(server, 3)
    await write(server, 2, "team-b")
    async with connected(server) as log, connected(server, "status") as other:
        for copy in (TEAM_A, TEAM_B):
            await add(Settings(), server.directory, copy.namespace, SIZE)
            said = capsys.readouterr().out
            assert f"export NATS_URL={server.copies.url}\nexport NATS_USER={copy.user}\n" in said
            assert f"export NATS_PASSWORD={passwords(server)[copy.user]}\n" in said
            async with aclosing(other.read(after=await other.end())) as batches:
                await anext(batches)
                sequence = await log.append(a_decision(f"after-{copy.namespace}"), expect=0)
                async with asyncio.timeout(READY):
                    assert [event.sequence for event in (await anext(batches)).events] == [sequence]
    assert await read(server, TEAM_A, 3) == wanted


async def test_a_reader_stays_through_a_restart_of_the_server(server: Log):
    await add(Settings(), server.directory, "team-a", SIZE)
    for each in (server, server.copies):
        each.kill()
        await each.start()
    wanted = await write(server, 2)
    assert await read(server, TEAM_A, 2) == wanted


async def test_another_size_keeps_the_password_and_the_events(server: Log, capsys: pytest.CaptureFixture[str]):
    wanted = await write(server, 2)
    await add(Settings(), server.directory, "team-a", SIZE)
    before = passwords(server)
    await add(Settings(), server.directory, "team-a", 2 * SIZE)
    capsys.readouterr()
    await show(Settings(), server.directory)
    assert f"of {2 * SIZE} bytes" in capsys.readouterr().out
    assert passwords(server) == before
    assert await read(server, TEAM_A, 2) == wanted


async def test_a_removed_reader_leaves_nothing(server: Log, capsys: pytest.CaptureFixture[str]):
    await write(server, 2)
    for namespace in ("team-a", "team-b"):
        await add(Settings(), server.directory, namespace, SIZE)
    await read(server, TEAM_A, 2)
    await remove(Settings(), server.directory, "team-b")
    capsys.readouterr()
    await show(Settings(), server.directory)
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == [TEAM_A.user]
    assert TEAM_B.user not in passwords(server)
    async with at(server, ADMIN) as admin:
        assert await fed_copies(admin) == [TEAM_A]
    wanted = await write(server, 1, "team-b")
    await add(Settings(), server.directory, "team-b", SIZE)
    assert await read(server, TEAM_B, 1) == wanted


async def test_a_refused_addition_leaves_no_user(tmp_path: Path):
    async with Log(tmp_path) as server:
        with pytest.raises(Refused, match="there is no log yet"):
            await add(Settings(), server.directory, "team-a", SIZE)
        assert TEAM_A.user not in passwords(server)


async def test_a_copy_without_its_account_is_shown_and_removed(server: Log, capsys: pytest.CaptureFixture[str]):
    await add(Settings(), server.directory, "team-a", SIZE)
    async with changed_users(server.copies.directory) as users:
        del users[TEAM_A.user]
    capsys.readouterr()
    await show(Settings(), server.directory)
    assert "has no account COPY-team-a" in capsys.readouterr().out
    await remove(Settings(), server.directory, "team-a")
    async with at(server, ADMIN) as admin:
        assert await fed_copies(admin) == []


async def test_a_feed_that_sends_elsewhere_is_made_anew(server: Log):
    wanted = await write(server, 2)
    await add(Settings(), server.directory, "team-a", SIZE)
    async with at(server, ADMIN) as admin:
        await api.call(admin, f"CONSUMER.DELETE.JOBS.{TEAM_A.feed}", None, dict, prefix=RELAY.api)
        config = {"durable_name": TEAM_A.feed, "deliver_subject": "elsewhere", "ack_policy": "none"}
        request = {"stream_name": "JOBS", "config": config}
        await api.call(admin, f"CONSUMER.DURABLE.CREATE.JOBS.{TEAM_A.feed}", request, dict, prefix=RELAY.api)
    await add(Settings(), server.directory, "team-a", SIZE)
    assert await read(server, TEAM_A, 2) == wanted


async def test_a_write_of_users_that_fails_leaves_those_that_are_there(server: Log, monkeypatch: pytest.MonkeyPatch):
    before = passwords(server)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        await add(Settings(), server.directory, "team-a", SIZE)
    monkeypatch.undo()
    assert passwords(server) == before


async def test_a_set_up_that_waits_waits_for_the_account(server: Log):
    login = {"nats_url": server.url, "nats_user": ADMIN, "nats_password": server.users[ADMIN]}
    options = SetupOptions(subscriber=[f"team-a={SIZE}"], log_only=True, wait=True, timeout=READY)
    waiting = asyncio.create_task(command(Settings().model_copy(update=login), options))
    done, _ = await asyncio.wait([waiting], timeout=1.5)
    assert not done
    async with changed_users(server.copies.directory) as users:
        users[TEAM_A.user] = "secret"
    await waiting
    async with at(server, ADMIN) as admin:
        assert await fed_copies(admin) == [TEAM_A]


async def test_no_server_runs_on_the_folder(tmp_path: Path):
    async with Log(tmp_path):
        pass
    with pytest.raises(Refused, match="no NATS server of `muster run`"):
        await add(Settings(), tmp_path, "team-a", SIZE)


@pytest.mark.parametrize("namespace", ["", "Team", "team_a", "a.b", "-a", "a-", "a" * 64, "*", ">", "a b", "a\n", "ä"])
def test_what_names_no_namespace_is_refused_in_one_line(namespace: str):
    with pytest.raises(Refused) as refused:
        Copy.of(namespace)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("spelling", ["team-a", "team-a=", "team-a=1", "team-a=-1", "=2000000", "Team=2000000", "a=²"])
def test_a_size_that_is_none_is_refused(spelling: str):
    with pytest.raises(Refused):
        sizes_of(None, [spelling])


def test_sizes_are_of_all_events_or_of_a_namespace():
    assert sizes_of(SIZE, ["team-a=2000000"]) == {Copy(): SIZE, TEAM_A: 2_000_000}


async def test_a_server_without_the_account_is_told_at_once(server: Log):
    began = time.monotonic()
    with pytest.raises(Refused, match="no account COPY-team-a") as refused:
        await set_up(server.url, password=server.users[ADMIN], subscribers={TEAM_A: COPY_BYTES})
    assert refused.value.reason == "NoAccount"
    assert time.monotonic() - began < READY / 4


async def test_a_size_that_does_not_fit_is_refused_and_leaves_nothing(tmp_path: Path):
    async with Log(tmp_path) as server:
        store = {"store_dir": str(tmp_path / "small"), "domain": COPIES, "max_file_store": 200_000_000}
        server.copies._more["jetstream"] = store
        await server.copies.restart()
        password = server.users[ADMIN]
        await set_up(server.url, password=password)
        with pytest.raises(Refused, match="300000000 bytes do not fit in what the copies' server") as refused:
            await set_up(server.url, password=password, subscribers={Copy(): 300_000_000})
        assert refused.value.reason == "NoRoom"
        async with at(server, ADMIN) as admin:
            assert await fed_copies(admin) == []
        await set_up(server.url, password=password, subscribers={Copy(): 10_000_000})
        with pytest.raises(Refused, match="do not fit"):
            await set_up(server.url, password=password, subscribers={Copy(): 300_000_000})


async def test_the_feed_of_an_account_that_is_gone_is_removed(server: Log):
    await add(Settings(), server.directory, "team-a", SIZE)
    server.copies.stop()
    users = passwords(server)
    del users[TEAM_A.user]
    (server.copies.directory / "users.json").write_text(json.dumps(users))
    await server.copies.start()
    async with at(server, ADMIN) as admin:
        async with asyncio.timeout(READY):
            while await fed_copies(admin) != [TEAM_A]:
                await asyncio.sleep(0.05)
        await set_up(server.url, password=server.users[ADMIN])
        assert await fed_copies(admin) == []


async def test_the_user_of_a_copy_is_told_which_user_the_commands_take(server: Log):
    await add(Settings(), server.directory, "team-a", SIZE)
    password = passwords(server)[TEAM_A.user]
    login = {"nats_url": server.copies.url, "nats_password": password}
    with pytest.raises(Refused, match=r"NATS_USER=subscriber-team-a: .* the commands take NATS_USER=reader"):
        async with open_log(Settings(nats_user=TEAM_A.user, **login)):
            pass
    # As with a file of credentials, which names the user itself.
    log = await JetStreamEventLog.connect(server.copies.url, name="muster", user=TEAM_A.user, password=password)
    try:
        with pytest.raises(Refused, match="the commands take NATS_USER=reader"):
            await log.identity()
    finally:
        await log.close()


async def test_set_up_as_a_reader_says_whose_it_is_and_works_with_the_servers_folder(
    server: Log, capsys: pytest.CaptureFixture[str]
):
    # As `muster demo` prints them.
    reader = Settings(nats_url=server.url, nats_user="reader", nats_password=server.users["reader"])
    options = SetupOptions(subscribers=SIZE, log_only=True)
    with pytest.raises(Refused, match=r"NATS_USER=reader may not .* give admin and its password, or name .* --data"):
        await command(reader, options)
    for refused in (show(reader, None), remove(reader, None, "team-a")):
        with pytest.raises(Refused, match=r"subscribers?: NATS_USER=reader may not .* give admin and its password"):
            await refused
    await command(reader, options._replace(data=server.directory))
    assert "stream JOBS of COPY created" in capsys.readouterr().out
