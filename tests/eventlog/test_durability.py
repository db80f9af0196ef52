"""What could cost events though all works: told by real servers about themselves, one sentence each."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from devcluster.child import Child, ChildError
from shared.errors import Transient
from shared.eventlog import Entry, api
from shared.eventlog.account import GENESIS
from shared.eventlog.inspection import FULL, copies_trouble, fsync_trouble, look, server_of
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import _program
from shared.eventlog.setup import set_up
from shared.eventlog.streams import LOG_CONFIG, Replica, StreamCluster, StreamInfo, StreamState
from shared.ports import free_port
from tests.kit.nats import READY, NatsCluster, a_decision, a_server, connected, risks_now, until


@asynccontextmanager
async def monitored(folder: Path, jetstream: dict[str, Any] | None, port: int = 0) -> AsyncIterator[str]:
    """Where a server of the test's own is monitored; it listens on `port`."""
    server, url = await _answering(folder, jetstream, port)
    try:
        yield url
    finally:
        await server.stop()


async def _answering(folder: Path, jetstream: dict[str, Any] | None, port: int, tries: int = 3) -> tuple[Child, str]:
    """A server whose monitor answers; on other ports if another test's server took these a moment before."""
    monitor = free_port()
    known = {"server_name": "n1", "listen": f"127.0.0.1:{port or free_port()}", "http": f"127.0.0.1:{monitor}"}
    if jetstream is not None:
        known["jetstream"] = {"store_dir": str(folder / "store"), **jetstream}  # type: ignore[assignment]
    path = folder / "server.conf"
    path.write_text(json.dumps(known))
    server = Child("NATS", [_program(), "--config", str(path)], folder / "server.log", {})
    server.start()
    url = f"http://127.0.0.1:{monitor}"

    async def answers() -> bool:
        # The monitor is there before JetStream is.
        with suppress(Transient):
            return (await server_of(url)).jetstream.disabled is (jetstream is None)
        return False

    try:
        await server.until(answers, READY)
    except ChildError:
        await server.stop()
        if tries == 1 or "address already in use" not in server.log.read_text():
            raise
        return await _answering(folder, jetstream, port, tries - 1)
    return server, url


@pytest.mark.nats
@pytest.mark.parametrize(
    ("jetstream", "says"),
    [
        pytest.param({"sync_interval": "always"}, "", id="always"),
        pytest.param({}, "NATS n1 acknowledges events up to 120 s before they are on the disk", id="as NATS comes"),
        pytest.param({"sync_interval": "10s"}, "NATS n1 acknowledges events up to 10 s before", id="ten seconds"),
        pytest.param(None, "NATS n1 has no JetStream", id="no JetStream"),
    ],
)
async def test_a_server_tells_whether_a_power_cut_costs_events(
    tmp_path: Path, jetstream: dict[str, Any] | None, says: str
):
    async with monitored(tmp_path, jetstream) as url:
        found = [fsync_trouble(await server_of(each)) for each in (url, f"{url}/")]
    assert all(trouble.startswith(says) and bool(trouble) == bool(says) for trouble in found)


async def test_a_monitor_that_cannot_be_asked_is_named():
    gone = f"http://127.0.0.1:{free_port()}"
    asked = f"cannot ask {gone} whether NATS syncs its disk"
    with pytest.raises(Transient, match=f"^{asked}: .*; correct NATS_MONITOR$"):
        await server_of(gone)
    with pytest.raises(Transient, match="nats://here"):
        await server_of("nats://here")


@pytest.mark.parametrize("says", ["html", "[]", "7", "null", '{"status": "ok"}', '{"server_name": 1}', '"\\ud800"'])
async def test_something_else_at_that_address_is_named(says: str):
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + says.encode())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Transient, match=f"cannot ask http://127.0.0.1:{port} whether"):
            await server_of(f"http://127.0.0.1:{port}")


def kept(wanted: int, *replicas: Replica, cluster: str = "c", leader: str = "n0") -> StreamInfo:
    config = {"name": "JOBS", "num_replicas": wanted}
    return StreamInfo(config, StreamState(), StreamCluster(cluster, leader, replicas))


N1, N2 = Replica("n1", current=True), Replica("n2", current=True)
OFFLINE = (Replica("n2", current=True, offline=True), Replica("n1", offline=True))


@pytest.mark.parametrize(
    ("stream", "says", "grave"),
    [
        pytest.param(kept(1, cluster=""), "", False, id="one server"),
        pytest.param(kept(3, N1, N2), "", False, id="all are there"),
        pytest.param(kept(1), "JOBS: one copy in a cluster", False, id="one copy in a cluster"),
        pytest.param(
            kept(3, N1, Replica("n2", lag=7)), "JOBS: 2 of 3 copies are current; look at n2", False, id="one is behind"
        ),
        pytest.param(kept(3, *OFFLINE), "JOBS: 1 of 3 copies are current; look at n1, n2", True, id="two are gone"),
        pytest.param(kept(3, N1), "JOBS: 2 of 3 copies are current; bring back", True, id="one was never made"),
        pytest.param(kept(3, N1, N2, leader=""), "JOBS: no copy leads", True, id="no copy leads"),
    ],
)
def test_copies(stream: StreamInfo, says: str, grave: bool):
    trouble = copies_trouble(stream)
    assert bool(trouble) == bool(says)
    assert not trouble or (f"{trouble.words}; {trouble.remedy}".startswith(says) and trouble.grave is grave)


@pytest.mark.nats
async def test_a_server_that_is_as_it_should_be_is_no_risk(tmp_path: Path):
    async with a_server(tmp_path) as server, connected(server) as log:
        assert (await look(log, ())).risks == []


ROOM = 20_000


@pytest.mark.nats
@pytest.mark.parametrize(
    ("max_bytes", "jetstream", "full", "remedy"),
    [
        pytest.param(ROOM, {}, "JOBS", "raise max_bytes with `nats stream edit JOBS`", id="a bound of the stream"),
        pytest.param(-1, {"max_file_store": ROOM}, "NATS n1", "give it a larger disk", id="the disk of a server"),
    ],
)
async def test_a_log_that_fills_up_is_a_risk_before_it_takes_no_more(
    tmp_path: Path, max_bytes: int, jetstream: dict[str, Any], full: str, remedy: str
):
    port = free_port()
    url = f"nats://127.0.0.1:{port}"
    async with monitored(tmp_path, {"sync_interval": "always", **jetstream}, port) as monitor:
        log = await JetStreamEventLog.connect(url, name="test")
        # Without the buckets, for which a server sets more aside than this one has.
        await api.call(log.connection, "STREAM.CREATE.JOBS", LOG_CONFIG | {"max_bytes": max_bytes}, StreamInfo)
        try:
            genesis = Entry(subject=GENESIS, event_id="log", time="2026-01-01T00:00:00.000Z", body=b"{}")
            await log.append(genesis, expect=0)
            found = await look(log, [monitor])
            assert found.risks == []
            used: list[int] = []
            while not found.risks:
                await log.append(a_decision(job=f"j{len(used)}", body=b"x" * 1_000), expect=0)
                found = await look(log, [monitor])
                used.append(next(room.used for room in found.rooms if room.of == full))
            assert used == sorted({*used}), "each event takes room"
            assert used[-2] < FULL * ROOM <= used[-1] < ROOM, "told from there on, and with room left"
            (told,) = found.risks
            assert told.startswith(f"{full}: at least 80% of the 20 KiB that it may have are used; {remedy}")
            await log.append(a_decision(job="next", body=b"x" * 1_000), expect=0)
            assert (await look(log, [monitor])).risks == [told], "the same words while it lasts"
        finally:
            await log.close()


@pytest.mark.nats
async def test_a_cluster_tells_of_copies_that_are_missing(tmp_path: Path):
    cluster = NatsCluster(tmp_path)
    try:
        await cluster.start()
        await set_up(cluster.url, password=cluster.users["admin"], replicas=3)
        async with connected(cluster) as log:

            async def whole() -> bool:
                return await risks_now(log) == []

            async def one_is_missing() -> bool:
                return "JOBS: 2 of 3 copies are current; look at n2" in (await risks_now(log) or ())

            await until(whole)
            cluster.servers["n2"].kill()
            await until(one_is_missing)
    finally:
        cluster.stop()
