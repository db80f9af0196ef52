"""What could cost events though all works: told by real servers about themselves, one sentence each."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from devcluster.child import Child
from shared.errors import Transient
from shared.eventlog.durability import Copies, Peer, Varz, copies_trouble, fsync_trouble, fsync_troubles, risks
from shared.eventlog.server import _program
from shared.eventlog.setup import set_up
from shared.ports import free_port
from tests.kit.nats import NatsCluster, a_server, connected, until


@asynccontextmanager
async def monitored(folder: Path, jetstream: dict[str, Any] | None) -> AsyncIterator[str]:
    """Where a server of the test's own is monitored."""
    port, monitor = free_port(), free_port()
    known = {"server_name": "n1", "listen": f"127.0.0.1:{port}", "http": f"127.0.0.1:{monitor}"}
    if jetstream is not None:
        known["jetstream"] = {"store_dir": str(folder / "store"), **jetstream}  # type: ignore[assignment]
    path = folder / "server.conf"
    path.write_text(json.dumps(known))
    server = Child("NATS", [_program(), "--config", str(path)], folder / "server.log", {})
    server.start()
    url = f"http://127.0.0.1:{monitor}"

    async def answers() -> bool:
        return not any("cannot ask" in trouble for trouble in await fsync_troubles([url]))

    try:
        await until(answers)
        yield url
    finally:
        await server.stop()


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
        found = await fsync_troubles([url, f"{url}/"])
    if not says:
        assert found == []
        return
    assert len(found) == 2, "each address is asked"
    assert all(trouble.startswith(says) for trouble in found)


async def test_a_monitor_that_cannot_be_asked_is_named():
    gone = f"http://127.0.0.1:{free_port()}"
    (refused,) = await fsync_troubles([gone])
    assert refused.startswith(f"cannot ask {gone}/varz whether NATS syncs its disk: ")
    assert refused.endswith("; correct NATS_MONITOR")
    assert "nats://here" in (await fsync_troubles(["nats://here"]))[0]


@pytest.mark.parametrize("says", ["html", "[]", "7", "null", '{"status": "ok"}', '{"server_name": 1}', '"\\ud800"'])
async def test_something_else_at_that_address_is_named(says: str):
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + says.encode())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        (strange,) = await fsync_troubles([f"http://127.0.0.1:{port}"])
    assert f"cannot ask http://127.0.0.1:{port}/varz" in strange


def test_what_says_nothing_of_its_disk_has_no_jetstream():
    assert "has no JetStream" in fsync_trouble(Varz("n1"))
    assert "has no JetStream" in fsync_trouble(msgspec.convert({"server_name": "n1", "jetstream": {}}, Varz))


ALONE = Copies()
ALL = Copies("c", (Peer("n1", current=True), Peer("n2", current=True)))
BEHIND = Copies("c", (Peer("n1", current=True), Peer("n2", current=False)))
OFFLINE = Copies("c", (Peer("n2", current=True, offline=True), Peer("n1", offline=True)))


@pytest.mark.parametrize(
    ("wanted", "copies", "says"),
    [
        pytest.param(1, ALONE, [], id="one server"),
        pytest.param(3, ALL, [], id="all are there"),
        pytest.param(1, Copies("c"), ["JOBS: one copy in a cluster", "--replicas 3"], id="one copy in a cluster"),
        pytest.param(3, BEHIND, ["JOBS: 2 of 3 copies are current; look at n2"], id="one is behind"),
        pytest.param(3, OFFLINE, ["JOBS: 1 of 3 copies are current; look at n1, n2"], id="two are gone"),
    ],
)
def test_copies(wanted: int, copies: Copies, says: list[str]):
    said = copies_trouble("JOBS", wanted, copies)
    assert bool(said) == bool(says)
    assert all(word in said for word in says)


@pytest.mark.nats
async def test_a_server_that_is_as_it_should_be_is_no_risk(tmp_path: Path):
    async with a_server(tmp_path) as server, connected(server) as log:
        assert await risks(log, ()) == []


@pytest.mark.nats
async def test_a_cluster_tells_of_copies_that_are_missing(tmp_path: Path):
    cluster = NatsCluster(tmp_path)
    try:
        await cluster.start()
        await set_up(cluster.url, password=cluster.users["admin"], replicas=3)
        async with connected(cluster) as log:

            async def whole() -> bool:
                return await risks(log, ()) == []

            async def one_is_missing() -> bool:
                # It may have been the one that we talked to, or the stream's leader.
                with suppress(Transient):
                    return "JOBS: 2 of 3 copies are current; look at n2" in await risks(log, ())
                return False

            await until(whole)
            cluster.servers["n2"].kill()
            await until(one_is_missing, within=40)
    finally:
        cluster.stop()
