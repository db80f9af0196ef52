"""TLS to a real NATS server: who is trusted, who is not and says so in one line, and files that are rotated."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shared.errors import Refused
from shared.eventlog import Entry
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from shared.eventlog.tls import Tls
from tests.kit.nats import READY, certified, until
from tests.security.authority import Authority

pytestmark = pytest.mark.nats

AT_ONCE = 15.0
"""Seconds: half of the patience with a server that is not there, many times what a handshake takes."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


@asynccontextmanager
async def secured(folder: Path, tls: Tls, trusted: Tls) -> AsyncIterator[NatsServer]:
    async with NatsServer(folder, more=certified(tls)) as server:
        await set_up(server.url, password=server.users["admin"], tls=trusted)
        yield server


async def connect(server: NatsServer, tls: Tls | None = None, *, url: str = "", **how: str | Path) -> JetStreamEventLog:
    given = how or {"password": server.users["status"]}
    return await JetStreamEventLog.connect(url or server.url, name="status", user="status", tls=tls, **given)  # type: ignore[arg-type]


async def refusal(server: NatsServer, tls: Tls | None, *, url: str = "") -> str:
    """What is said about a connection that cannot be."""
    async with asyncio.timeout(AT_ONCE):
        with pytest.raises(Refused) as refused:
            await connect(server, tls, url=url)
    assert refused.value.reason == "Untrusted"
    said = str(refused.value)
    assert "\n" not in said
    return said


async def test_whom_we_trust_is_talked_to(tmp_path: Path, authority: Authority):
    async with secured(tmp_path / "nats", authority.issue("server"), Tls(ca=authority.path)) as server:
        for url in (server.url, server.url.replace("tls://", "nats://")):
            log = await connect(server, Tls(ca=authority.path), url=url)
            assert await log.identity()
            await log.close()


async def test_an_authority_that_is_not_the_servers_is_told_in_one_line(tmp_path: Path, authority: Authority):
    other = Authority(tmp_path / "other")
    async with secured(tmp_path / "nats", authority.issue("server"), Tls(ca=authority.path)) as server:
        for tls in (Tls(ca=other.path), None):
            said = await refusal(server, tls)
            assert "the server's certificate is not trusted" in said
            assert "NATS_CA" in said


async def test_a_certificate_that_ran_out_is_told(tmp_path: Path, authority: Authority):
    async with NatsServer(tmp_path / "nats", more=certified(authority.issue("server", expired=True))) as server:
        assert "certificate has expired" in await refusal(server, Tls(ca=authority.path))


async def test_a_server_without_tls_never_hears_the_password(tmp_path: Path, authority: Authority):
    async with NatsServer(tmp_path / "nats") as server:
        assert "offers no TLS" in await refusal(server, Tls(ca=authority.path))
        assert "offers no TLS" in await refusal(server, None, url=server.url.replace("nats://", "tls://"))


async def test_a_file_that_is_missing_or_none_is_named(tmp_path: Path, authority: Authority):
    nonsense = tmp_path / "nonsense.crt"
    nonsense.write_text("no certificate")
    async with secured(tmp_path / "nats", authority.issue("server"), Tls(ca=authority.path)) as server:
        for ca in (tmp_path / "missing.crt", nonsense):
            assert str(ca) in await refusal(server, Tls(ca=ca))


async def test_a_server_may_ask_for_our_certificate(tmp_path: Path, authority: Authority):
    clients = Authority(tmp_path / "clients")
    ours = clients.issue("status")
    trusted = Tls(ca=authority.path, certificate=ours.certificate, key=ours.key)
    asking = authority.issue("server", of_clients=clients.path)
    async with secured(tmp_path / "nats", asking, trusted) as server:
        log = await connect(server, trusted)
        assert await log.identity()
        await log.close()
        assert "rejects the client certificate" in await refusal(server, Tls(ca=authority.path))
        foreign = authority.issue("foreign")
        with_foreign = Tls(ca=authority.path, certificate=foreign.certificate, key=foreign.key)
        assert "rejects the client certificate" in await refusal(server, with_foreign)


async def test_rotated_certificates_and_authorities_are_read_again(tmp_path: Path, authority: Authority):
    trusted = tmp_path / "ca.crt"
    shutil.copy(authority.path, trusted)
    serving = authority.issue("server")
    async with secured(tmp_path / "nats", serving, Tls(ca=trusted)) as server:
        log = await connect(server, Tls(ca=trusted))
        sequence = await log.append(a_fact(), expect=0)
        server.stop()
        # A new authority with a new certificate for the server, in the same files.
        new = Authority(tmp_path / "new")
        issued = new.issue("server")
        for old, fresh in ((trusted, new.path), (serving.certificate, issued.certificate), (serving.key, issued.key)):
            assert old is not None
            assert fresh is not None
            shutil.copy(fresh, old)
        await server.start()
        assert await log.end() == sequence
        await log.close()


async def test_a_connection_outlives_a_time_of_wrong_certificates(tmp_path: Path, authority: Authority):
    serving, good = authority.issue("server"), tmp_path / "good.crt"
    assert serving.certificate is not None
    shutil.copy(serving.certificate, good)
    async with secured(tmp_path / "nats", serving, Tls(ca=authority.path)) as server:
        log = await connect(server, Tls(ca=authority.path))
        server.stop()
        key = serving.key.read_bytes() if serving.key else b""
        authority.issue("server", expired=True)
        await server.start()

        async def is_told() -> bool:
            return "certificate has expired" in log.connection._trouble

        await until(is_told)
        server.stop()
        serving.certificate.write_bytes(good.read_bytes())
        assert serving.key is not None
        serving.key.write_bytes(key)
        await server.start()
        assert await log.identity()
        await log.close()


async def test_a_rotated_password_is_read_again(tmp_path: Path):
    secret = tmp_path / "password"
    async with NatsServer(tmp_path / "nats") as server:
        await set_up(server.url, password=server.users["admin"])
        secret.write_text(server.users["status"] + "\n")
        log = await connect(server, password_file=secret)
        server.stop()
        server.users["status"] = "rotated"
        secret.write_text("rotated\n")
        await server.start()
        assert await log.identity()
        await log.close()


async def test_a_service_says_what_is_wrong_in_one_line_and_recovers(tmp_path: Path, authority: Authority):
    trusted = tmp_path / "ca.crt"
    shutil.copy(Authority(tmp_path / "other").path, trusted)
    async with secured(tmp_path / "nats", authority.issue("server"), Tls(ca=authority.path)) as server:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("NATS_", "MUSTER_", "KUBE"))
        }
        environment |= {"NATS_URL": server.url, "NATS_USER": "status", "NATS_PASSWORD": server.users["status"]}
        environment |= {"NATS_CA": str(trusted), "KUBECONFIG": str(tmp_path / "no-cluster")}
        service = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.status", env=environment, stderr=asyncio.subprocess.PIPE
        )
        assert service.stderr is not None
        try:
            said = await _line_with(service.stderr, "not trusted")
            assert "NATS_CA" in said
            shutil.copy(authority.path, trusted)
            # It is through to the log, and waits for the next thing that is missing.
            await _line_with(service.stderr, "no-cluster")
        finally:
            service.terminate()
            await service.wait()


async def _line_with(stream: asyncio.StreamReader, words: str) -> str:
    async with asyncio.timeout(READY):
        while words not in (line := (await stream.readline()).decode()):
            assert line, f"it ended without a word of {words!r}"
        return line


def a_fact() -> Entry:
    return Entry(
        subject="facts.team-a.resnet.u-1.status.EffectRefused",
        event_id="rotated-1",
        time="2026-01-01T00:00:00.000Z",
        body=b"{}",
    )
