"""Setting up: once, again, and over what is not as it should be."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shared.errors import Refused, Transient
from shared.eventlog import api
from shared.eventlog.connection import Connection
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from shared.eventlog.streams import CONFIGS, LOG_CONFIG, StreamInfo
from tests.kit.nats import NatsCluster, a_decision, at, connected, read_to_end

pytestmark = pytest.mark.nats

Edit = Callable[[dict[str, Any]], Awaitable[None]]


@asynccontextmanager
async def a_log(directory: Path) -> AsyncIterator[tuple[NatsServer, Edit]]:
    """One that is set up, and what changes settings of its stream as an administrator would."""
    async with NatsServer(directory) as server:
        await set_up(server.url, password=server.users["admin"])
        admin = await Connection.open(server.url, name="test", user="admin", password=server.users["admin"])

        async def edit(change: dict[str, Any]) -> None:
            found = (await api.stream_info(admin, "JOBS")).config
            await api.call(admin, "STREAM.UPDATE.JOBS", found | change, StreamInfo)

        yield server, edit
        await admin.close()


@pytest.fixture
async def nats_cluster_of_its_own(tmp_path: Path) -> AsyncIterator[NatsCluster]:
    cluster = NatsCluster(tmp_path)
    await cluster.start()
    yield cluster
    cluster.stop()


async def test_it_makes_everything_once_and_then_nothing(tmp_path: Path):
    async with NatsServer(tmp_path) as server:
        first, rival = await asyncio.gather(
            set_up(server.url, password=server.users["admin"]), set_up(server.url, password=server.users["admin"])
        )
        again = await set_up(server.url, password=server.users["admin"])
        async with connected(server) as log:
            events = await read_to_end(log)
    assert {*first.created, *rival.created} == {"JOBS", "KV_LEASES", "KV_HEADS", "ARCHIVE"}
    assert first.identity == rival.identity == again.identity
    assert again.created == first.differences == again.differences == ()
    assert [event.subject for event in events] == ["facts.none.none.none.setup.LogCreated"]
    assert events[0].event_id == first.identity


async def test_differences_are_told_and_left_alone(tmp_path: Path):
    async with a_log(tmp_path) as (server, admin):
        await admin({"duplicate_window": 60_000_000_000})
        found = await set_up(server.url, password=server.users["admin"])
        assert found.differences == ("JOBS: duplicate_window is 60000000000, and would be made 600000000000 today",)
        again = await set_up(server.url, password=server.users["admin"])
        assert (again.identity, again.differences) == (found.identity, found.differences)
        assert (again.created, again.grown, again.kept) == (found.created, found.grown, found.kept) == ((), (), ())


async def test_what_concerns_new_messages_alone_is_changed(tmp_path: Path):
    async with a_log(tmp_path) as (server, admin):
        await admin({"republish": None, "max_msg_size": -1})
        would = await set_up(server.url, password=server.users["admin"], check=True)
        found = await set_up(server.url, password=server.users["admin"])
        assert would.grown == found.grown
        assert sorted(sentence.partition(" is ")[0] for sentence in found.grown) == [
            "JOBS: max_msg_size",
            "JOBS: republish",
        ]
        assert found.differences == ()
        assert (await set_up(server.url, password=server.users["admin"])).grown == ()


async def test_checkpoints_of_an_older_log_get_lifetimes(tmp_path: Path):
    async with NatsServer(tmp_path) as server, at(server, "admin") as admin:
        (heads,) = (config for config in CONFIGS if config["name"] == "KV_HEADS")
        await api.call(admin, "STREAM.CREATE.KV_HEADS", heads | {"allow_msg_ttl": False}, StreamInfo)
        found = await set_up(server.url, password=server.users["admin"])
        assert found.grown == ("KV_HEADS: allow_msg_ttl is True now, and was False",)
        assert found.differences == ()


async def test_an_older_archive_takes_who_made_changes_for_a_time(tmp_path: Path):
    async with NatsServer(tmp_path) as server, at(server, "admin") as admin:
        (archive,) = (config for config in CONFIGS if config["name"] == "ARCHIVE")
        older = archive | {"subjects": ["archive.*.*.*"], "allow_msg_ttl": False}
        await api.call(admin, "STREAM.CREATE.ARCHIVE", older, StreamInfo)
        found = await set_up(server.url, password=server.users["admin"])
        assert found.grown == (
            "ARCHIVE: subjects is ['archive.*.*.*', 'archive.*.*.*.people'] now, and was ['archive.*.*.*']",
            "ARCHIVE: allow_msg_ttl is True now, and was False",
        )
        assert found.differences == ()


async def test_a_stream_of_somebody_else_stays_as_it_is(tmp_path: Path):
    async with NatsServer(tmp_path) as server, at(server, "admin") as admin:
        await api.call(admin, "STREAM.CREATE.JOBS", {"name": "JOBS", "subjects": ["orders.>"]}, StreamInfo)
        with pytest.raises(Refused, match="JOBS: subjects is"):
            await set_up(server.url, password=server.users["admin"])
        assert (await api.stream_info(admin, "JOBS")).config["subjects"] == ["orders.>"]


async def test_what_would_lose_history_is_an_error(tmp_path: Path):
    async with a_log(tmp_path) as (server, admin):
        await admin({"max_age": 3_600_000_000_000})
        with pytest.raises(Refused, match=r"JOBS: max_age is 3600000000000 and has to be 0.*nats stream edit"):
            await set_up(server.url, password=server.users["admin"])


async def test_a_log_gets_the_size_that_is_asked_for_and_never_less_than_it_holds(tmp_path: Path):
    async with NatsServer(tmp_path) as server:
        await set_up(server.url, password=server.users["admin"], max_bytes=1024 * 1024)
        for asked in (None, 1024 * 1024):
            same = await set_up(server.url, password=server.users["admin"], max_bytes=asked)
            assert same.grown == same.kept == same.differences == ()
        would = await set_up(server.url, password=server.users["admin"], max_bytes=2048 * 1024, check=True)
        grown = await set_up(server.url, password=server.users["admin"], max_bytes=2048 * 1024)
        assert would.grown == grown.grown == ("JOBS: max_bytes is 2097152 now, and was 1048576",)
        less = await set_up(server.url, password=server.users["admin"], max_bytes=1024 * 1024)
        assert less.grown == ("JOBS: max_bytes is 1048576 now, and was 2097152",)
        kept = await set_up(server.url, password=server.users["admin"], max_bytes=100)
        (sentence,) = kept.kept
        assert sentence.startswith("JOBS: max_bytes stays 1048576, 100 was asked for: it holds ")
        assert kept.identity == less.identity == grown.identity


async def test_on_a_cluster_copies_are_added(nats_cluster_of_its_own: NatsCluster):
    cluster, password = nats_cluster_of_its_own, nats_cluster_of_its_own.users["admin"]
    await set_up(cluster.url, password=password)
    grown = await set_up(cluster.url, password=password, replicas=3)
    assert [sentence.partition(":")[0] for sentence in grown.grown] == ["JOBS", "KV_LEASES", "KV_HEADS", "ARCHIVE"]
    kept = await set_up(cluster.url, password=password, replicas=1)
    assert [sentence.partition(" stays 3")[1] for sentence in kept.kept] == [" stays 3"] * 4


async def test_a_check_makes_nothing(tmp_path: Path):
    async with NatsServer(tmp_path) as server:
        found = await set_up(server.url, password=server.users["admin"], check=True)
        assert (found.identity, found.created) == ("", ("JOBS", "KV_LEASES", "KV_HEADS", "ARCHIVE"))
        again = await set_up(server.url, password=server.users["admin"], check=True)
        assert (again.identity, again.created) == (found.identity, found.created)


async def test_a_stream_without_its_beginning_gets_no_new_identity(tmp_path: Path):
    async with NatsServer(tmp_path) as server:
        admin = await Connection.open(server.url, name="test", user="admin", password=server.users["admin"])
        await api.call(admin, "STREAM.CREATE.JOBS", LOG_CONFIG, StreamInfo)
        await api.publish(admin, "jobs.a.b.c.status.JobCreated", b"{}", {})
        await admin.close()
        with pytest.raises(Refused) as refusal:
            await set_up(server.url, password=server.users["admin"])
    assert refusal.value.reason == "LogTruncated"


async def test_before_it_ran_the_log_says_so(tmp_path: Path):
    async with NatsServer(tmp_path) as server, connected(server, patience=0.2) as log:
        for question in (log.identity, log.end, lambda: log.bucket("LEASES"), lambda: read_to_end(log)):
            with pytest.raises(Refused) as refusal:
                await question()
            assert refusal.value.reason == "NotSetUp"
        with pytest.raises(Refused, match="muster setup"):
            await log.append(a_decision(), expect=0)


async def test_a_full_log_refuses_and_keeps_what_it_has(tmp_path: Path):
    async with NatsServer(tmp_path) as server:
        await set_up(server.url, password=server.users["admin"], max_bytes=300_000)
        async with connected(server) as log:
            body = b"x" * 100_000
            for number in range(2):
                await log.append(a_decision(job=f"job-{number}", body=body), expect=0)
            with pytest.raises(Transient, match="maximum bytes"):
                await log.append(a_decision(job="job-2", body=body), expect=0)
            events = await read_to_end(log, "jobs.>")
    assert len(events) == 2


async def test_a_new_stream_over_an_old_store_is_refused(tmp_path: Path):
    cluster = NatsCluster(tmp_path)
    await cluster.start()
    try:
        await set_up(cluster.url, password=cluster.users["admin"], replicas=3)
        async with connected(cluster) as log:
            await log.append(a_decision(), expect=0)
    finally:
        cluster.stop()
    folder = next(iter(cluster.servers.values())).directory
    async with NatsServer(folder, users=cluster.users) as alone:
        with pytest.raises(Refused, match=r"\d events were in the server's folder already") as refusal:
            await set_up(alone.url, password=cluster.users["admin"])
        assert refusal.value.reason == "OldStore"


async def test_the_last_server_of_a_cluster_is_waited_for(tmp_path: Path):
    cluster = NatsCluster(tmp_path)
    *first, last = cluster.servers.values()
    try:
        for server in first:
            await server.start()
        setting_up = asyncio.create_task(set_up(first[0].url, password=cluster.users["admin"], replicas=3))
        # An election takes some seconds; only then are there two servers that could say that a third is missing.
        done, _ = await asyncio.wait([setting_up], timeout=8)
        assert not done, setting_up.result()
        await last.start()
        assert (await setting_up).created == ("JOBS", "KV_LEASES", "KV_HEADS", "ARCHIVE")
    finally:
        cluster.stop()
