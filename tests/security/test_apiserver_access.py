"""The way to a real API server: whose certificate is trusted, and tokens that are rotated while we work."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
import yaml

from devcluster.controlplane import ControlPlane
from muster import permissions
from shared.cluster import Blind, Snapshot
from shared.cluster.examination import Right
from shared.cluster.kinds import PODS
from shared.cluster.kube import KubeCluster
from shared.cluster.reflector import Pace
from shared.errors import Refused, Transient
from tests.kit.apiserver import Answer, ScriptedApiServer, a_pod, ok, status
from tests.kit.nats import until
from tests.security.accounts import Accounts, accounts
from tests.security.authority import Authority

UNTIL_FORGOTTEN = 60.0
"""Seconds; the API server remembers for ten that a token was good."""
PATIENCE = 30.0
"""Seconds until a watch shows something: one on a quiet machine, with some tries that are refused."""
SERVICE_ACCOUNT = "kubernetes.aio.config.incluster_config.SERVICE_"


def config(folder: Path, server: str, **cluster: str) -> Path:
    """A kubeconfig with a token, and what it says about the server."""
    path = folder / "kubeconfig"
    parts = {
        "clusters": [{"name": "it", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": {"token": "nobody"}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
    }
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "it", **parts}))
    return path


async def complaint(kubeconfig: Path) -> str:
    """What a call and a watch say, both in one line."""
    cluster = await KubeCluster.connect(kubeconfig, pace=Pace(first_wait=0.01))
    try:
        with pytest.raises(Transient) as trouble:
            await cluster.get(PODS, "default", "any")
        async with aclosing(cluster.watch(PODS)) as watch:
            seen = await anext(watch)
    finally:
        await cluster.close()
    said = str(trouble.value)
    assert isinstance(seen, Blind)
    assert "not trusted" in seen.reason
    assert "\n" not in said + seen.reason
    return said


@pytest.mark.real
async def test_a_wrong_authority_is_told_in_one_line(control_plane: ControlPlane, tmp_path: Path):
    wrong = Authority(tmp_path).path
    said = await complaint(config(tmp_path, control_plane.url, **{"certificate-authority": str(wrong)}))
    assert "not trusted" in said
    assert control_plane.url.removeprefix("https://") in said


@pytest.mark.real
async def test_a_kubeconfig_without_an_authority_trusts_the_systems_alone(control_plane: ControlPlane, tmp_path: Path):
    assert "not trusted" in await complaint(config(tmp_path, control_plane.url))


async def test_a_certificate_that_ran_out_is_told(tmp_path: Path):
    authority = Authority(tmp_path)
    async with a_server_with(authority.issue("server", expired=True).certificate, tmp_path / "server.key") as url:
        said = await complaint(config(tmp_path, url, **{"certificate-authority": str(authority.path)}))
    assert "certificate has expired" in said


@pytest.mark.real
async def test_a_token_that_was_rotated_is_read_again(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "token"
    async with accounts(control_plane) as own:
        await own.apply(permissions.manifests("watcher", own.namespace, home=own.namespace))
        first = await own.token("watcher")
        file.write_text(first)
        async with (
            by_kubeconfig(control_plane, file, tmp_path) as one,
            in_a_pod(control_plane, file, monkeypatch) as two,
        ):
            await must_see(one, own)
            await must_see(two, own)
            await own.replace("watcher")
            file.write_text(await own.token("watcher"))
            # Until the API server has forgotten the old one, it proves nothing that we get in.
            await until(lambda: is_forgotten(own, first), within=UNTIL_FORGOTTEN)
            await must_see(one, own)
            await must_see(two, own)


@pytest.mark.real
async def test_a_watch_waits_for_a_token_that_comes_late(control_plane: ControlPlane, tmp_path: Path):
    file = tmp_path / "token"
    async with accounts(control_plane) as own:
        await own.apply(permissions.manifests("watcher", own.namespace, home=own.namespace))
        file.write_text("a token that is none")
        async with (
            by_kubeconfig(control_plane, file, tmp_path) as cluster,
            asyncio.timeout(PATIENCE),
            aclosing(cluster.watch(PODS, namespace=own.namespace)) as watch,
        ):
            seen = await anext(watch)
            assert isinstance(seen, Blind)
            assert "401" in seen.reason
            file.write_text(await own.token("watcher"))
            assert isinstance(await anext(watch), Snapshot)


@asynccontextmanager
async def by_kubeconfig(plane: ControlPlane, token: Path, folder: Path) -> AsyncIterator[KubeCluster]:
    """As outside of a cluster, where something else renews the file."""
    cluster = await KubeCluster.connect(token_file(plane, token, folder), pace=Pace(first_wait=0.05))
    try:
        yield cluster
    finally:
        await cluster.close()


@asynccontextmanager
async def in_a_pod(plane: ControlPlane, token: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubeCluster]:
    """With what a kubelet mounts into a pod and sets in its environment."""
    monkeypatch.setattr(f"{SERVICE_ACCOUNT}TOKEN_FILENAME", str(token))
    monkeypatch.setattr(f"{SERVICE_ACCOUNT}CERT_FILENAME", str(plane.authority))
    host, _, port = plane.url.removeprefix("https://").partition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    cluster = await KubeCluster.connect()
    try:
        yield cluster
    finally:
        await cluster.close()


def token_file(plane: ControlPlane, token: Path, folder: Path) -> Path:
    path = config(folder, plane.url, **{"certificate-authority": str(plane.authority)})
    found = yaml.safe_load(path.read_text())
    found["users"][0]["user"] = {"tokenFile": str(token)}
    path.write_text(yaml.safe_dump(found))
    return path


async def must_see(cluster: KubeCluster, own: Accounts) -> None:
    async with asyncio.timeout(PATIENCE), aclosing(cluster.watch(PODS, namespace=own.namespace)) as watch:
        assert isinstance(await anext(watch), Snapshot)


async def is_forgotten(own: Accounts, token: str) -> bool:
    return not await own.accepted(token)


@asynccontextmanager
async def a_server_with(certificate: Path | None, key: Path) -> AsyncIterator[str]:
    """A server with this certificate; no client gets further."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    assert certificate is not None
    context.load_cert_chain(certificate, key)

    async def nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(nothing, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


FORBIDDEN = 'pods is forbidden: User "watcher" cannot list resource "pods" in API group "" at the cluster scope'


@pytest.mark.parametrize("readiness", [status(500, "InternalError"), status(403, "Forbidden")], ids=["no", "not yet"])
async def test_a_server_that_is_starting_forbids_nothing_for_good(tmp_path: Path, readiness: Answer):
    async with ScriptedApiServer() as server:
        cluster = await KubeCluster.connect(server.kubeconfig(tmp_path))
        server.answers += [status(403, "Forbidden", FORBIDDEN), readiness]
        with pytest.raises(Transient, match="still starting"):
            await cluster.get(PODS, "team-a", "p")
        assert [asked.path for asked in server.asked[-1:]] == ["/readyz"]
        await cluster.close()


async def test_a_server_that_has_just_started_is_asked_again(tmp_path: Path):
    async with ScriptedApiServer() as server:
        cluster = await KubeCluster.connect(server.kubeconfig(tmp_path))
        server.answers += [status(403, "Forbidden", FORBIDDEN), ok({}), ok(a_pod("p", 1))]
        assert await cluster.get(PODS, "team-a", "p") is not None
        await cluster.close()


@pytest.mark.parametrize("readiness", [ok({}), status(404, "NotFound")], ids=["ready", "does not say"])
async def test_what_is_forbidden_by_a_server_that_is_ready_is_forbidden(tmp_path: Path, readiness: Answer):
    async with ScriptedApiServer() as server:
        cluster = await KubeCluster.connect(server.kubeconfig(tmp_path))
        server.answers += [status(403, "Forbidden", FORBIDDEN), readiness, status(403, "Forbidden", FORBIDDEN)]
        with pytest.raises(Refused) as refusal:
            await cluster.create(PODS, "team-a", {"metadata": {"name": "p"}})
        assert refusal.value.reason == "Forbidden"
        await cluster.close()


async def test_what_a_quota_forbids_is_not_asked_twice(tmp_path: Path):
    async with ScriptedApiServer() as server:
        cluster = await KubeCluster.connect(server.kubeconfig(tmp_path))
        server.answers += [status(403, "Forbidden", 'pods "p" is forbidden: exceeded quota: few')]
        with pytest.raises(Refused) as refusal:
            await cluster.create(PODS, "team-a", {"metadata": {"name": "p"}})
        assert refusal.value.reason == "QuotaExceeded"
        assert len(server.asked) == 1
        await cluster.close()


@pytest.mark.real
async def test_a_restart_of_the_real_server_refuses_nothing(control_plane: ControlPlane, tmp_path: Path):
    async with accounts(control_plane) as own:
        await own.apply(permissions.manifests("scheduler", own.namespace, home=own.namespace))
        async with own.client("scheduler", tmp_path) as cluster:
            await until(lambda: cluster.may(Right("get", "", "pods"), own.namespace))
            served = asyncio.Event()

            async def ask() -> int:
                # Until it is up, and then until it has answered; a refusal of what the role allows fails the test.
                troubles = 0
                while True:
                    try:
                        await cluster.get(PODS, own.namespace, "any")
                    except Transient:
                        troubles += 1
                        await asyncio.sleep(0)
                    else:
                        if served.is_set():
                            return troubles

            async def restart() -> None:
                await control_plane.apiserver.restart()
                served.set()

            troubles, *_ = await asyncio.gather(ask(), ask(), ask(), restart())
            assert troubles
