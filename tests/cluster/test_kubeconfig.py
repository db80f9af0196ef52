"""Kubeconfig files: how several are merged, where their paths lead, and what a credential plugin gives."""

import ast
import asyncio
import json
import runpy
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp.connector import Connection

from shared.cluster import access, connections
from shared.cluster.access import find_cluster
from shared.cluster.examination import PATIENCE_SECONDS, Right, must_allow
from shared.cluster.kube import KubeCluster
from shared.cluster.kubeconfig import current_context
from shared.errors import Refused, Transient
from shared.eventlog.tls import Tls
from tests.kit.watching import PATIENCE
from tests.security.authority import Authority

PLUGIN_VERSION = "client.authentication.k8s.io/v1"


def write(path: Path, *, cluster: dict[str, Any], user: dict[str, Any], **more: Any) -> str:
    """A kubeconfig with one entry of each kind, all called `it`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": user}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }
    path.write_text(yaml.safe_dump({**parts, **more}))
    return str(path)


def plugin(folder: Path, *, answers: int = 99, **given: str) -> dict[str, Any]:
    """The user entry of a plugin that gives this; its token gets a number, one more at each run.

    It `answers` so often, and then hangs in a program of its own.
    """
    program, counter = folder / "plugin.py", folder / "runs"
    program.write_text(f"""
import json, pathlib, subprocess
counter = pathlib.Path({str(counter)!r})
runs = len(counter.read_text()) + 1 if counter.exists() else 1
counter.write_text("x" * runs)
if runs > {answers}:
    subprocess.run(["sleep", "321"])
given = json.loads({json.dumps(given)!r})
if "token" in given:
    given["token"] += str(runs)
print(json.dumps({{"apiVersion": {PLUGIN_VERSION!r}, "kind": "ExecCredential", "status": given}}))
""")
    return {"exec": {"command": sys.executable, "args": [str(program)], "apiVersion": PLUGIN_VERSION}}


def test_of_several_files_the_first_one_that_has_an_entry_counts(tmp_path: Path):
    first = write(tmp_path / "first", cluster={"server": "http://first"}, user={"token": "first"})
    second = write(
        tmp_path / "second", cluster={"server": "http://second"}, user={"token": "second"}, **{"current-context": "it"}
    )
    assert current_context([first, second]).cluster == {"server": "http://first"}
    assert current_context([second, first]).user == {"token": "second"}


def test_paths_are_relative_to_the_file_in_which_they_stand(tmp_path: Path):
    clusters = write(
        tmp_path / "a" / "config", cluster={"server": "https://it", "certificate-authority": "ca.crt"}, user={}
    )
    users = write(
        tmp_path / "b" / "config",
        cluster={},
        user={"tokenFile": "secret/token", "client-key": "/etc/key"},
        clusters=None,
        **{"current-context": "it"},
    )
    found = current_context([users, clusters])
    assert found.cluster["certificate-authority"] == str(tmp_path / "a" / "ca.crt")
    assert found.user == {"tokenFile": str(tmp_path / "b" / "secret" / "token"), "client-key": "/etc/key"}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        pytest.param({}, "no current context is named", id="no current context"),
        pytest.param({"current-context": "other"}, "there is no context 'other'", id="a context that is missing"),
        pytest.param({"current-context": "it", "users": []}, "there is no user 'it'", id="a user that is missing"),
        pytest.param({"current-context": "it", "clusters": []}, "there is no cluster 'it'", id="no cluster"),
    ],
)
def test_a_missing_entry_is_named(tmp_path: Path, changed: dict[str, Any], told: str):
    path = write(tmp_path / "config", cluster={"server": "http://it"}, user={}, **changed)
    with pytest.raises(Refused, match=told) as refusal:
        current_context([path])
    assert refusal.value.reason == "BadKubeconfig"


async def test_a_plugin_is_run_again_before_its_token_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(access, "PLUGIN_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(access, "RENEWAL_PAUSE_SECONDS", 0.0)
    soon = (datetime.now(UTC) + timedelta(minutes=4)).isoformat().replace("+00:00", "Z")
    user = plugin(tmp_path, token="run-", expirationTimestamp=soon)
    path = write(tmp_path / "config", cluster={"server": "http://it"}, user=user, **{"current-context": "it"})
    found = await find_cluster(Path(path))
    assert await found.headers() == {"authorization": "Bearer run-2"}
    assert await found.headers() == {"authorization": "Bearer run-3"}


async def test_a_plugin_whose_credentials_never_hold_is_run_again_as_by_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(access, "PLUGIN_PAUSE_SECONDS", 0.0)
    # Go's time that was not set.
    user = plugin(tmp_path, token="run-", expirationTimestamp="0001-01-01T00:00:00Z")
    path = write(tmp_path / "config", cluster={"server": "http://it"}, user=user, **{"current-context": "it"})
    assert await (await find_cluster(Path(path))).headers() == {"authorization": "Bearer run-2"}


@pytest.mark.parametrize(
    "status",
    [
        pytest.param('{"token": "it", "expirationTimestamp": "2030-12-01T00:00:00"}', id="an expiry without a zone"),
        pytest.param('{"clientCertificateData": 1, "clientKeyData": 2}', id="a certificate that is no text"),
        pytest.param("[" * 100_000, id="nested too deeply"),
    ],
)
async def test_a_plugin_that_gives_no_credentials_is_named(tmp_path: Path, status: str):
    given = tmp_path / "given"
    given.write_text(f'{{"apiVersion": "{PLUGIN_VERSION}", "kind": "ExecCredential", "status": {status}}}')
    user = {"exec": {"command": "cat", "args": [str(given)], "apiVersion": PLUGIN_VERSION}}
    path = write(tmp_path / "config", cluster={"server": "http://it"}, user=user, **{"current-context": "it"})
    with pytest.raises(Transient, match=r"plugin cat named in .* failed: "):
        await (await find_cluster(Path(path))).headers()


async def test_a_token_without_an_expiry_is_kept_until_it_is_not_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(access, "PLUGIN_PAUSE_SECONDS", 0.0)
    user = plugin(tmp_path, token="run-")
    path = write(tmp_path / "config", cluster={"server": "http://it"}, user=user, **{"current-context": "it"})
    found = await find_cluster(Path(path))
    assert await found.headers() == await found.headers() == {"authorization": "Bearer run-1"}
    await found.renew()
    assert await found.headers() == {"authorization": "Bearer run-2"}
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    monkeypatch.setattr(access, "RENEWAL_PAUSE_SECONDS", 0.0)
    with pytest.raises(Transient, match="missing"):
        await found.renew()


async def test_a_plugin_that_gives_half_a_certificate_is_named_with_what_is_missing(tmp_path: Path):
    user = plugin(tmp_path, clientCertificateData="a certificate")
    path = write(tmp_path / "config", cluster={"server": "http://it"}, user=user, **{"current-context": "it"})
    with pytest.raises(Transient, match=r"plugin .* named in .* gave neither a token nor a certificate with its key"):
        await find_cluster(Path(path))


@pytest.mark.parametrize(
    ("person", "seen", "mode", "interactive"),
    [
        pytest.param(True, False, "IfAvailable", True, id="a person"),
        pytest.param(True, True, "Never", False, id="a person whom it does not ask"),
        pytest.param(False, True, "IfAvailable", False, id="a person whose standard input is a file"),
        pytest.param(False, False, "IfAvailable", False, id="no person"),
        pytest.param(False, True, "Always", None, id="no person whom it could ask"),
    ],
)
async def test_a_plugin_is_run_as_kubectl_runs_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    person: bool,
    seen: bool,
    mode: str,
    interactive: bool | None,
):
    """What kubectl 1.36 told a plugin of such a kubeconfig, in another folder than its own, and printed of it."""
    program = tmp_path / "bin" / "plugin"
    program.parent.mkdir()
    answer = {"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": {"token": "it"}}
    told = tmp_path / "told"
    program.write_text(
        f"#!/bin/sh\necho log in >&2\necho $KUBERNETES_EXEC_INFO > {told}\necho '{json.dumps(answer)}'\n"
    )
    program.chmod(0o700)
    named = {"apiVersion": PLUGIN_VERSION, "command": "bin/plugin", "interactiveMode": mode, "provideClusterInfo": True}
    server = {"server": "https://127.0.0.1:1", "tls-server-name": "foo", "insecure-skip-tls-verify": True}
    more = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a1"}}
    cluster = server | {"extensions": [more]}
    path = write(tmp_path / "config", cluster=cluster, user={"exec": named}, **{"current-context": "it"})
    monkeypatch.setattr("os.isatty", {0: person, 2: seen}.__getitem__)
    if interactive is None:
        with pytest.raises(Transient, match="it asks a person, and standard input is not a terminal"):
            await find_cluster(Path(path))
        return
    assert await (await find_cluster(Path(path))).headers() == {"authorization": "Bearer it"}
    spec = {"cluster": server | {"config": {"audience": "a1"}}, "interactive": interactive}
    assert json.loads(told.read_text()) == {"kind": "ExecCredential", "apiVersion": PLUGIN_VERSION, "spec": spec}
    assert capfd.readouterr().err == ("log in\n" if interactive or seen else "")


async def test_a_plugin_that_is_not_there_says_how_to_install_it(tmp_path: Path):
    user = {"exec": {"apiVersion": PLUGIN_VERSION, "command": "no-such-plugin", "installHint": "run\nthis"}}
    path = write(tmp_path / "config", cluster={"server": "http://it"}, user=user, **{"current-context": "it"})
    with pytest.raises(Transient, match=r"plugin no-such-plugin named in .* is not installed. run this$"):
        await find_cluster(Path(path))


async def test_a_plugin_that_hangs_is_ended_with_its_programs_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(access, "PLUGIN_SECONDS", 1.0)
    user = plugin(tmp_path, answers=0, token="run-")
    path = write(tmp_path / "config", cluster={"server": "http://it"}, user=user, **{"current-context": "it"})
    before = sleepers()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(Transient, match=rf"plugin {sys.executable} named in {path} does not answer; run it"):
            await find_cluster(Path(path))
        while sleepers() - before:
            await asyncio.sleep(0.01)


async def test_calls_go_on_with_the_credentials_that_hold_while_a_plugin_hangs_and_readiness_names_it_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert access.RENEWAL_SECONDS < PATIENCE_SECONDS
    monkeypatch.setattr(access, "RENEWAL_SECONDS", 0.2)
    monkeypatch.setattr(access, "PLUGIN_PAUSE_SECONDS", 0.0)
    soon = (datetime.now(UTC) + timedelta(minutes=4)).isoformat().replace("+00:00", "Z")
    user = plugin(tmp_path, answers=1, token="run-", expirationTimestamp=soon)
    server = await asyncio.start_server(partial(answered, status="401 Unauthorized"), "127.0.0.1", 0)
    cluster = {"server": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"}
    path = write(tmp_path / "config", cluster=cluster, user=user, **{"current-context": "it"})
    found = await find_cluster(Path(path))
    async with server, asyncio.timeout(PATIENCE):
        both = await asyncio.gather(found.headers(), found.headers())
        assert both == [{"authorization": "Bearer run-1"}] * 2
        client = KubeCluster(found)
        for _ in range(2):
            with pytest.raises(Transient, match=r"plugin .* does not answer"):
                await must_allow(client, [Right("get", "", "pods")], "")
        await client.close()
        while (tmp_path / "runs").read_text() == "x":
            # Python starts slowly on a busy machine.
            await asyncio.sleep(0.01)
    assert (tmp_path / "runs").read_text() == "xx"


def sleepers() -> set[str]:
    """The processes in which plugins hang."""
    lines = {each.parent.name: each.read_bytes() for each in Path("/proc").glob("[0-9]*/cmdline") if each.exists()}
    return {number for number, line in lines.items() if line == b"sleep\x00321\x00"}


async def test_the_certificate_of_a_plugin_proves_who_we_are_at_every_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    authority = Authority(tmp_path)
    server, me = authority.issue("server"), authority.issue("me")
    assert me.certificate is not None
    assert me.key is not None
    user = plugin(tmp_path, clientCertificateData=me.certificate.read_text(), clientKeyData=me.key.read_text())
    async with a_server_that_asks_for_certificates(authority, server) as (url, seen):
        cluster = {"server": url, "certificate-authority": str(authority.path)}
        path = write(tmp_path / "config", cluster=cluster, user=user, **{"current-context": "it"})
        for _ in range(2):
            found = await find_cluster(Path(path))
            await found.renew()
            # A program may open more than one session, and the files of the first are gone by then.
            for session in (found.open(), found.open()):
                async with session, session.get(f"{found.url}/version") as answer:
                    assert answer.status == 200
    assert seen == ["me"] * 4
    assert list((tmp_path / "temporary").iterdir()) == []


async def test_a_certificate_that_is_no_longer_accepted_is_read_again(tmp_path: Path):
    authority = Authority(tmp_path)
    server, old, new = (authority.issue(name) for name in ("server", "old", "new"))
    async with a_server_that_asks_for_certificates(authority, server, accepts="new") as (url, seen):
        cluster = {"server": url, "certificate-authority": str(authority.path)}

        def written(mine: Tls) -> Path:
            user = {"client-certificate": str(mine.certificate), "client-key": str(mine.key)}
            return Path(write(tmp_path / "config", cluster=cluster, user=user, **{"current-context": "it"}))

        client = await KubeCluster.connect(written(old))
        with pytest.raises(Transient, match="401"):
            await client.ask("/version", what="ask")
        written(new)
        await asyncio.sleep(access.RENEWAL_PAUSE_SECONDS)
        await client.ask("/version", what="ask")
        await client.close()
    assert seen == ["old", "old", "old", "new"]


async def test_a_pod_trusts_the_new_authority_of_its_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    token, trusted = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("mine")
    monkeypatch.setattr("kubernetes.aio.config.incluster_config.SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr("kubernetes.aio.config.incluster_config.SERVICE_CERT_FILENAME", str(trusted))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    before, after = Authority(tmp_path / "before"), Authority(tmp_path / "after")
    trusted.write_bytes(before.path.read_bytes())
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

    def serve_by(authority: Authority) -> None:
        mine = authority.issue("server")
        assert mine.certificate is not None
        served.load_cert_chain(mine.certificate, mine.key)

    serve_by(before)
    server = await asyncio.start_server(answered, "127.0.0.1", 0, ssl=served)
    async with server:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.sockets[0].getsockname()[1]))
        client = await KubeCluster.connect()
        await client.ask("/version", what="ask")
        serve_by(after)
        with pytest.raises(Transient, match="not trusted"):
            await client.ask("/version", what="ask")
        trusted.write_bytes(after.path.read_bytes()[:99])
        with pytest.raises(Transient, match="new certificates cannot be used"):
            await client.ask("/version", what="ask")
        trusted.write_bytes(after.path.read_bytes())
        await client.ask("/version", what="ask")
        await client.close()


async def test_a_connection_whose_other_end_lost_its_power_is_noticed_as_soon_as_by_client_go(tmp_path: Path):
    server = await asyncio.start_server(answered, "127.0.0.1", 0)
    cluster = {"server": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"}
    found = await find_cluster(Path(write(tmp_path / "it", cluster=cluster, user={}, **{"current-context": "it"})))
    of_tcp = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    seconds: list[int] = []

    class Seen(aiohttp.ClientRequest):
        async def send(self, conn: Connection) -> aiohttp.ClientResponse:
            assert conn.transport is not None
            made = conn.transport.get_extra_info("socket")
            assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            idle, interval, count = (made.getsockopt(socket.IPPROTO_TCP, option) for option in of_tcp)
            seconds.append(idle + interval * count)
            return await super().send(conn)

    async with server, found.open(Seen) as session, session.get(found.url):
        assert seconds == [45]


def test_a_laptop_with_macos_keeps_its_connections_alive_by_its_own_word_for_it(monkeypatch: pytest.MonkeyPatch):
    idle = socket.TCP_KEEPIDLE
    monkeypatch.delattr(socket, "TCP_KEEPIDLE")
    monkeypatch.setattr(socket, "TCP_KEEPALIVE", idle, raising=False)
    there = runpy.run_path(connections.__file__)
    with there["kept_alive"]((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))) as made:
        assert made.getsockopt(socket.IPPROTO_TCP, idle) == 30


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: str = "200 OK") -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
    await writer.drain()
    writer.close()


@asynccontextmanager
async def a_server_that_asks_for_certificates(
    authority: Authority, mine: Any, *, accepts: str = "", must: bool = True
) -> AsyncIterator[tuple[str, list[str]]]:
    """It answers 200 to everything, or 401 to others than it `accepts`; each client's name is added to the list.

    A client `must` show a certificate; the name of one without it is `nobody`.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.path))
    context.load_cert_chain(mine.certificate, mine.key)
    context.verify_mode = ssl.CERT_REQUIRED if must else ssl.CERT_OPTIONAL
    seen: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown = writer.get_extra_info("peercert") or {"subject": [[("commonName", "nobody")]]}
        seen.append(dict(pair[0] for pair in shown["subject"])["commonName"])
        await answered(reader, writer, "200 OK" if accepts in ("", seen[-1]) else "401 Unauthorized")

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen


def test_the_kubernetes_client_is_used_by_its_public_names_alone():
    tree = ast.parse(Path(access.__file__).read_text())
    private = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        # Our own, of `self` and of the class above.
        and ast.unparse(node.value) not in ("self", "super()")
    ]
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert private == []
    assert [name for name in imported if name.startswith("_")] == []
