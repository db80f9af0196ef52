"""What is wrong with the log, or might be: a missing Secret, a disk that is full or will be soon.

Real service processes with real servers, as in `test_trouble.py`.
"""

import json
import random
import resource
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from devcluster.child import Child
from shared.errors import Transient
from shared.eventlog import EventLog
from shared.eventlog.account import ADMIN, AUTHORS, SUBSCRIBER
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import NatsServer, _program, configuration
from shared.eventlog.setup import set_up
from shared.frameworks.training_job import TRAININGJOBS
from shared.ports import free_port
from tests.kit.nats import a_decision, a_server, connected, until
from tests.kit.operator import a_job
from tests.kit.place import Place, a_place, edit
from tests.kit.service import PATIENCE_SECONDS, Service, a_service

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with a_place(tmp_path_factory.mktemp("place")) as found:
        yield found


async def test_the_secret_is_missing(place: Place, tmp_path: Path):
    path = tmp_path / "password"
    environment = place.environment("status", NATS_PASSWORD_FILE=path)
    del environment["NATS_PASSWORD"]
    async with a_service("status", tmp_path, environment) as service:
        await service.complains(f"{path} cannot be read: No such file or directory; mount the Secret there")
        path.write_text("\n")
        await service.complains(f"{path} is empty; complete the Secret")
        path.write_bytes(b"\xff\xfe")
        await service.complains(f"{path} cannot be read: not a text")
        assert (await service.probed("healthz"))[0] == 200, "a restart would not help"
        path.write_text(place.nats.users["status"])
        await service.becomes(200)
        assert len(service.lines("started")) == 1


async def test_the_secret_goes_while_nats_restarts(place: Place, tmp_path: Path):
    path = tmp_path / "password"
    async with a_server(tmp_path / "nats") as nats:
        path.write_text(nats.users["scaler"])
        environment = place.environment("scaler", NATS_URL=nats.url, NATS_PASSWORD_FILE=path)
        async with a_service("scaler", tmp_path, environment) as service:
            await service.becomes(200)
            path.unlink()
            await nats.restart()
            await service.becomes(503)
            await service.says("not ready", str(path))
            path.write_text(nats.users["scaler"])
            await service.says("ready again")
            await service.becomes(200)


async def test_the_stream_is_full(place: Place, tmp_path: Path):
    """`max_bytes` was reached: nothing that is known is lost, and the job is seen once there is room."""
    async with NatsServer(tmp_path / "nats") as nats:
        # Room for the genesis event and for nothing of a job.
        await set_up(nats.url, password=nats.users[ADMIN], max_bytes=768)
        environment = place.environment("watcher", NATS_URL=nats.url, NATS_PASSWORD=nats.users["watcher"])
        async with a_service("watcher", tmp_path, environment) as service:
            await service.becomes(200)
            await place.kube.create(TRAININGJOBS, "default", a_job("full", "sleep 1"))
            known = await service.becomes(503)
            assert "maximum bytes exceeded" in known["trouble"]
            line = await service.says("not ready", "the log is full", "nats stream edit JOBS --max-bytes")
            assert line["why"] == known["trouble"]
            await edit(nats, "JOBS", {"max_bytes": -1})
            await service.says("ready again")
            await service.becomes(200)
            assert len(service.lines("not ready")) == 1


async def test_the_disk_is_full(place: Place, tmp_path: Path):
    """The server may store no more, not even a lease: the services stand still and say so."""
    # With the subscribers' account it would start or not, by the order of its accounts: its reservations are too large.
    users = {user: password for user, password in place.nats.users.items() if user != SUBSCRIBER}
    port = free_port()
    small, large = ({"max_file_store": size} for size in (600_000, 100_000_000))
    nats = _started(tmp_path, port, users, large)
    try:
        url = f"nats://127.0.0.1:{port}"
        await set_up(url, password=users[ADMIN])
        await nats.stop()
        nats = _started(tmp_path, port, users, small)
        log = await JetStreamEventLog.connect(url, name="test", user="scheduler", password=users["scheduler"])
        with pytest.raises(Transient, match="the log is full"):
            await _fill(log)
        await log.close()
        async with a_service("status", tmp_path, place.environment("status", NATS_URL=url)) as service:
            known = await service.becomes(503)
            line = await service.says("not ready", "the log is full", "a larger disk and `max_file_store`")
            assert not known["owner"]
            await nats.stop()
            nats = _started(tmp_path, port, users, large)
            await until(lambda: _ready(service), within=PATIENCE_SECONDS)
            await service.says("lease acquired")
            assert {said["why"] for said in service.lines("not ready")} >= {line["why"]}
    finally:
        await nats.stop()


async def test_the_disk_does_not_take_what_the_server_writes(place: Place, tmp_path: Path):
    """As one that others have filled: the server answers no write, also once there is room, and every read."""
    async with NatsServer(tmp_path / "nats", users=place.nats.users) as nats:
        await set_up(nats.url, password=nats.users[ADMIN])
        async with a_service("status", tmp_path, place.environment("status", NATS_URL=nats.url)) as service:
            await service.becomes(200)
            resource.prlimit(nats.pid, resource.RLIMIT_FSIZE, (1, 1))
            await service.complains("answers and stores nothing", "restart NATS")
            assert not (await service.becomes(503))["owner"]
            await nats.restart()
            await service.becomes(200)
            await service.says("lease acquired", times=2)


async def test_the_log_cannot_be_read(place: Place, tmp_path: Path):
    """The server is there, the lease is renewed, and nothing would wake a job: no copy of the log answers a reader."""
    async with NatsServer(tmp_path / "nats", users=place.nats.users) as nats, connected(nats) as log:
        await set_up(nats.url, password=nats.users[ADMIN])
        async with a_service("status", tmp_path, place.environment("status", NATS_URL=nats.url)) as service:
            await service.becomes(200)
            await edit(nats, "JOBS", {"republish": None, "allow_direct": False})
            await log.append(a_decision(), expect=0)
            why = "read the log: no server answers; its copies of the log may be catching up"
            await service.complains(why)
            assert (await service.becomes(503))["trouble"] == why
            await edit(nats, "JOBS", {"allow_direct": True})
            await service.becomes(200)
            assert [line["why"] for line in service.lines("not ready")].count(why) == 1
            assert len(service.lines("started")) == 1


async def _fill(log: EventLog) -> None:
    for number in range(100):
        await log.append(a_decision(job=f"job-{number}", body=random.randbytes(100_000)), expect=0)


async def _ready(service: Service) -> bool:
    status, known = await service.probed("readyz")
    return status == 200 and bool(known["owner"])


def _started(folder: Path, port: int, users: Mapping[str, str], jetstream: Mapping[str, object]) -> Child:
    """A server that is configured as ours are, but for this."""
    configured: dict[str, Any] = {"server_name": "other"} | configuration(folder, port=port, users=users)
    configured["jetstream"] |= jetstream
    path = folder / "server.conf"
    path.write_text(json.dumps(configured))
    server = Child("NATS", [_program(), "--config", str(path)], folder / "server.log", {})
    server.start()
    return server


# It works, and something is at risk: a warning at each start, and ready all the same.


async def warns_and_is_ready(service: Service, *words: str) -> None:
    await service.becomes(200)
    line = await service.says("log at risk", *words)
    assert line["level"] == "warning"
    assert (await service.probed("readyz"))[1]["warnings"] == [line["why"]]
    assert len(service.lines("log at risk")) == 1


# One process, four users.


async def test_each_service_of_one_process_is_its_own_user(place: Place, tmp_path: Path):
    folder = tmp_path / "passwords"
    folder.mkdir()
    for author in AUTHORS[:-1]:
        (folder / author).write_text(place.nats.users[author])
    port = free_port()
    environment = place.environment("reader", NATS_PASSWORDS=folder, MUSTER_HEALTH_PORT=port)
    del environment["NATS_USER"], environment["NATS_PASSWORD"]
    running = Child("Muster", [sys.executable, "-m", "muster", "run", "--wait"], tmp_path / "log", environment)
    running.start()

    async def known() -> dict[str, Any]:
        with suppress(aiohttp.ClientConnectionError):
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                return {each["service"]: each for each in (await answer.json())["services"]}
        return {}

    async def all_but_one() -> bool:
        services = await known()
        missing = services.get("status", {}).get("trouble", "")
        return "password file" in missing and all(services[author]["ready"] for author in AUTHORS[:-1])

    async def everybody() -> bool:
        services = await known()
        return all(author in services and services[author]["ready"] for author in AUTHORS)

    try:
        await until(all_but_one, within=PATIENCE_SECONDS)
        (folder / "status").write_text(place.nats.users["status"])
        await until(everybody, within=PATIENCE_SECONDS)
    finally:
        await running.stop()


async def test_the_log_is_nearly_full(place: Place, tmp_path: Path):
    users, port, most = place.nats.users, free_port(), 300_000
    nats = _started(tmp_path, port, users, {})
    try:
        url = f"nats://127.0.0.1:{port}"
        await set_up(url, password=users[ADMIN], max_bytes=most)
        log = await JetStreamEventLog.connect(url, name="test", user="scheduler", password=users["scheduler"])
        await log.append(a_decision(body=random.randbytes(int(0.85 * most))), expect=0)
        await log.close()
        async with a_service("status", tmp_path, place.environment("status", NATS_URL=url)) as service:
            await warns_and_is_ready(service, "JOBS: at least 80% of the 293 KiB", "nats stream edit JOBS")
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{service.port}/metrics") as answer,
            ):
                told = await answer.text()
            assert f'muster_log_max_bytes{{service="status",store="JOBS"}} {most:.1f}' in told
    finally:
        await nats.stop()
